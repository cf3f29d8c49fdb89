//! A holder on this host that was killed with SIGKILL: the next on this host need not wait for its TTL, of half a minute.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Servers, scaled, until};

use crate::guarding::guardian;
use crate::support::{Quorlock, Running, STAYS, has_waiter, is_gone, pause, run, send, servers, with_mounts};

/// Far less than the TTL, on a busy machine.
fn soon() -> Duration {
    scaled(Duration::from_secs(3)).min(Duration::from_secs(20))
}

fn kill_all<'a>(pids: impl IntoIterator<Item = &'a String>) {
    pids.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
}

/// Starts a command that waits for the lock, and returns it once it does.
async fn waiter(servers: &Servers) -> Running {
    let waiting = run(servers, &["-w", "forever"], "echo ran").start();
    has_waiter(servers, "job").await;
    waiting
}

async fn gets_it_soon(waiting: Running) {
    let clock = SystemClock::default();
    let began = clock.now();
    let ended = waiting.end().await.expect(0);
    let passed = clock.now().since(began);
    assert!(ended.stdout.contains("ran") && passed < soon(), "{passed:?}: {ended:#?}");
}

#[tokio::test]
async fn hold_and_run_and_all_their_processes_leave_the_lock_to_the_next() {
    let Some(servers) = servers(3).await else { return };
    let holder = Quorlock::new(["hold", "job"]).on(&servers).prints(4).await;
    let waiting = waiter(&servers).await;
    holder.signal(Signal::SIGKILL);
    gets_it_soon(waiting).await;
    // The guardian kills the command.
    let holder = run(&servers, &[], STAYS).prints(1).await;
    let waiting = waiter(&servers).await;
    holder.signal(Signal::SIGKILL);
    gets_it_soon(waiting).await;
    // All of them.
    let holder = run(&servers, &["--permits", "1"], STAYS).start();
    let mut pids = holder.lines(1).await;
    pids.extend([guardian(&holder).await, holder.pid()]);
    let waiting = run(&servers, &["--permits", "1", "-w", "forever"], "echo ran").start();
    pause(Duration::from_millis(300)).await;
    kill_all(pids.iter().rev());
    gets_it_soon(waiting).await;
}

#[tokio::test]
async fn what_the_command_started_keeps_the_lock_to_its_end() {
    let Some(servers) = servers(3).await else { return };
    // The kernel kills the command with `quorlock`, but not its child.
    let holder = run(&servers, &[], "sleep 1000 & echo $!; wait").start();
    let child = holder.lines(1).await;
    let pids = [guardian(&holder).await, holder.pid()];
    let mut waiting = waiter(&servers).await;
    // Stopped first, so that it does not start another guardian. A stopped guardian would not do: when `quorlock` ends, the
    // kernel sends SIGHUP to a group with a stopped process.
    holder.signal(Signal::SIGSTOP);
    kill_all(&pids);
    pause(Duration::from_millis(500)).await;
    assert!(!is_gone(&child[0]), "the child was killed");
    assert!(!waiting.has_ended(), "the lock was given away while the child runs");
    kill_all(&child);
    gets_it_soon(waiting).await;
}

/// How many marks of holders of this lock there are at a place.
fn marks(place: &str, name: &str) -> usize {
    let base = Path::new(place).join(format!("quorlock-{}", geteuid()));
    let folders = fs::read_dir(base).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.filter(|text| text.lines().any(|line| line == name)).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_dead_holder_has_left_on_this_host_is_gone_with_the_next_that_did_not_wait() {
    let Some(servers) = servers(3).await else { return };
    let name = format!("left/{}", std::process::id());
    let holder = Quorlock::new(["hold", &name]).on(&servers).prints(4).await;
    holder.signal(Signal::SIGKILL);
    assert!(holder.end().await.signal.is_some());
    assert_eq!(marks("/dev/shm", &name), 1);
    Quorlock::new(["release", "--force", "-y", &name]).on(&servers).end().await.expect(0);
    Quorlock::new(["run", &name, "--", "true"]).on(&servers).end().await.expect(0);
    assert_eq!(marks("/dev/shm", &name), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_next_holder_of_a_permit_removes_what_a_dead_one_has_left() {
    let Some(servers) = servers(3).await else { return };
    let name = format!("permit/{}", std::process::id());
    let job = ["run", "--permits", "1", &name, "--", "sh", "-c", "echo $$; exec sleep 1000"];
    let mut holder = Quorlock::new(job).on(&servers).start();
    let mut pids = holder.lines(1).await;
    pids.extend([guardian(&holder).await, holder.pid()]);
    kill_all(pids.iter().rev());
    until("its end", async || holder.has_ended()).await;
    let permit = format!("{name}#0");
    assert_eq!(marks("/dev/shm", &permit), 1);
    Quorlock::new(["release", "--force", "-y", &permit]).on(&servers).end().await.expect(0);
    let job = ["run", "-n", "--permits", "1", &name, "--", "true"];
    Quorlock::new(job).on(&servers).end().await.expect(0);
    assert_eq!(marks("/dev/shm", &permit), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn where_no_file_can_be_written_to_memory_a_holder_and_a_waiter_find_each_other_elsewhere() {
    let Some(servers) = servers(3).await else { return };
    for (what, script) in [
        ("read-only", "mount -t tmpfs -o ro none /dev/shm"),
        ("without inodes", "mount -t tmpfs -o nr_inodes=1 none /dev/shm"),
        ("full", "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"),
        ("another's", "mount -t tmpfs none /dev/shm && mkdir -m 777 /dev/shm/quorlock-0"),
    ] {
        let name = format!("elsewhere/{what}/{}", std::process::id());
        let hold = Quorlock::new(["hold", &name]).on(&servers);
        let Some(hold) = with_mounts(hold, script).await else { return };
        let holder = hold.prints(4).await;
        assert_eq!((marks("/dev/shm", &name), marks("/tmp", &name)), (0, 1), "{what}");
        // One that can use it, and so looks there first.
        let waiting =
            Quorlock::new(["run", "-w", "forever", &name, "--", "echo", "ran"]).on(&servers).start();
        has_waiter(&servers, &name).await;
        holder.signal(Signal::SIGKILL);
        gets_it_soon(waiting).await;
        assert_eq!(marks("/tmp", &name), 0, "{what}");
    }
}
