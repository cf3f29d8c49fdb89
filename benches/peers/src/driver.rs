//! A program that drives one subject, as a child process.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::lineup::Start;
use crate::order::{Findings, Order, Ready};

/// Longer than quorlock waits for servers that have just started.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Time for one order beyond what it asks for: waiters are still served when the time is over.
const LIMIT: Duration = Duration::from_secs(45);

/// Killed with SIGKILL when dropped.
pub(crate) struct Driver {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    pub(crate) version: String,
}

impl Driver {
    pub(crate) async fn start(start: &Start, addresses: &[String]) -> Result<Driver> {
        let mut child = Command::new(&start.program)
            .args(&start.arguments)
            .args(addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", start.program.display()))?;
        let orders = child.stdin.take().context("it has no input")?;
        let mut answers = BufReader::new(child.stdout.take().context("it has no output")?).lines();
        let Ready { version } =
            timeout(START_LIMIT, answer(&mut answers)).await.context("it does not start")??;
        Ok(Driver { child, orders, answers, version })
    }

    pub(crate) async fn obey(&mut self, order: &Order) -> Result<Findings> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.orders.write_all(line.as_bytes()).await?;
        let limit = LIMIT + Duration::from_millis(order.millis);
        timeout(limit, answer(&mut self.answers)).await.context("it does not end")?
    }

    /// The processor time that it has used so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.child.id().map_or(0.0, cpu_seconds)
    }
}

async fn answer<T: DeserializeOwned>(answers: &mut Lines<BufReader<ChildStdout>>) -> Result<T> {
    let Some(line) = answers.next_line().await? else { bail!("it has ended") };
    serde_json::from_str(&line).with_context(|| format!("unexpected line {line:?}"))
}

/// User and system time of a process and its threads, in steps of 10 ms; zero without `/proc`.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    // The program name may contain any characters; it ends at the last parenthesis.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
