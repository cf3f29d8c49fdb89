//! Runs the middle column of `docs/migration.md`, except that of tables for Python, which
//! `python/tests/test_docs.py` runs.

use std::error::Error;
use std::time::Duration;

use crate::common::bench;
use quorlock::{ConfigError, Coordinator, LeaseWatch, Owner, Renewal, RestartGuard, Wait, WithError};

const PAGE: &str = include_str!("../../docs/migration.md");
const HERE: &str = include_str!("migration.rs");

/// The code in the middle column of all tables except those about programs, which the CLI's tests run, and those
/// for Python.
fn ours() -> Vec<String> {
    let tables = PAGE.split("\n\n").filter(|part| !part.starts_with("| theirs | from Python |"));
    let rows = tables.flat_map(str::lines).filter(|line| line.starts_with("| "));
    // A bar inside code is escaped in a table.
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
    assert!(ours.len() > 80, "{} were found", ours.len());
    for line in ours {
        assert!(code.contains(&without_spaces(&line)), "`{line}` of docs/migration.md is not run");
    }
}

/// The functions of the other libraries, by the heading of their section, in the versions that were
/// read.
const THEIRS: &[(&str, &str)] = &[
    (
        "redlock (crates.io)",
        "RedLock::new with_client with_clients get_unique_lock_id set_retry rl.lock rl.acquire acquire_async \
         rl.unlock guard lock.resource lock.val lock.validity_time",
    ),
    (
        "rslock",
        "LockManager::new from_clients new_cluster from_cluster_client get_unique_lock_id set_retry \
         query_redis_for_key_value rl.unlock rl.lock rl.acquire acquire_no_guard rl.extend is_freed rl.using \
         guard.release lock.resource lock.val validity_time LockError",
    ),
    (
        "redsync (Go)",
        "redsync.New NewMutex mutex.Name mutex.Value mutex.Until mutex.TryLock TryLockContext mutex.Lock \
         LockContext mutex.Unlock UnlockContext mutex.Extend ExtendContext mutex.Valid WithExpiry WithTries \
         WithRetryDelay WithRetryDelayFunc WithSetNXOnExtend WithDriftFactor WithTimeoutFactor \
         WithGenValueFunc WithValue WithFailFast WithShufflePools ErrFailed ErrExtendFailed \
         ErrLockAlreadyExpired ErrTaken ErrNodeTaken RedisError",
    ),
    (
        "redlock and @sesamecare-oss/redlock (npm)",
        "Redlock(clients redlock.acquire redlock.using lock.extend lock.release redlock.quit driftFactor \
         retryCount retryDelay retryJitter automaticExtensionThreshold signal.aborted lock.expiration lock.value \
         lock.resources lock.attempts ExecutionError ResourceLockedError redlock.on",
    ),
    (
        "redlock-py",
        "Redlock([ dlm.lock dlm.unlock retry_count retry_delay lock.validity lock.key lock.resource \
         MultipleRedlockException CannotObtainLock",
    ),
    (
        "pottery",
        "Redlock(key AIORedlock masters auto_release_time num_extensions raise_on_redis_errors \
         context_manager_blocking context_manager_timeout lock.acquire lock.locked lock.extend lock.release \
         @synchronize QuorumNotAchieved QuorumIsImpossible TooManyExtensions ExtendUnlockedLock \
         ReleaseUnlockedLock",
    ),
    (
        "redis-py's `Lock`",
        "Redis( redis.lock( Lock(redis timeout= sleep= blocking= blocking_timeout= thread_local= \
         raise_on_release_error= lock.acquire token= lock.locked lock.owned lock.release lock.extend \
         lock.reacquire LockError LockNotOwnedError redis.asyncio.lock.Lock",
    ),
    (
        "RedLock.net",
        "RedLockFactory.Create multiplexers RedLockRetryConfiguration RedisKeyFormat CreateLockAsync \
         cancellationToken redLock.Resource LockId IsAcquired redLock.Status InstanceSummary ExtendCount \
         ConfigurationChanged Dispose factory.Dispose",
    ),
    (
        "Redisson",
        "getLock getRedLock getMultiLock getSpinLock getNonReentrantLock getFencedLock getFairLock \
         getNonReentrantFairLock getReadWriteLock getSemaphore getPermitExpirableSemaphore getCountDownLatch \
         lock.lock() lockInterruptibly tryLock unlock forceUnlock isLocked isHeldByCurrentThread getHoldCount \
         remainTimeToLive lockAsync lockAndGetToken lockWatchdogTimeout checkLockSyncedSlaves readLock writeLock \
         trySetPermits semaphore.acquire",
    ),
    (
        "Spring Integration's `JdbcLockRegistry`",
        "DefaultLockRepository( JdbcLockRegistry( setRegion setPrefix setTimeToLive setIdleBetweenTries \
         registry.obtain lock.lock() lockInterruptibly tryLock unlock ConcurrentModificationException renewLock \
         isAcquiredInThisProcess expireUnusedOlderThan deleteExpired",
    ),
];

