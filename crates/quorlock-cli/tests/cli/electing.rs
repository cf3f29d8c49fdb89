//! `quorlock elect`: one candidate runs the command, and campaigns again after a loss.

use std::fs;

use nix::sys::signal::Signal;
use quorlock::{Coordinator, RestartGuard, election::Observed};
use quorlock_testkit::{Servers, until};

use crate::metrics::{address, scrape};
use crate::support::{Quorlock, Running, STAYS, each, has_waiter, is_gone, keys, servers};

fn elect(servers: &Servers, options: &[&str], script: &str) -> Quorlock {
    let words = [&["elect"], options, &["job", "--", "sh", "-c", script]].concat();
    Quorlock::new(words).on(servers)
}

const LEAD: &str = "echo leads; exec sleep 1000";

#[tokio::test]
async fn one_of_two_candidates_leads_and_the_other_follows_it() {
    let Some(servers) = servers(3).await else { return };
    let leader = elect(&servers, &["--value", "http://10.0.0.7:8080"], LEAD).prints(1).await;
    let other = elect(&servers, &[], LEAD).start();
    has_waiter(&servers, "job").await;
    assert_eq!(other.stdout(), "", "two lead");
    Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0).shows("http://10.0.0.7:8080");
    // A program with the library sees the same leader.
    let program =
        Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build().unwrap();
    let observed = program.election("job").observe().unwrap().changed().await;
    let Observed::Leader(observed) = observed else { panic!("{observed}") };
    assert_eq!(observed.value, "http://10.0.0.7:8080");
    leader.ends_by(Signal::SIGTERM).await.expect(143);
    other.lines(1).await;
    other.ends_by(Signal::SIGTERM).await.expect(143);
    assert_eq!(keys(&servers).await, [""; 0], "the leadership was not resigned");
}

#[tokio::test]
async fn after_a_loss_it_stops_the_command_and_leads_again() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.prom");
    let of_a_failed_job = "quorlock_run_last_failure_timestamp_seconds{resource=\"job\"} 1\n";
    fs::write(&path, of_a_failed_job).unwrap();
    let options = ["-t", "3s", "-v", "--metrics", "0", "--metrics-file", path.to_str().unwrap()];
    let leader = elect(&servers, &options, STAYS).start();
    let first = leader.lines(1).await.remove(0);
    each(&servers[..2], &["SET", "job", "another client", "PX", "3000"]).await;
    until("the end of the command", async || is_gone(&first)).await;
    assert_eq!(leader.stdout().lines().count(), 1, "it leads while another client has the lock");
    let second = leader.lines(2).await.remove(1);
    assert!(!is_gone(&second));
    assert!(leader.stderr().contains("campaigning again"), "{}", leader.stderr());
    // An alert would not end, as what leads has no success.
    let samples = scrape(&address(&leader).await, "/metrics");
    for metric in ["quorlock_run_command_stopped{", "quorlock_run_last_failure_timestamp_seconds{"] {
        assert!(!samples.contains(metric), "{samples}");
    }
    leader.ends_by(Signal::SIGTERM).await.expect(143);
}

#[tokio::test]
async fn the_longest_hold_ends_a_leadership_and_not_the_program() {
    let Some(servers) = servers(3).await else { return };
    let leader = elect(&servers, &["--max-hold", "600ms"], LEAD).prints(2).await;
    leader.signal(Signal::SIGTERM);
    // Between two leaderships there is no command.
    let code = leader.end().await.code;
    assert!(matches!(code, Some(143 | 76)), "{code:?}");
}

#[tokio::test]
async fn a_command_that_ends_by_itself_ends_the_candidacy() {
    let Some(servers) = servers(3).await else { return };
    elect(&servers, &[], "exit 7").end().await.expect(7);
    assert_eq!(keys(&servers).await, [""; 0], "the leadership was not resigned");
    Quorlock::new(["elect", "job", "--", "no-such-command"]).on(&servers).end().await.expect(127);
}

#[tokio::test]
async fn a_wait_that_was_set_ends() {
    let Some(servers) = servers(3).await else { return };
    let _leader = elect(&servers, &[], LEAD).prints(1).await;
    elect(&servers, &["--wait", "0s"], LEAD).end().await.expect(75);
}

fn is_ready(candidate: &str) -> bool {
    let answer = scrape(candidate, "/ready");
    let ready = answer.starts_with("HTTP/1.1 200 OK\r\n");
    assert!(ready || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    ready
}

#[tokio::test]
async fn the_leader_alone_is_ready() {
    let Some(servers) = servers(3).await else { return };
    let candidate = || elect(&servers, &["-v", "--metrics", "0"], LEAD);
    let leader: Running = candidate().prints(1).await;
    let of_leader = address(&leader).await;
    until("a leader that is ready", async || is_ready(&of_leader)).await;
    let other = candidate().start();
    let of_other = address(&other).await;
    has_waiter(&servers, "job").await;
    assert!(!is_ready(&of_other));
    leader.ends_by(Signal::SIGTERM).await.expect(143);
    until("the next leader", async || is_ready(&of_other)).await;
}
