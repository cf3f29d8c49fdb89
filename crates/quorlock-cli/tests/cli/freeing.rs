//! `quorlock wait`.

use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};

use crate::support::{Quorlock, keys, kill_all, run, servers};

fn wait(servers: &Servers, options: &[&str]) -> Quorlock {
    Quorlock::new([&["wait"], options, &["job"]].concat()).on(servers)
}

const HOLD: &str = "echo started; while [ ! -e enough ]; do sleep 0.05; done";

#[tokio::test]
async fn it_ends_when_the_holder_releases_and_acquires_nothing() {
    let Some(servers) = servers(3).await else { return };
    wait(&servers, &[]).end().await.expect(0);
    assert_eq!(keys(&servers).await, [""; 0], "it acquired the lock");
    for options in [&[][..], &["--shared"]] {
        let holder = run(&servers, options, HOLD).prints(1).await;
        wait(&servers, &["-w", "0s"]).end().await.expect(75);
        wait(&servers, &["-w", "300ms", "-E", "4"]).end().await.expect(4);
        let mut waiter = wait(&servers, &["--json", "-vv"]).start();
        until("its connections", async || waiter.stderr().contains("connected")).await;
        assert!(!waiter.has_ended());
        holder.enough().await.expect(0);
        let ended = waiter.end().await.expect(0);
        let event = ended.json();
        assert_eq!((&event["event"], &event["resource"]), (&"free".into(), &"job".into()), "{ended:?}");
    }
}

#[tokio::test]
async fn a_retained_lock_is_not_free() {
    let Some(servers) = servers(3).await else { return };
    run(&servers, &["--at-least", "1h"], "true").end().await.expect(0);
    wait(&servers, &["-w", "0s"]).end().await.expect(75).says("stays taken");
}

#[tokio::test]
async fn a_signal_ends_it_and_no_quorum_is_no_answer() {
    let Some(servers) = servers(3).await else { return };
    let _holder = run(&servers, &[], HOLD).prints(1).await;
    let waiter = wait(&servers, &["-vv"]).start();
    until("its connections", async || waiter.stderr().contains("connected")).await;
    waiter.ends_by(Signal::SIGTERM).await.expect(143);
    kill_all(&servers[..2]);
    wait(&servers, &["-w", "300ms"]).end().await.expect(69);
}
