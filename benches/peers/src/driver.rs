//! A program that drives one subject, as a child process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::order::{Findings, Order, Ready};
use crate::scenarios::{Language, Subject};

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

/// The program and the arguments that start a subject, before the addresses; or why its driver has not been built.
pub(crate) fn command(subject: &Subject, built: &Path) -> Result<(PathBuf, Vec<OsString>)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (language, program, arguments): (_, _, Vec<OsString>) = match subject.language {
        Language::Rust => ("rust", std::env::current_exe()?, vec!["drive".into()]),
        Language::Go => ("go", built.join("go/driver"), Vec::new()),
        Language::Node => ("node", built.join("node/node"), vec![sources.join("node/driver.mjs").into()]),
        Language::Python => {
            let driver = sources.join("python/driver.py");
            ("python", built.join("python/bin/python"), vec!["-B".into(), driver.into()])
        }
        Language::Java => {
            let jars = built.join("java/jars/*");
            ("java", built.join("java/java"), vec!["-cp".into(), jars.into(), "Driver".into()])
        }
    };
    if !program.exists() {
        let why = fs::read_to_string(built.join(language).with_extension("skipped"));
        bail!(
            why.map_or(format!("its driver in {language} has not been built"), |why| why.trim().to_owned())
        );
    }
    Ok((program, arguments.into_iter().chain([subject.driver.into()]).collect()))
}

impl Driver {
    pub(crate) async fn start(
        (program, arguments): &(PathBuf, Vec<OsString>),
        addresses: &[String],
    ) -> Result<Driver> {
        let mut child = Command::new(program)
            .args(arguments)
            .args(addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let orders = child.stdin.take().context("it has no input")?;
        let mut answers = BufReader::new(child.stdout.take().context("it has no output")?).lines();
        let Ready { version } =
            timeout(START_LIMIT, answer(&mut answers)).await.context("it does not start")??;
        Ok(Driver { child, orders, answers, version })
    }

    pub(crate) async fn obey(&mut self, order: &Order) -> Result<Findings> {
        self.orders.write_all((serde_json::to_string(order)? + "\n").as_bytes()).await?;
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
