//! `run --at-least`: one run for each slot, on however many hosts it is started.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Servers, until};
use serde_json::Value;

use crate::support::{
    Ended, Quorlock, Running, STAYS, UNTIL_ENOUGH, each, events_among, json, kill_all, run, servers, status,
};

const HOSTS: usize = 10;
const SLOTS: usize = 10;

/// Runs the job on all hosts in one slot; half of them start after the others have ended, as with clocks that differ.
/// Returns how they ended.
async fn slot(servers: &Servers, options: &[&str], log: &Path) -> Vec<Ended> {
    let job = format!("echo ran >> {}; sleep 0.05", log.display());
    let mut ended = Vec::new();
    for _ in 0..2 {
        let hosts: Vec<_> = (0..HOSTS / 2).map(|_| run(servers, options, &job).start()).collect();
        for host in hosts {
            ended.push(host.end().await);
        }
    }
    ended
}

fn runs(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

async fn free(servers: &Servers) {
    Quorlock::new(["release", "--force", "--yes", "job"]).on(servers).end().await.expect(0);
}

#[tokio::test]
async fn ten_hosts_run_a_short_job_once_in_each_of_ten_slots() {
    let Some(servers) = servers(5).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for number in 1..=SLOTS {
        let hosts = slot(&servers, &["--at-least", "1h"], &log).await;
        let ran = hosts.iter().filter(|host| host.code == Some(0)).count();
        let late = hosts.iter().filter(|host| host.code == Some(75)).count();
        assert_eq!((ran, late), (1, HOSTS - 1), "slot {number}: {hosts:#?}");
        assert_eq!(runs(&log), number, "slot {number}");
        // Sooner than in an hour.
        free(&servers).await;
    }
}

/// It is too short for a renewal, so nothing else notices.
#[tokio::test]
async fn a_run_that_has_lost_its_lock_when_it_ends_says_so_and_leaves_the_slot_free() {
    let Some(servers) = servers(3).await else { return };
    for slot in [&["--once-per", "1h"][..], &[]] {
        let options = [slot, &["--json"]].concat();
        let mut running = run(&servers, &options, "echo started; cat").stdin_open().prints(1).await;
        each(&servers[..2], &["DEL", "job"]).await;
        running.close_stdin();
        let ended = running.end().await.expect(76);
        let [_, lost] = &events_among(&ended.stderr)[..] else { panic!("{ended:?}") };
        assert_eq!(
            (&lost["event"], &lost["reason"], &lost["signal"]),
            (&"lost".into(), &"forgotten_by_nodes".into(), &Value::Null),
            "{ended:?}"
        );
        run(&servers, slot, "true").end().await.expect(0);
        free(&servers).await;
    }
}

#[tokio::test]
async fn a_slot_of_the_calendar_has_one_run_and_ends_with_its_day() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let day = 24 * 3600 * 1000;
    let slot_length = ["--once-per", "400day"];
    let now = || SystemClock::default().wall().as_secs() * 1000;
    let slot_end = (now() / (400 * day) + 1) * 400 * day;
    let ends = async |resource: &str| {
        now() + status(&servers, resource).await["holder"]["remaining_ms"].as_u64().unwrap()
    };
    let hosts = slot(&servers, &slot_length, &log).await;
    let late = hosts.iter().filter(|host| host.code == Some(75)).count();
    assert_eq!((runs(&log), late), (1, HOSTS - 1), "{hosts:#?}");
    // The days are those of the host's time zone.
    let east = [&["run"], &slot_length[..], &["east", "--", "true"]].concat();
    Quorlock::new(east).on(&servers).env("TZ", "EAST-12").end().await.expect(0);
    for (name, slot_end) in [("job", slot_end), ("east", slot_end - day / 2)] {
        let ends = ends(name).await;
        let off = ends.abs_diff(slot_end) % (400 * day);
        assert!(off < 60_000, "the slot of `{name}` ends at {ends}, not at {slot_end}");
    }
    run(&servers, &["--once-per", "0s"], "true").end().await.expect(64);
    for no_days in ["1month", "1year", "36h"] {
        run(&servers, &["--once-per", no_days], "echo ran").end().await.expect(64).says("must be whole days");
    }
    run(&servers, &["--once-per", "1h", "--at-least", "1h"], "true").end().await.expect(64);
}

