//! `--force`: shows the holders and what taking the lock breaks, and asks.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::Arc;

use quorlock::{
    FencingToken, Lock, Token,
    node::Expiry,
    protocol::printable,
    votes::{NodeVote, VoteOutcome, VoteReport},
};

use super::outcome::Outcome;

use crate::failure::Failure;
use crate::report;
use crate::stderr;
use crate::time_left;

/// Takes `lock` from the holders seen now, after asking unless `sure`. Returns `None` if the answer was no.
///
/// Compares and deletes: a client that acquires the lock before the user answers keeps it.
///
/// Readers have a token each, which is revoked through `as_reader`.
pub(super) async fn take_away<K>(
    lock: &Lock<K>,
    as_reader: &Lock<K>,
    resource: &str,
    sure: bool,
) -> Result<Option<Outcome>, Failure> {
    let seen = look(lock).await?;
    let holders = holders(&seen);
    if holders.is_empty() {
        return Ok(Some(Outcome::before(&seen)));
    }
    report::notice(&warning(resource, &holders));
    if !sure && !is_confirmed()? {
        report::notice("nothing was changed");
        return Ok(None);
    }
    let mut outcome = Outcome::before(&seen);
    let by_readers =
        |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(holding) if holding.token.is_marker());
    let lock = if seen.votes().iter().any(by_readers) { as_reader } else { lock };
    // A node names a hundred readers at a time. The token that stands for all of them comes last: it
    // would revoke the others too, but a renewal in flight would store their shares again.
    let (markers, mut holders): (Vec<Seen>, Vec<Seen>) =
        holders.into_iter().partition(|holder| holder.token.is_marker());
    let mut taken: Vec<Token> = Vec::new();
    while !holders.is_empty() {
        for holder in &holders {
            let report = lock.revoke(&holder.token).await?;
            outcome.add(&holder.token, &report);
        }
        taken.extend(holders.into_iter().map(|holder| holder.token));
        holders = if markers.is_empty() || taken.len() > MOST_READERS {
            Vec::new()
        } else {
            let left = self::holders(&look(lock).await?).into_iter();
            left.filter(|holder| !holder.token.is_marker() && !taken.contains(&holder.token)).collect()
        };
    }
    for marker in markers {
        let report = lock.revoke(&marker.token).await?;
        outcome.add(&marker.token, &report);
    }
    Ok(Some(outcome))
}

/// Who holds `lock`, node by node.
async fn look<K>(lock: &Lock<K>) -> Result<VoteReport, Failure> {
    Ok(lock.inspect().await?)
}

/// The most readers removed one by one, in case new ones arrive as fast; then the marker removes the rest.
const MOST_READERS: usize = 10_000;

/// A holder that is to lose the lock.
struct Seen {
    token: Token,
    nodes: Vec<Arc<str>>,
    remaining: Expiry,
    fencing_token: Option<FencingToken>,
}

/// Returns every holder on any node: several if they share the lock, split the vote, or are leftovers. Keys without an
/// expiry are data of other programs and not listed, unless they are places in a queue.
fn holders(report: &VoteReport) -> Vec<Seen> {
    let most = report.holder();
    let number_of = |token: &Token| most.as_ref().filter(|holder| holder.token == *token)?.fencing_token;
    let mut holders: Vec<Seen> = Vec::new();
    for vote in report.votes() {
        let VoteOutcome::Held(holding) = &vote.outcome else { continue };
        if holding.expiry == Expiry::Never && !holding.is_place {
            continue;
        }
        // The readers, at most a hundred, and then their marker.
        for token in holding.readers.iter().chain([&holding.token]) {
            match holders.iter_mut().find(|holder| holder.token == *token) {
                Some(holder) => {
                    holder.nodes.push(vote.node.clone());
                    holder.remaining = holder.remaining.max(holding.expiry);
                }
                None => holders.push(Seen {
                    token: token.clone(),
                    nodes: vec![vote.node.clone()],
                    remaining: holding.expiry,
                    fencing_token: number_of(token),
                }),
            }
        }
    }
    holders
}

fn warning(resource: &str, holders: &[Seen]) -> String {
    let retained = holders.iter().all(|holder| holder.token.is_retained());
    let how = if retained { "stays taken:" } else { "is held by" };
    let mut text = format!("`{}` {how}\n", printable(resource));
    for Seen { token, nodes, remaining, fencing_token } in holders {
        let fenced =
            fencing_token.map_or_else(String::new, |number| format!(", with fencing token {number}"));
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "  {token}, {}{fenced}\n    on {}",
            time_left::in_words(*remaining),
            printable(&nodes.join(", "))
        );
    }
    if retained {
        text.push_str("The run has ended and no process holds it. Once released, the job may run again.");
        return text;
    }
    text.push_str(
        "Taking it away breaks a promise: the holder works on until its next renewal, within a third of its\n\
         TTL, or until nodes notify it, while another client may already hold the lock. Only a resource that\n\
         checks fencing tokens is protected then. Fencing counters are kept.",
    );
    text
}

/// Asks for confirmation, which takes a terminal.
fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(
            "cannot ask for confirmation, because stdin or stderr is not a terminal; pass --yes if you are \
             sure"
                .to_owned(),
        ));
    }
    stderr::say("Take it away? [y/N] ");
    stderr::finish();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::to("read the answer"))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
