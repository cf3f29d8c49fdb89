//! How a request goes to the server, and what follows each reply.
//!
//! A request is sent in one [`Step`], and usually its reply is the response. Scripts can do everything; cheaper commands do
//! the usual, and what they refuse or leave undone is a further step of the same request:
//!
//! ```text
//!               free lock, with fencing ──► Numbered ─────┬─ stored, numbered ─────────────► vote
//!                                                         ├─ stored, counter ahead ──► Draw ─► vote
//!                                                         │  or unclear                 │
//!                                                         │                   not stored ▼
//!            free lock, without fencing ──► Plain ────────┴─ refused ─────────────► Script ──► vote
//!                     a release ──────────► Deletion ─────┬─ others wait ──► NotifyNext ─────► vote
//!                                                         └─ not ────────────────────────────► vote
//!                     all others ─────────► Script ──────────────────────────────────────────► vote
//! ```
//!
//! A script that the server does not know by its hash is sent again in full. If a number cannot be drawn, the token that may
//! be stored is removed before the error is reported, since the error says that nothing was done (rule I-5).

use std::time::Duration;

use super::command::plain::{
    Deleting, Deletion, NUMBERED, Storing, SupportedCommands, decode_deletion, decode_storing,
    encode_acquisition, encode_deletion, with_mark, with_number,
};
use super::command::reply::{CommandOutcome, DONE, STORED, decode, decode_plain};
use super::command::{ByHash, Form, encode_draw, encode_notify_next, encode_once, encode_plain, write_once};
use super::error::unexpected;
use super::scripts::Library;
use crate::node::{NodeError, Request, SharedRequest, Vote};
use quorlock_protocol::{Claim, FenceHint, FencingToken, Mode};

/// What is sent for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The script of the request.
    Script,
    /// `SET NX`, which reports no holder. Only where no request can arrive late, since it looks for no tombstone (rule
    /// I-41).
    Plain,
    /// `SET NX`, and then the raising of the counter (ADR 4).
    Numbered,
    /// A release by one command, which notifies no waiter.
    Deletion(Deleting),
    /// The script that draws a number for a token that is stored without one.
    Draw,
    /// The script that notifies the next waiter after a deletion.
    NotifyNext,
}

impl Step {
    /// Returns the first step. `wall` is the time of the server, if such commands may be used.
    ///
    /// For a contended lock a script is better: if it refuses, it returns the holder, and leaves the counter unchanged.
    pub(crate) fn first(request: &Request, supported: SupportedCommands, wall: Option<Duration>) -> Step {
        let alone = |claim: &Claim| claim.mode() == Mode::Exclusive && !claim.is_several();
        if !request.claim().is_some_and(alone) {
            return Step::Script;
        }
        if let (Request::Acquire { fence_hint: Some(hint), .. }, Some(wall)) = (request, wall)
            && !hint.contended
            && hint.is_within(wall)
        {
            return Step::Numbered;
        }
        if let (Request::Acquire { fence_hint: None, .. }, true) = (request, supported.storing) {
            return Step::Plain;
        }
        if let (Request::Release { .. }, Some(deleting)) = (request, supported.deleting) {
            return Step::Deletion(deleting);
        }
        Step::Script
    }

    /// Writes it to the buffer. For a cluster member, scripts are carried out only under its `history`.
    pub(crate) fn write(
        self,
        request: &SharedRequest,
        history: Option<&str>,
        library: &mut Library,
        buffer: &mut Vec<u8>,
    ) -> Awaited {
        match (self, &**request) {
            (Step::Plain, Request::Acquire { claim, ttl, .. }) => {
                write_once(request, Form::Plain, buffer, |buffer| encode_plain(claim, *ttl, buffer));
                Awaited::Plain
            }
            (Step::Numbered, Request::Acquire { claim, ttl, fence_hint: Some(hint) }) => {
                write_once(request, Form::Numbered, buffer, |buffer| {
                    encode_acquisition(claim, *ttl, *hint, buffer);
                });
                Awaited::Numbered { hint: *hint, storing: None }
            }
            (Step::Deletion(deleting), Request::Release { claim }) => {
                write_once(request, deleting.form(), buffer, |buffer| {
                    encode_deletion(claim, deleting, buffer);
                });
                Awaited::Deletion(None)
            }
            (Step::Draw, Request::Acquire { claim, fence_hint: Some(hint), .. }) => {
                Awaited::Draw(encode_draw(claim, *hint, library, buffer))
            }
            (Step::NotifyNext, request) => {
                Awaited::NotifyNext(encode_notify_next(request.key(), library, buffer))
            }
            (Step::Script | Step::Plain | Step::Numbered | Step::Deletion(_) | Step::Draw, _) => {
                debug_assert!(self == Step::Script, "a step that its request does not have");
                Awaited::Script(encode_once(request, history, library, buffer))
            }
        }
    }
}

/// The replies that are still to come for a step.
#[derive(Debug)]
pub(crate) enum Awaited {
    Script(ByHash),
    Plain,
    Numbered {
        hint: FenceHint,
        /// The first of two replies, once it is there.
        storing: Option<Storing>,
    },
    /// The first of two replies, once it is there.
    Deletion(Option<Deletion>),
    Draw(ByHash),
    NotifyNext(ByHash),
}