#[tokio::test]
async fn a_slot_of_days_is_refused_where_its_time_zone_is_not_known() {
    let Some(servers) = servers(3).await else { return };
    let in_zone =
        |zone: &str, slot: &str| run(&servers, &["--once-per", slot], "echo ran").env("TZ", zone).end();
    for zone in ["Bogus/Zone", ":Bogus/Zone", "/usr/share/zoneinfo/Bogus/Zone"] {
        let refused = in_zone(zone, "1day").await.expect(78);
        assert_eq!(refused.stdout, "", "the command was started");
        assert!(refused.stderr.contains(&format!("`{zone}` of TZ")), "{}", refused.stderr);
        assert!(refused.stderr.contains("tzdata"), "{}", refused.stderr);
    }
    // Hours are those of UTC, and nothing above has used the slot.
    in_zone("Bogus/Zone", "1h").await.expect(0);
    free(&servers).await;
    in_zone("", "1day").await.expect(0);
}

#[tokio::test]
async fn without_it_the_same_hosts_run_the_job_more_than_once() {
    let Some(servers) = servers(5).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    slot(&servers, &["--no-wait"], &log).await;
    assert!(runs(&log) >= 2, "a host that starts after the first has ended finds the lock free");
}

#[tokio::test]
async fn a_latecomer_sees_when_and_where_the_job_ran() {
    let Some(servers) = servers(3).await else { return };
    let slot = ["--at-least", "1h", "--label", "import"];
    run(&servers, &slot, "exit 7").end().await.expect(7);
    let explains = |text: &str| {
        assert!(text.contains("`job` stays taken "), "{text}");
        assert!(text.contains(" import ran at 20") && text.contains(" UTC for "), "{text}");
        assert!(text.contains("(exit 7)"), "{text}");
    };
    for options in [&["--at-least", "1h"][..], &["--no-wait"]] {
        let late = run(&servers, options, "echo ran").end().await.expect(75);
        assert_eq!(late.stdout, "");
        explains(&late.stderr);
    }
    let late = run(&servers, &["--json", "-n"], "echo ran").end().await.expect(75);
    let event = json(&late.stderr);
    assert_eq!((&event["event"], &event["retained"]), (&"held".into(), &true.into()));

    explains(&Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0).stdout);
    assert_eq!(status(&servers, "job").await["state"], "retained");

    let freed = Quorlock::new(["release", "--force", "--yes", "job"]).on(&servers).end().await.expect(0);
    assert!(freed.stderr.contains("no process holds it"), "{}", freed.stderr);
    assert!(!freed.stderr.contains("breaks a promise"), "{}", freed.stderr);
    assert!(!freed.stderr.contains("fencing token"), "no process has it: {}", freed.stderr);
    run(&servers, &slot, "echo again").end().await.expect(0);
}

#[tokio::test]
async fn r12_waiters_exit_when_the_run_has_ended() {
    let Some(servers) = servers(3).await else { return };
    let holder = run(&servers, &["--at-least", "1h"], UNTIL_ENOUGH).prints(1).await;
    let waiter = run(&servers, &["--at-least", "1h", "-w", "forever", "-vv"], "echo ran").waits().await;
    holder.enough().await.expect(0);
    let late = waiter.end().await.expect(75);
    assert_eq!(late.stdout, "");
}

