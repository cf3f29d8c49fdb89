//! Clauses about the log of a lock.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Expiry, Request, Vote};
use quorlock::protocol::{HoldEnd, LOG_EXPIRY, LoggedHold, log_key};

use super::bench::{Bench, Finding, LONG, ensure, is};

/// Returns the hold of a new claim, which began at this second.
fn hold(bench: &Bench<'_>, key: &str, second: u64) -> LoggedHold {
    let (acquired, held) = (Duration::from_secs(second), Duration::from_secs(1));
    LoggedHold::new(&bench.claim(key), acquired, held, HoldEnd::Released)
}

async fn write(bench: &Bench<'_>, key: &str, hold: &LoggedHold, most: usize) -> Finding {
    let request = Request::LogHold { key: key.into(), hold: Arc::new(hold.clone()), most };
    is(&bench.vote(request).await?, &Vote::Granted)
}

async fn has(bench: &Bench<'_>, key: &str, holds: &[&LoggedHold]) -> Finding {
    let vote = bench.vote(Request::ReadLog { key: key.into() }).await?;
    let Vote::Log(found) = vote else { return Err(format!("expected a log, found {vote:?}")) };
    ensure(found.iter().eq(holds.iter().copied()), format!("the log is {found:?}, not {holds:?}"))
}

pub(super) async fn a_log_has_the_latest_holds_in_the_order_in_which_they_came(bench: &Bench<'_>) -> Finding {
    let (key, other) = (bench.key(), bench.key());
    has(bench, &key, &[]).await?;
    // By the wall clocks of the clients, the second ended first.
    let [first, second, third] = [30, 10, 20].map(|second| hold(bench, &key, second));
    write(bench, &key, &first, 2).await?;
    write(bench, &key, &second, 2).await?;
    has(bench, &key, &[&first, &second]).await?;
    write(bench, &key, &third, 2).await?;
    has(bench, &key, &[&second, &third]).await?;
    write(bench, &key, &third, 1).await?;
    has(bench, &key, &[&third]).await?;
    has(bench, &other, &[]).await
}

pub(super) async fn a_log_expires_and_is_no_lock(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let claim = bench.claim(&key);
    write(bench, &key, &hold(bench, &key, 1), 2).await?;
    bench.free(&key).await?;
    is(&bench.acquire(&claim, LONG).await?, &Vote::Granted)?;
    write(bench, &key, &hold(bench, &key, 2), 2).await?;
    is(&bench.release(&claim).await?, &Vote::Granted)?;
    // Nodes that keep it in a key of its own have an expiry there.
    match bench.expiry(&log_key(&key)).await? {
        Some(Expiry::In(left)) => {
            ensure(left <= LOG_EXPIRY && left + LONG > LOG_EXPIRY, format!("the log expires in {left:?}"))
        }
        Some(Expiry::Never) => Err("the log never expires".to_owned()),
        None => Ok(()),
    }
}