/// What a reply leads to.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The response.
    Voted {
        vote: Vote,
        fence: Option<FencingToken>,
    },
    /// This step follows.
    Then(Step),
    /// One of the commands failed, as for a server that does not support it or a user without permission: the token may be
    /// stored. A number is drawn for it, and for a while only scripts are used, which report more of the cause.
    Unclear,
    /// The script was not run, because the server does not know its hash: the same step again. No later request undoes it:
    /// an attempt that was given up since then is not sent again.
    Again,
    Failed(NodeError),
    /// What the request may have stored must be removed before this error is reported.
    Undo(NodeError),
    /// The server has become a replica since the handshake.
    Demoted,
}

impl Awaited {
    /// Returns the usual reply. If exactly that arrives, it is skipped without parsing.
    pub(crate) fn usual(&self) -> Option<&'static [u8]> {
        match self {
            Awaited::Script(_) => Some(DONE),
            Awaited::Plain => Some(STORED),
            Awaited::Numbered { storing: None, .. } => Some(NUMBERED),
            Awaited::Numbered { .. } | Awaited::Deletion(_) | Awaited::Draw(_) | Awaited::NotifyNext(_) => {
                None
            }
        }
    }

    /// Reads the next reply to the request of this user; returns nothing if more are to come.
    pub(crate) fn read(&mut self, reply: &[u8], request: &Request, user: &str) -> Option<Progress> {
        Some(match self {
            Awaited::Numbered { hint, storing } => {
                if reply == NUMBERED {
                    return Some(Progress::Voted { vote: Vote::Granted, fence: Some(hint.usual()) });
                }
                let Some(storing) = storing.take() else {
                    *storing = Some(decode_storing(reply));
                    return None;
                };
                progress_of(Ok(with_number(storing, reply, *hint)), ByHash::No)
            }
            Awaited::Plain => progress_of(decode_plain(reply, request, user), ByHash::No),
            Awaited::Script(by_hash) => progress_of(decode(reply, request, user), *by_hash),
            Awaited::Deletion(first) => {
                let Some(first) = first.take() else {
                    *first = Some(decode_deletion(reply, request.key(), user));
                    return None;
                };
                let outcome = with_mark(first, reply);
                if is_vote(&outcome, &Vote::ReleasedContended) {
                    Progress::Then(Step::NotifyNext)
                } else {
                    progress_of(outcome, ByHash::No)
                }
            }
            Awaited::Draw(by_hash) => {
                let outcome = decode(reply, request, user);
                if is_vote(&outcome, &Vote::Free) {
                    // It was not stored, or has gone since.
                    return Some(Progress::Then(Step::Script));
                }
                let progress = progress_of(outcome, *by_hash);
                if let Progress::Failed(error) = progress { Progress::Undo(error) } else { progress }
            }
            Awaited::NotifyNext(by_hash) => {
                let outcome = decode(reply, request, user);
                let notified = is_vote(&outcome, &Vote::Notified);
                let progress = progress_of(outcome, *by_hash);
                if matches!(progress, Progress::Again | Progress::Demoted) {
                    return Some(progress);
                }
                // It was released, whatever became of the next waiter.
                let vote = if notified { Vote::Notified } else { Vote::ReleasedContended };
                Progress::Voted { vote, fence: None }
            }
        })
    }
}

fn is_vote(outcome: &Result<CommandOutcome, NodeError>, of: &Vote) -> bool {
    matches!(outcome, Ok(CommandOutcome::Voted { vote, .. }) if vote == of)
}

