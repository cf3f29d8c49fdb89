//! The other end: makes a program of a node in Rust.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Hint, HintListener, Node, Request, ask};
use quorlock::runtime::{Clock as _, SystemClock};

use crate::wire::{self, Answer, Asked, Hello, VERSION};

/// Longer than any session of a store.
const LONG: Duration = Duration::from_secs(86_400);

/// Serves a node on standard input and output, until the input ends.
///
/// Requests are carried out one after the other. If the node says when a key has gone, so does the program: its URL then has
/// `hints=yes`.
///
/// # Errors
///
/// If the node has no identity yet, or the input is none of this protocol.
pub async fn serve(node: impl Node) -> io::Result<()> {
    node.listen(Arc::new(Gone));
    let first = ask(&node, Request::inspect("quorlock-exec")).await.map_err(io::Error::other)?;
    let clock = SystemClock::default();
    let age = u64::try_from(first.identity.age_at(clock.now()).as_millis()).unwrap_or(u64::MAX);
    let least_ttl = node.limits().least_ttl;
    let identity = first.identity.id.to_string();
    let least_ttl_ms = u64::try_from(least_ttl.as_millis()).unwrap_or(u64::MAX);
    let proven = LONG.saturating_sub(node.grant_age(LONG));
    let proven_ms = (proven < LONG / 2).then(|| u64::try_from(proven.as_millis()).unwrap_or(u64::MAX));
    say(&Hello { quorlock: VERSION, identity: identity.clone(), age_ms: age, least_ttl_ms, proven_ms })?;
    for line in io::stdin().lock().lines() {
        let (line, received) = (line?, clock.now());
        let asked: Asked = serde_json::from_str(&line)?;
        let id = asked.id;
        let Some(request) = asked.request() else {
            say(&wire::Failed { id, error: "the request is incomplete".to_owned(), maybe: false })?;
            continue;
        };
        match ask(&node, request).await {
            // The first line names the history.
            Ok(response) if *response.identity.id != *identity => {
                return Err(io::Error::other("the data have another history now"));
            }
            Ok(response) => match Answer::of(id, &response, received) {
                Some(answer) => say(&answer)?,
                None => say(&wire::Failed { id, error: "no such answer".to_owned(), maybe: true })?,
            },
            Err(error) => {
                let maybe = error.may_have_acted();
                say(&wire::Failed { id, error: format!("{error:#}"), maybe })?;
            }
        }
    }
    Ok(())
}

/// Passes on which keys have gone.
#[derive(Debug)]
struct Gone;

impl HintListener for Gone {
    fn on_hint(&self, hint: Hint<'_>) {
        if let Hint::Invalidated(key) = hint {
            // Without a reader the program ends soon.
            drop(say(&wire::Gone { gone: String::from_utf8_lossy(key).into_owned() }));
        }
    }
}

fn say(line: &impl serde::Serialize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
