//! Clauses about restarts of the server, and restored data.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Durability, Identity, Reach, Request, Vote};
use quorlock::protocol::Moment;

/// How long the tool that restores a backup takes, after the data are there.
const BACKUP_TIME: Duration = Duration::from_secs(5);
/// By how much a store that counts whole seconds may round its age.
const ROUNDING: Duration = Duration::from_secs(1);

use super::bench::{Bench, Finding, LONG, acquisition, ensure, held_by, is};

pub(super) async fn after_a_restart_all_is_remembered_or_the_history_is_a_new_one(
    bench: &Bench<'_>,
) -> Finding {
    let Some(Restarted { remembers, stopped, before, after }) = restarted(bench).await? else {
        return Ok(());
    };
    let is_new = before.id != after.id;
    ensure(remembers || is_new, format!("the lock was lost, but the history is still {}", before.id))?;
    // The start of a host that alone has the store has ended all its clients as well.
    let is_alone = bench.node.capabilities().reach == Reach::OneHost;
    let now = bench.clock.now();
    let (age, most) = (after.age_at(now), now.since(stopped) + ROUNDING);
    ensure(
        !is_new || is_alone || age <= most,
        format!("what was lost may be held, but the new history is {age:?} old, and not at most {most:?}"),
    )
}

pub(super) async fn what_is_durable_survives_a_restart(bench: &Bench<'_>) -> Finding {
    if bench.node.capabilities().durability != Durability::Durable {
        return Ok(());
    }
    let Some(Restarted { remembers, before, after, .. }) = restarted(bench).await? else { return Ok(()) };
    ensure(remembers, "it reports to be durable, but has lost the lock")?;
    ensure(before.id == after.id, format!("one history has two names: {} and {}", before.id, after.id))
}

pub(super) async fn a_restored_backup_is_a_new_history_to_connected_clients_too(
    bench: &Bench<'_>,
) -> Finding {
    let claim = bench.claim(&bench.key());
    // An earlier restart may go on to delay requests for a moment.
    let before = bench.until_answered(&acquisition(&claim, LONG, bench.fence_hint())).await?.identity;
    let restored = bench.plant.restore().await;
    bench.note_impossible(&restored);
    match restored {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(format!("cannot restore a backup: {error}")),
    }
    let restored = bench.clock.now();
    let after = bench
        .until_answered(&acquisition(&bench.claim(&bench.key()), LONG, bench.fence_hint()))
        .await?
        .identity;
    ensure(before.id != after.id, format!("the history is still {}", before.id))?;
    let (age, most) = (after.age_at(bench.clock.now()), bench.clock.now().since(restored) + BACKUP_TIME);
    ensure(
        age <= most,
        format!("what the backup lacks may be held, but the history is {age:?} old, and not {most:?}"),
    )
}

/// A server before and after its restart.
struct Restarted {
    /// Whether it remembers a lock.
    remembers: bool,
    /// When it was still running.
    stopped: Moment,
    before: Arc<Identity>,
    after: Arc<Identity>,
}

/// Restarts the server. `None` if that cannot be.
async fn restarted(bench: &Bench<'_>) -> Result<Option<Restarted>, String> {
    let claim = bench.claim(&bench.key());
    let before = bench.until_answered(&acquisition(&claim, LONG, bench.fence_hint())).await?;
    is(&before.vote, &Vote::Granted)?;
    let stopped = bench.clock.now();
    let restarted = bench.plant.restart().await;
    bench.note_impossible(&restarted);
    match restarted {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
        Err(error) => return Err(format!("cannot restart the server: {error}")),
    }
    let after = bench.until_answered(&Request::inspect(claim.key())).await?;
    let remembers = held_by(&after.vote, claim.token(), LONG).is_ok();
    Ok(Some(Restarted { remembers, stopped, before: before.identity, after: after.identity }))
}