/// Returns what follows a reply, unless the step has its own meaning of it.
fn progress_of(outcome: Result<CommandOutcome, NodeError>, by_hash: ByHash) -> Progress {
    match outcome {
        Ok(CommandOutcome::Voted { vote, fence }) => Progress::Voted { vote, fence },
        Ok(CommandOutcome::Refused) => Progress::Then(Step::Script),
        Ok(CommandOutcome::Unnumbered) => Progress::Then(Step::Draw),
        Ok(CommandOutcome::Unclear) => Progress::Unclear,
        Ok(CommandOutcome::Forgotten) if by_hash == ByHash::Yes => Progress::Again,
        Ok(CommandOutcome::Forgotten) => {
            Progress::Failed(unexpected("it does not know a script that was sent in full"))
        }
        Ok(CommandOutcome::Demoted) => Progress::Demoted,
        Err(error) => Progress::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::redis::tests::{any_claim, release};

    const LONG: Duration = Duration::from_secs(30);
    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn acquire(wall: Option<Duration>, seen: Option<FencingToken>) -> Request {
        let fence_hint = wall.map(|wall| FenceHint::at(wall, seen, LONG));
        Request::Acquire { claim: any_claim(), ttl: LONG, fence_hint }
    }

    #[test]
    fn what_is_sent_first_is_a_matter_of_request_and_server() {
        let all = SupportedCommands {
            client: Some(7),
            storing: true,
            clock: None,
            deleting: Some(Deleting::IfEqual),
        };
        let none = SupportedCommands::default();
        let release = release(&any_claim());
        let shared = Arc::new(Claim::clone(&any_claim()).shared());
        let contended = acquire(Some(WALL), Some(FencingToken::ZERO));
        let mut in_turn = contended.clone();
        if let Request::Acquire { fence_hint: Some(hint), .. } = &mut in_turn {
            *hint = hint.in_turn();
        }
        for (what, request, supported, wall, step) in [
            ("fenced", acquire(Some(WALL), None), all, Some(WALL), Step::Numbered),
            ("without a clock of the server", acquire(Some(WALL), None), all, None, Step::Script),
            ("contended", contended, all, Some(WALL), Step::Script),
            ("contended, in its turn", in_turn, all, Some(WALL), Step::Numbered),
            ("too far ahead", acquire(Some(WALL + LONG * 2), None), all, Some(WALL), Step::Script),
            ("unfenced", acquire(None, None), all, Some(WALL), Step::Plain),
            ("unfenced, and late requests", acquire(None, None), none, Some(WALL), Step::Script),
            ("release", release.clone(), all, None, Step::Deletion(Deleting::IfEqual)),
            ("release on an older server", release.clone(), none, None, Step::Script),
            ("another layout", release, all.scripts_only(), None, Step::Script),
            ("unfenced, in another layout", acquire(None, None), all.scripts_only(), None, Step::Script),
            ("shared release", Request::Release { claim: shared }, all, None, Step::Script),
            ("inspection", Request::inspect("a"), all, Some(WALL), Step::Script),
        ] {
            assert_eq!(Step::first(&request, supported, wall), step, "{what}");
        }
    }

    #[test]
    fn a_token_without_a_number_is_undone_and_a_deletion_stays_one() {
        let unknown = b"-NOSCRIPT No matching script\r\n";
        let request = acquire(Some(WALL), None);
        let read = |mut awaited: Awaited, reply: &[u8]| {
            format!("{:?}", awaited.read(reply, &request, "anna").unwrap())
        };
        assert_eq!(read(Awaited::Draw(ByHash::Yes), unknown), "Again");
        assert!(read(Awaited::Draw(ByHash::No), unknown).starts_with("Undo"));
        assert!(read(Awaited::Script(ByHash::No), unknown).starts_with("Failed"));
        assert_eq!(read(Awaited::NotifyNext(ByHash::Yes), unknown), "Again");
        assert!(read(Awaited::NotifyNext(ByHash::No), unknown).contains("ReleasedContended"));
        assert_eq!(read(Awaited::Draw(ByHash::Yes), b"*1\r\n$4\r\nfree\r\n"), "Then(Script)");
    }

    #[test]
    fn a_token_is_stored_and_numbered_by_two_replies_and_unclear_ones_are_followed_by_a_script() {
        let request = acquire(Some(WALL), None);
        let Request::Acquire { fence_hint: Some(hint), .. } = request else { panic!("it is fenced") };
        let error = b"-OOM command not allowed\r\n".as_slice();
        let granted = format!("Voted {{ vote: Granted, fence: Some({:?}) }}", hint.usual());
        for (stored, raised, progress) in [
            (b"+OK\r\n".as_slice(), b":1\r\n".as_slice(), granted.as_str()),
            (b"+OK\r\n", b":0\r\n", "Then(Draw)"),
            (b"$-1\r\n", b":1\r\n", "Then(Script)"),
            (b"_\r\n", b":0\r\n", "Then(Script)"),
            (b"+OK\r\n", error, "Unclear"),
            (error, b":1\r\n", "Unclear"),
            (b"+OK\r\n", b":2\r\n", "Unclear"),
            (b":1\r\n", b":1\r\n", "Unclear"),
        ] {
            let mut awaited = Awaited::Numbered { hint, storing: None };
            assert!(awaited.read(stored, &request, "anna").is_none(), "the second reply is to come");
            assert_eq!(format!("{:?}", awaited.read(raised, &request, "anna").unwrap()), progress);
        }
        let mut both = Awaited::Numbered { hint, storing: None };
        let usual = both.usual().unwrap();
        assert_eq!(format!("{:?}", both.read(usual, &request, "anna").unwrap()), granted);
    }

    #[test]
    fn a_deletion_has_two_replies_and_notifies_a_waiter_if_there_is_a_mark() {
        let request = release(&any_claim());
        for (deleted, marked, progress) in [
            (b":1\r\n", b":1\r\n", "Then(NotifyNext)"),
            (b":1\r\n", b":0\r\n", "Voted { vote: Granted, fence: None }"),
            (b":0\r\n", b":1\r\n", "Voted { vote: Free, fence: None }"),
        ] {
            let mut awaited = Awaited::Deletion(None);
            assert!(awaited.read(deleted, &request, "anna").is_none(), "the second reply is to come");
            assert_eq!(format!("{:?}", awaited.read(marked, &request, "anna").unwrap()), progress);
        }
    }
}
