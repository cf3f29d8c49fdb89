//! `quorlock` as the first process of a container: process 1 of a process namespace, where no signal has its default
//! action. `lingering.rs` tests that it reaps orphans there.

use nix::sys::signal::Signal;
use quorlock_testkit::Servers;

use crate::support::{NAMESPACES, Quorlock, Running, STAYS, children, has_namespaces, run, send, servers};

/// Starts three servers, if process namespaces can be made.
async fn world() -> Option<Servers> {
    if has_namespaces() { servers(3).await } else { None }
}

fn as_first(quorlock: Quorlock) -> Quorlock {
    quorlock.through_all("unshare", &NAMESPACES)
}

/// Returns the number of process 1 of the namespace, as seen from outside.
fn first(running: &Running) -> String {
    children(&running.pid()).remove(0)
}

#[tokio::test]
async fn the_first_process_of_a_container_forwards_sigterm_and_exits_as_its_command() {
    let Some(servers) = world().await else { return };
    for (script, code) in [
        ("echo started; exec sleep 1000", 143),
        ("trap 'exit 7' TERM; echo started; while :; do sleep 0.05; done", 7),
    ] {
        let running = as_first(run(&servers, &[], script)).prints(1).await;
        send(&first(&running), Signal::SIGTERM);
        running.end().await.expect(code);
        run(&servers, &["-n"], "true").end().await.expect(0);
    }
}

#[tokio::test]
async fn the_first_process_of_a_container_ends_on_sigterm_while_it_waits() {
    let Some(servers) = world().await else { return };
    let _holder = run(&servers, &[], STAYS).prints(1).await;
    let waiting = as_first(run(&servers, &["-w", "forever", "-vv"], "echo ran")).waits().await;
    send(&first(&waiting), Signal::SIGTERM);
    let ended = waiting.end().await.expect(143);
    assert_eq!(ended.stdout, "");
}
