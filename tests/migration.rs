//! What `docs/migration.md` writes in its middle column, run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::error::Error;
use std::time::Duration;

use common::bench;
use quorlock::{ConfigError, Coordinator, LeaseWatch, Lost, Owner, Renewal, RestartGuard, Wait};

const PAGE: &str = include_str!("../docs/migration.md");
const HERE: &str = include_str!("migration.rs");

/// The code in the middle column of all tables but those of programs, which the command line's tests run.
fn ours() -> Vec<String> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| "));
    // A bar that is part of the code is escaped, for a table's sake.
    let cells = rows.map(|row| row.replace("\\|", "\u{1}"));
    let middle = cells.filter_map(|row| row.split(" | ").nth(1).map(str::to_owned));
    let code = middle.filter_map(|cell| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned()));
    code.map(|code| code.replace('\u{1}', "|"))
        .filter(|code| !code.starts_with("quorlock") && !code.starts_with('['))
        .collect()
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_line_of_the_page_is_run_here() {
    let code = HERE.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<String>();
    let code = without_spaces(&code);
    let ours = ours();
    assert!(ours.len() > 70, "{} were found", ours.len());
    for line in ours {
        assert!(code.contains(&without_spaces(&line)), "`{line}` of docs/migration.md is not run");
    }
}

async fn work(lease: LeaseWatch) -> Result<u32, Lost> {
    tokio::task::yield_now().await;
    lease.check()?;
    Ok(42)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_renewed_watched_and_given_back() -> Result<(), Box<dyn Error>> {
    let bench = bench(5);
    let coordinator = &bench.coordinator;
    let (ttl, patience, longest) = (Duration::from_secs(10), Duration::from_secs(5), Duration::from_secs(60));
    let every = Duration::from_secs(2);

    let lease = coordinator.lock("orders/42").ttl(ttl).try_acquire().await?.unwrap();
    let anew = || coordinator.lock("orders/42").ttl(ttl);
    let lock = anew();
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(lock.inspect().await?.holder().unwrap().token, *lease.token());
    let error = lock.wait(Wait::UpTo(patience)).acquire().await.unwrap_err();
    assert_eq!(error.ballot().unwrap().holder().unwrap().token, *lease.token());
    assert!(lease.remaining() > ttl / 2);
    lease.check()?;
    let first = lease.fencing_token();
    lease.release().await?;

    let lock = anew();
    let lease = lock.acquire().await?;
    assert!(lease.fencing_token() > first);
    drop(lease);
    let lease = lock.wait(Wait::UpTo(patience)).acquire().await?;
    lease.release().await?;

    let lock = anew();
    let lock = lock.renewal(Renewal::Manual);
    let lease = lock.wait(Wait::Forever).acquire().await?;
    lease.renew().await?;
    bench.pass(ttl).await;
    lease.lost().await;
    assert!(lease.check().is_err(), "nobody renewed it");

    let lock = anew();
    let lock = lock.renewal(Renewal::Every(every));
    assert_eq!(lock.with(async |lease| work(lease).await).await?, 42);
    let lock = lock.max_hold(longest);
    let lease = lock.acquire().await?;
    bench.pass(longest).await;
    assert!(lease.check().is_err(), "it was held for long enough");

    let lock = anew();
    let lock = lock.fair();
    let me = Owner::new();
    let lock = lock.owner(&me);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    inner.release().await?;
    outer.release().await?;
    coordinator.close(patience).await;
    Ok(())
}

#[test]
fn a_coordinator_is_made() -> Result<(), ConfigError> {
    let urls = ["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"];
    drop(Coordinator::builder().nodes(urls).build()?);
    drop(Coordinator::builder().nodes(urls).key_prefix("redlock:").build()?);
    let builder = Coordinator::builder().nodes(urls);
    let builder = builder.drift(0.01);
    let builder = builder.node_limit(Duration::from_millis(50));
    let builder = builder.restart_guard(RestartGuard::Off);
    drop(builder.build()?);
    Ok(())
}
