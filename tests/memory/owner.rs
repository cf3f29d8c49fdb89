//! Reentrancy, counted in the client (rule I-19).

use std::time::Duration;

use crate::common::{TTL, VALIDITY, asked, bench, client};
use quorlock::{AcquireError, ConfigError, FencingToken, LossReason, Owner, Renewal, Wait};

#[tokio::test(start_paused = true)]
async fn i19_an_owner_reenters_without_a_request() {
    let bench = bench(5);
    let me = Owner::new();
    let lock = bench.lock().owner(&me);
    let outer = lock.acquire().await.unwrap();
    bench.settle().await;
    let before = asked(&bench.nodes);
    let inner = lock.acquire().await.unwrap();
    let again = lock.try_acquire().await.unwrap().expect("the owner reenters");
    assert_eq!(asked(&bench.nodes), before);
    assert_eq!(inner.token(), outer.token(), "reentry shares the hold");
    assert_eq!(inner.remaining(), outer.remaining(), "with the same end");
    drop((inner, again));
    bench.settle().await;
    assert_eq!(bench.keys(), 5, "the outer one still holds");
    outer.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_lease_in_any_order_releases_the_lock() {
    let bench = bench(5);
    let lock = bench.lock().owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    outer.release().await.unwrap();
    bench.settle().await;
    assert_eq!(inner.check(), Ok(()));
    assert_eq!(bench.keys(), 5);
    inner.release().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_some(), "free for others");
}

#[tokio::test(start_paused = true)]
async fn another_owner_waits_like_any_client() {
    let bench = bench(5);
    let _held = bench.lock().owner(&Owner::new()).acquire().await.unwrap();
    assert!(bench.lock().owner(&Owner::new()).try_acquire().await.unwrap().is_none());
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    let other = client(&bench);
    assert!(other.lock("r").ttl(TTL).try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_checks_that_the_outer_lease_still_holds() {
    let bench = bench(5);
    let me = Owner::new();
    let lock = bench.lock().owner(&me).renewal(Renewal::Manual);
    let outer = lock.acquire().await.unwrap();
    bench.pass(VALIDITY).await;
    let inner = lock.clone().wait(Wait::UpTo(Duration::from_secs(2))).acquire().await.unwrap();
    assert_ne!(inner.token(), outer.token(), "a lost lease is not reentered: this is a new one");
    assert_eq!(outer.check().unwrap_err().reason, LossReason::Expired);
    assert_eq!(inner.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn nested_functions_enter_again_without_passing_the_owner_along() {
    async fn inner(bench: &crate::common::Bench) -> bool {
        bench.lock().reentrant().try_acquire().await.unwrap().is_some()
    }
    let bench = bench(5);
    let entered = Owner::scope(async {
        let _outer = bench.lock().reentrant().acquire().await.unwrap();
        // A nested scope has the same owner.
        inner(&bench).await && Owner::scope(inner(&bench)).await
    })
    .await;
    assert!(entered);
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reentrant_lock_outside_of_a_scope_is_refused() {
    let bench = bench(3);
    let error = bench.lock().reentrant().acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::Config(ConfigError::NoOwner));
    assert!(error.to_string().contains("Owner::scope"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_without_fencing_gives_its_owner_no_lease_that_has_a_token() {
    let bench = bench(3);
    let owner = Owner::new();
    let lock = bench.lock().owner(&owner);
    let outer = lock.clone().unfenced().acquire().await.unwrap();
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::Config(ConfigError::HeldUnfenced));
    drop(lock.clone().unfenced().acquire().await.unwrap());
    outer.release().await.unwrap();
    let fenced = lock.acquire().await.unwrap();
    let inner = lock.unfenced().acquire().await.unwrap();
    assert!(fenced.fencing_token() > FencingToken::ZERO && inner.token() == fenced.token());
}

#[tokio::test(start_paused = true)]
async fn a_duration_is_a_wait() {
    let bench = bench(3);
    let _held = bench.lock().acquire().await.unwrap();
    for (longest, waits) in [(Duration::ZERO, false), (Duration::from_secs(2), true)] {
        let begun = bench.clock.now();
        assert!(bench.lock().wait(longest).acquire().await.is_err());
        assert_eq!(bench.clock.now().since(begun) >= Duration::from_secs(2), waits);
    }
}

#[tokio::test(start_paused = true)]
async fn two_tasks_of_one_owner_share_one_hold() {
    let bench = bench(5);
    let lock = bench.lock().wait(Wait::Forever).owner(&Owner::new());
    let (first, second) = tokio::join!(lock.acquire(), lock.acquire());
    assert_eq!(first.unwrap().token(), second.unwrap().token());
}

/// A task that enters again holds up no other that does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_enter_again_side_by_side_all_do() {
    let bench = bench(3);
    let lock = bench.lock().owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    let tasks = [lock.clone(), lock.clone()].map(|lock| {
        tokio::spawn(async move {
            for _ in 0..2_000 {
                let again = lock.try_acquire().await.unwrap().expect("its owner holds it");
                again.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    outer.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_says_for_how_long_a_task_waited_for_another_of_its_owner() {
    let bench = bench(5);
    let wait = Duration::from_secs(2);
    let _held = bench.lock().acquire().await.unwrap();
    let lock = bench.lock().wait(Wait::Forever).owner(&Owner::new());
    let acquiring = bench.waiting(lock.clone()).await;
    let error = lock.clone().wait(Wait::UpTo(wait)).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { waited, .. } if waited >= wait), "{error}");
    let error = lock.wait(Wait::Never).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { waited: Duration::ZERO, .. }), "{error}");
    acquiring.abort();
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_many_locks_in_turn_does_not_grow() {
    let bench = bench(1);
    let me = Owner::new();
    for number in 0..100 {
        bench
            .coordinator
            .lock(format!("r{number}"))
            .ttl(TTL)
            .owner(&me)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(format!("{me:?}").contains("held: 1"), "{me:?}");
}