#[test]
fn every_call_of_theirs_is_on_the_page() {
    let mut missing = Vec::new();
    for (library, calls) in THEIRS {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(library)).unwrap();
        let rows: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| ")).collect();
        let theirs = |row: &&str| row.split(" | ").next().unwrap_or_default().to_owned();
        let theirs: String = rows.iter().map(theirs).collect();
        missing.extend(
            calls.split_whitespace().filter(|call| !theirs.contains(*call)).map(|call| (library, call)),
        );
    }
    assert!(missing.is_empty(), "docs/migration.md has no replacement for these: {missing:?}");
}

async fn work(lease: LeaseWatch) -> Result<u32, WithError> {
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
    assert_eq!(error.report().unwrap().holder().unwrap().token, *lease.token());
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
    assert!(lease.check().is_err(), "it was not renewed");

    let lock = anew();
    let lock = lock.renewal(Renewal::Every(every));
    assert_eq!(lock.with(async |lease| work(lease).await).await?, 42);
    let lock = lock.max_hold(longest);
    let lease = lock.acquire().await?;
    bench.pass(longest).await;
    assert!(lease.check().is_err(), "max_hold must end it");

    let lock = anew();
    let lock = lock.label("importer");
    let lock = lock.shared();
    let (one, other) = (lock.acquire().await?, lock.acquire().await?);
    assert!(anew().try_acquire().await?.is_none(), "readers exclude a writer");
    one.release().await?;
    other.release().await?;
    let lease = anew().acquire().await?;
    assert_eq!(lease.resource().as_str(), "orders/42");
    let lease = lease.downgrade().await?;
    assert!(lock.try_acquire().await?.is_some(), "a reader now");
    lease.release().await?;
    let lock = anew();
    let lease = lock.acquire().await?;
    let token = lease.token().clone();
    lock.revoke(&token).await?;
    lease.lost().await;

    let semaphore = coordinator.semaphore("exports", 4);
    let permit = semaphore.acquire().await?;
    assert!(permit.number() < 4);
    drop(permit);
    drop(coordinator.lock_all(["accounts/1", "accounts/2"]).acquire().await?);
    assert_eq!(coordinator.health().now().len(), 5);

    let lock = anew();
    let me = Owner::new();
    let lock = lock.owner(&me);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    inner.release().await?;
    outer.release().await?;
    coordinator.close(patience).await;
    Ok(())
}

/// The calls of etcd's mutex have the same counterparts on every kind of node.
#[tokio::test(start_paused = true)]
async fn the_counterparts_of_etcds_mutex_work() -> Result<(), Box<dyn Error>> {
    let coordinator = bench(1).coordinator;
    let lease = coordinator.lock("orders/42").acquire().await?;
    assert!(coordinator.lock("orders/42").try_acquire().await?.is_none());
    // The nodes in memory have no numbers of their own.
    assert!(lease.store_revision().is_none());
    Ok(())
}

#[test]
fn a_coordinator_is_made() -> Result<(), ConfigError> {
    let urls = ["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"];
    drop(Coordinator::builder().nodes(urls).build()?);
    drop(Coordinator::builder().nodes(urls).key_prefix("redlock:").build()?);
    drop(Coordinator::builder().nodes(urls).key_prefix("locks:").build()?);
    let builder = Coordinator::builder().nodes(urls);
    let builder = builder.drift(0.01);
    let builder = builder.node_timeout(Duration::from_millis(50));
    let builder = builder.restart_guard(RestartGuard::Off);
    drop(builder.build()?);
    Ok(())
}
