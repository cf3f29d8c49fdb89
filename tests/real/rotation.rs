//! A password that changes while locks are held and wanted.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use quorlock::{Coordinator, Lock, RestartGuard, Wait};
use quorlock_testkit::{Servers, patience, until};
use tokio::time::interval;

const TASKS: usize = 64;
const ROTATIONS: usize = 5;

/// Lets the user log in with these passwords alone.
async fn allow(servers: &Servers, passwords: &[String]) {
    let passwords = passwords.iter().map(|password| format!(">{password}"));
    let words = ["ACL", "SETUSER", "locks", "reset", "on", "~*", "&*", "+@all"].map(str::to_owned);
    let words: Vec<String> = words.into_iter().chain(passwords).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for server in servers.iter() {
        assert_eq!(server.command(&words).await.unwrap().to_string(), "OK", "{words:?}");
    }
}

/// Acquires and releases again and again until it is `over`.
async fn cycles(lock: Lock, over: &AtomicBool, done: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        lock.acquire().await.unwrap().release().await.unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock() {
    let servers = Servers::start(3).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (file, next) = (folder.path().join("password"), folder.path().join("next"));
    let password = |number: usize| format!("number-{number}");
    allow(&servers, &[password(0)]).await;
    fs::write(&file, password(0)).unwrap();
    let urls: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    let builder = || Coordinator::builder().nodes(&urls).username("locks").restart_guard(RestartGuard::Off);
    let coordinator = builder().password_file(&file).build().unwrap();
    let lock =
        |name: String| coordinator.lock(&name).ttl(Duration::from_secs(10)).wait(Wait::UpTo(patience()));

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
    let mut every = interval(Duration::from_secs(2));
    for number in 1..=ROTATIONS {
        every.tick().await;
        allow(&servers, &[password(number - 1), password(number)]).await;
        fs::write(&next, password(number)).unwrap();
        fs::rename(&next, &file).unwrap();
        for server in servers.iter() {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
        }
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
    let stale = builder().password(password(0)).build().unwrap();
    let refused = stale.lock("held/0").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(refused.to_string().contains("rejects the password"), "{refused}");
}
