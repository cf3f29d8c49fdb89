//! A password that changes while locks are held and wanted.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, Lock, Wait};
use quorlock_testkit::{patience, until};
use tempfile::TempDir;

const TASKS: usize = 64;
const ROTATIONS: usize = 5;
const EVERY: Duration = Duration::from_secs(2);

/// Returns the password of this number; the first is 0.
pub(crate) fn password(number: usize) -> String {
    format!("number-{number}")
}

/// The file from which the clients read the password.
pub(crate) struct PasswordFile(TempDir);

impl PasswordFile {
    /// Creates one with the first password.
    pub(crate) fn new() -> PasswordFile {
        let file = PasswordFile(tempfile::tempdir().unwrap());
        file.change_to(0);
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("password")
    }

    /// Changes it in one step.
    pub(crate) fn change_to(&self, number: usize) {
        let next = self.0.path().join("next");
        fs::write(&next, password(number)).unwrap();
        fs::rename(next, self.path()).unwrap();
    }
}

/// Acquires and releases again and again until it is `over`.
async fn cycles(lock: Lock, over: &AtomicBool, done: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        lock.acquire().await.unwrap().release().await.unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asserts that no lease is lost and no acquisition fails while the password changes every two seconds. `rotate` changes it to
/// that of a number, in the file and of the user, and ends what was logged in before.
pub(crate) async fn costs_no_lock(coordinator: &Coordinator, rotate: impl AsyncFn(usize)) {
    let lock = |name: String| {
        coordinator.lock(format!("jobs/{name}")).ttl(Duration::from_secs(10)).wait(Wait::UpTo(patience()))
    };
    let held = (0..TASKS / 2).map(|number| {
        let lock = lock(format!("held/{number}"));
        async move { lock.acquire().await }
    });
    let held: Vec<_> = join_all(held).await.into_iter().map(Result::unwrap).collect();
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Two tasks for each name, so that some wait.
    let tasks: Vec<_> = (0..TASKS / 2)
        .map(|number| {
            let (lock, over, done) = (lock(format!("wanted/{}", number / 2)), over.clone(), done.clone());
            tokio::spawn(async move { cycles(lock, &over, &done).await })
        })
        .collect();
    let clock = SystemClock::default();
    let begun = clock.now();
    for (number, due) in (1..=ROTATIONS).zip(1..) {
        clock.sleep_until(begun + EVERY * due).await;
        rotate(number).await;
        let before = done.load(Ordering::Relaxed);
        until("locks by the next password", async || done.load(Ordering::Relaxed) > before + TASKS).await;
        assert!(held.iter().all(|lease| lease.check().is_ok()), "a lease was lost at rotation {number}");
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    for lease in held {
        lease.release().await.unwrap();
    }
}

/// Asserts that a client with the first password is refused.
pub(crate) async fn is_refused(stale: &Coordinator) {
    let lock = stale.lock("jobs/a").wait(Wait::UpTo(patience()));
    let refused = lock.acquire().await.unwrap_err().to_string();
    assert!(refused.contains("password"), "{refused}");
}
