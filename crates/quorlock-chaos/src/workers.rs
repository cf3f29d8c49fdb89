//! The worker processes of a run: started, stopped, killed and replaced.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock::protocol::Moment;
use quorlock::runtime;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_history::What;
use quorlock_servers::watched_group;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::record::Recorder;
use crate::worker::{Orders, Status};

/// All workers, numbered from 0.
pub(crate) struct Workers {
    slots: Vec<Slot>,
    recorder: Recorder,
    logs: PathBuf,
}

struct Slot {
    orders: Orders,
    running: Mutex<Option<Running>>,
    reports: Arc<runtime::Mutex<Reports>>,
}

struct Running {
    child: Child,
    /// A worker that a fault has stopped does not notice that its stdin has ended.
    orders: Option<ChildStdin>,
}

/// What the workers of one slot have reported.
#[derive(Default)]
struct Reports {
    lives: u32,
    /// The sum of the killed workers.
    past: Status,
    present: Status,
}

/// Returns the name of a worker in records, which number workers from 1.
pub(crate) fn worker_name(number: usize) -> String {
    format!("worker-{}", number + 1)
}

impl Workers {
    /// Prepares the slots, and starts no worker.
    pub(crate) fn new(orders: Vec<Orders>, recorder: Recorder, logs: PathBuf) -> Workers {
        let slot = |orders| Slot { orders, running: Mutex::default(), reports: Arc::default() };
        Workers { slots: orders.into_iter().map(slot).collect(), recorder, logs }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Starts a worker in a free slot.
    pub(crate) async fn start(&self, number: usize) -> io::Result<()> {
        let slot = self.slot(number)?;
        let life = {
            let mut reports = slot.reports.lock();
            reports.lives += 1;
            reports.archive();
            reports.lives
        };
        let orders = Orders { life, ..slot.orders.clone() };
        let log = File::options().create(true).append(true).open(self.log(number))?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .process_group(watched_group())
            .spawn()?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a worker without stdin and stdout"));
        };
        stdin.write_all(format!("{}\n", serde_json::to_string(&orders)?).as_bytes()).await?;
        let reports = slot.reports.clone();
        // Ends with the worker.
        drop(tokio::spawn(async move { listen(stdout, &reports).await }));
        *slot.running.lock().await = Some(Running { child, orders: Some(stdin) });
        Ok(())
    }

    /// Sends SIGKILL and waits for the exit. The record marks the worker as crashed before that.
    pub(crate) async fn kill(&self, number: usize) -> io::Result<()> {
        let running = self.slot(number)?.running.lock().await.take();
        self.recorder.record(What::Crashed { client: worker_name(number).as_str().into() });
        match running {
            Some(mut running) => running.child.kill().await,
            None => Ok(()),
        }
    }

    /// Sends SIGSTOP.
    pub(crate) async fn stop(&self, number: usize) -> io::Result<()> {
        self.signal(number, Signal::SIGSTOP).await
    }

    /// Sends SIGCONT.
    pub(crate) async fn go_on(&self, number: usize) -> io::Result<()> {
        self.signal(number, Signal::SIGCONT).await
    }

    /// Returns how a worker has exited, if one has.
    pub(crate) async fn exited(&self) -> Option<String> {
        for (number, slot) in self.slots.iter().enumerate() {
            let mut running = slot.running.lock().await;
            let status = running.as_mut().and_then(|running| running.child.try_wait().ok().flatten());
            if let Some(status) = status {
                return Some(self.how_it_ended(number, status));
            }
        }
        None
    }

    /// Returns a message with the last line of its log, which says why.
    fn how_it_ended(&self, number: usize, status: ExitStatus) -> String {
        let name = worker_name(number);
        let log = fs::read(self.log(number)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().next_back().map_or_else(String::new, |line| format!(": {line}"));
        format!("{name} ended with {status}{last}")
    }

    fn log(&self, number: usize) -> PathBuf {
        self.logs.join(format!("{}.log", worker_name(number)))
    }

    /// Makes all workers finish their work and exit. Returns a message for each that did not within `patience`.
    pub(crate) async fn finish(&self, patience: std::time::Duration) -> Vec<String> {
        for slot in &self.slots {
            if let Some(running) = slot.running.lock().await.as_mut() {
                running.orders = None;
            }
        }
        let clock = SystemClock::default();
        let end = clock.now() + patience;
        let mut odd = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            let Some(mut running) = slot.running.lock().await.take() else { continue };
            match ended_by(end, &mut running.child).await {
                Some(Ok(status)) if status.success() => {}
                Some(Ok(status)) => odd.push(self.how_it_ended(number, status)),
                Some(Err(error)) => odd.push(format!("{}: {error}", worker_name(number))),
                None => odd.push(format!("{} did not end within {patience:?}", worker_name(number))),
            }
        }
        odd
    }

    /// Returns the status of all workers.
    pub(crate) fn status(&self) -> Vec<Status> {
        let status = |slot: &Slot| {
            let reports = slot.reports.lock();
            reports.past.and(reports.present)
        };
        self.slots.iter().map(status).collect()
    }

    async fn signal(&self, number: usize, signal: Signal) -> io::Result<()> {
        let running = self.slot(number)?.running.lock().await;
        // The child has not been waited for, so its process id cannot have been reused.
        let Some(pid) = running.as_ref().and_then(|running| running.child.id()) else { return Ok(()) };
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), signal).map_err(io::Error::from)
    }

    fn slot(&self, number: usize) -> io::Result<&Slot> {
        self.slots.get(number).ok_or_else(|| io::Error::other(format!("no worker {number}")))
    }
}

/// Waits for the end of a process. `None` if it has not ended by then; one that has is seen also later, when others
/// took longer.
async fn ended_by(end: Moment, child: &mut Child) -> Option<io::Result<ExitStatus>> {
    tokio::select! {
        biased;
        ended = child.wait() => Some(ended),
        () = SystemClock::default().sleep_until(end) => None,
    }
}

async fn listen(stdout: ChildStdout, reports: &runtime::Mutex<Reports>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(status) = serde_json::from_str(&line) {
            reports.lock().present = status;
        }
    }
}

impl Reports {
    fn archive(&mut self) {
        self.past = self.past.and(self.present);
        self.present = Status::default();
    }
}

impl Status {
    /// Adds the status of two workers, or of two lives of one worker.
    pub(crate) fn and(self, other: Status) -> Status {
        Status {
            acquired: self.acquired + other.acquired,
            not_acquired: self.not_acquired + other.not_acquired,
            lost: self.lost + other.lost,
            overlaps: self.overlaps + other.overlaps,
            fresh: self.fresh.max(other.fresh),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorlock_servers::{eventually, patience};

    use super::*;

    #[tokio::test]
    async fn a_worker_that_has_ended_is_not_missed_after_one_that_takes_too_long() {
        for _ in 0..20 {
            let mut child = Command::new("true").spawn().unwrap();
            let stat = format!("/proc/{}/stat", child.id().unwrap());
            let is_zombie = async || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
            eventually("the end of a process", patience(), is_zombie).await.unwrap();
            let ended = ended_by(Moment::ORIGIN, &mut child).await;
            assert!(ended.is_some_and(|ended| ended.is_ok()), "it is said not to have ended");
        }
    }
}
