//! Clauses about listing keys, for nodes that can.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;
use quorlock::node::{ListedKeys, NodeErrorKind};
use quorlock::protocol::{WaiterId, is_auxiliary_key};

use super::bench::{Bench, Finding, LONG, ensure};
use super::shared::reader;

/// Lists all keys that begin with `prefix`; `None` if the node cannot list keys.
async fn listed(
    bench: &Bench<'_>,
    prefix: &str,
    which: ListedKeys,
) -> Result<Option<BTreeSet<String>>, String> {
    let mut pages = bench.node.list_keys(prefix.into(), which);
    let mut keys = BTreeSet::new();
    while let Some(page) = pages.next().await {
        match page {
            // As the library does.
            Ok(page) => {
                keys.extend(page.iter().filter(|key| !is_auxiliary_key(key)).map(ToString::to_string));
            }
            Err(error) if error.kind() == NodeErrorKind::Unsupported && keys.is_empty() => return Ok(None),
            Err(error) => return Err(format!("a listing failed: {error}")),
        }
    }
    Ok(Some(keys))
}

async fn lists(bench: &Bench<'_>, prefix: &str, which: ListedKeys, keys: &[&String]) -> Finding {
    let expected: BTreeSet<String> = keys.iter().copied().cloned().collect();
    let found = listed(bench, prefix, which).await?;
    ensure(found.as_ref().is_none_or(|found| *found == expected), format!("{prefix:?} lists {found:?}"))
}

pub(super) async fn stored_keys_are_listed_by_their_prefix(bench: &Bench<'_>) -> Finding {
    // Prefixes with a meaning in patterns of one store or another.
    let begin = format!("{}/*[a]?%_\\'", bench.key());
    let [held, other, free] = ["/held", "/other", "/free"].map(|end| format!("{begin}{end}"));
    for key in [&held, &other, &free] {
        bench.acquire(&bench.claim(key), LONG).await?;
    }
    bench.remove(&free).await?;
    lists(bench, &begin, ListedKeys::Locks, &[&held, &other]).await?;
    lists(bench, &held, ListedKeys::Locks, &[&held]).await?;
    lists(bench, &format!("{begin}/none"), ListedKeys::Locks, &[]).await
}

pub(super) async fn a_shared_key_is_listed_once(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    for _ in 0..2 {
        bench.acquire(&reader(bench, &key), LONG).await?;
    }
    lists(bench, &key, ListedKeys::Locks, &[&key]).await
}

pub(super) async fn more_keys_than_fit_on_a_page_are_listed(bench: &Bench<'_>) -> Finding {
    let begin = format!("{}/", bench.key());
    let keys: Vec<String> = (0..600).map(|number| format!("{begin}{number}")).collect();
    // Together, so that a store waits for its disk a few times, and not once for each.
    for keys in keys.chunks(60) {
        let acquired = keys.iter().map(async |key| bench.acquire_plainly(&bench.claim(key)).await);
        try_join_all(acquired).await?;
    }
    lists(bench, &begin, ListedKeys::Locks, &keys.iter().collect::<Vec<_>>()).await
}

pub(super) async fn keys_with_waiters_are_listed(bench: &Bench<'_>) -> Finding {
    let begin = bench.key();
    let [waited_for, other] = ["/a", "/b"].map(|end| format!("{begin}{end}"));
    for key in [&waited_for, &other] {
        bench.acquire(&bench.claim(key), LONG).await?;
    }
    bench.enqueue(&waited_for, WaiterId::new(1), Duration::ZERO, LONG).await?;
    lists(bench, &begin, ListedKeys::Queues, &[&waited_for]).await?;
    lists(bench, &other, ListedKeys::Queues, &[]).await
}