/// Starts that waited through the run of their slot, although it lasted for longer, and one of the next slot.
#[tokio::test]
async fn r12_a_run_longer_than_its_slot_is_the_only_one_of_those_that_waited_through_it() {
    let Some(servers) = servers(5).await else { return };
    let (folder, clock) = (tempfile::tempdir().unwrap(), SystemClock::default());
    let log = folder.path().join("log");
    let slot = ["--at-least", "3s", "-w", "forever", "-v"];
    let script =
        format!("echo started; echo ran >> {}; while [ ! -e enough ]; do sleep 0.05; done", log.display());
    let holder = run(&servers, &slot, &script).prints(1).await;
    let since = clock.now();
    let script = format!("echo again >> {}", log.display());
    let waits = async |waiter: &Running| {
        until("the wait", async || waiter.stderr().contains("waiting in the queue")).await;
    };
    // Together, so that all of them start within the slot on a busy machine as well.
    let waiters: Vec<_> = (1..HOSTS).map(|_| run(&servers, &slot, &script).start()).collect();
    for waiter in &waiters {
        waits(waiter).await;
    }
    // A start counts for the slot until a second after it.
    let over = async || clock.now().since(since).as_millis() > 4_100;
    until("the end of the slot", over).await;
    let next = run(&servers, &slot, &script).start();
    waits(&next).await;
    holder.enough().await.expect(0);
    for waiter in waiters {
        waiter.end().await.expect(75);
    }
    next.end().await.expect(0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "ran\nagain\n");
}

#[tokio::test]
async fn a_host_that_crashes_leaves_the_slot_to_another() {
    let Some(servers) = servers(3).await else { return };
    let options = ["--at-least", "1h", "-t", "2s"];
    let crashes = run(&servers, &options, STAYS).prints(1).await;
    let waiter = run(&servers, &[&options[..], &["-w", "forever", "-vv"]].concat(), "echo ran").waits().await;
    crashes.signal(Signal::SIGKILL);
    assert_eq!(waiter.end().await.expect(0).stdout, "ran\n");
}

#[tokio::test]
async fn when_the_slot_is_over_the_job_runs_again() {
    let Some(servers) = servers(3).await else { return };
    for number in 1..=2 {
        // Without the option a client waits for the end of the slot.
        let options: &[&str] = if number == 1 { &["--at-least", "2s"] } else { &["-w", "forever"] };
        assert_eq!(run(&servers, options, "echo ran").end().await.expect(0).stdout, "ran\n");
    }
    // A job that lasts for longer than its slot leaves nothing behind.
    run(&servers, &["--at-least", "1ms"], "sleep 0.05").end().await.expect(0);
    run(&servers, &["--no-wait"], "true").end().await.expect(0);
}

#[tokio::test]
async fn a_run_that_ends_without_a_quorum_says_that_it_may_be_run_again() {
    let Some(servers) = servers(3).await else { return };
    let script = "echo started; while [ ! -e enough ]; do sleep 0.05; done; exit 7";
    let running = run(&servers, &["--at-least", "1h", "-t", "9s"], script).prints(1).await;
    kill_all(&servers[..2]);
    running.enough().await.expect(7).says("other hosts may run it again in this slot");
}

#[tokio::test]
async fn what_cannot_stay_taken_is_refused() {
    for option in [&["--shared"][..], &["--also", "other"]] {
        let words = [&["run", "--at-least", "1h"], option, &["job", "--", "true"]].concat();
        let refused = Quorlock::new(words).end().await.expect(64);
        assert!(refused.stderr.contains("--at-least") && refused.stderr.contains(option[0]), "{refused:?}");
    }
    // No server is asked, and the command does not run.
    let redis: &[&str] = &["redis://127.0.0.1:1"];
    let zookeeper: &[&str] = &["zookeeper://127.0.0.1:1/locks"];
    for (nodes, options, reason) in [
        (redis, &["--at-least", "36500d"][..], "for ten years at most"),
        (redis, &["--once-per", "36500d"], "for ten years at most"),
        (redis, &["--at-least", "36500d", "--permits", "2"], "for ten years at most"),
        (zookeeper, &["--at-least", "1h"], "does not support the transfer of a lock to another token"),
    ] {
        let words = [&["run"], options, &["--nodes"], nodes, &["job", "--", "echo", "ran"]].concat();
        let refused = Quorlock::new(words).end().await.expect(64).says("cannot stay taken after the work");
        assert!(refused.stderr.contains(reason) && refused.stdout.is_empty(), "{refused:?}");
    }
}
