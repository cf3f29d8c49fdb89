//! `--metrics` and `--metrics-file`: the library's metrics and those of the run, for Prometheus.
//!
//! A thread of its own answers scrapes and writes the file, so that neither delays the renewal of the lock or the
//! watch over the command; it ends with the program, which does not wait for it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::metrics::{counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use quorlock::runtime::Mutex;
use quorlock::{
    doctor::{Report, Standing, Subject},
    runtime::{Clock as _, SystemClock},
};

use crate::exit;
use crate::failure::Failure;
use crate::report::Reason;
use crate::wanted::LeaseWatch;

mod endpoint;
mod textfile;

use textfile::Textfile;

/// Where metrics go.
#[derive(clap::Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// Serve Prometheus metrics over HTTP, at /metrics of this address; a port alone listens on
    /// 127.0.0.1. Also /ready, for probes: 200 while the lock is held, else 503 [default: off]
    #[arg(long, hide_short_help = true, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Write the metrics to this file every 5 s and at the end, for the textfile collector of the node
    /// exporter: for commands that end between two scrapes [default: off]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Where the address comes from, as errors begin.
    #[arg(skip)]
    pub(crate) metrics_from: String,
    /// The same of the file.
    #[arg(skip)]
    pub(crate) metrics_file_from: String,
}

const WAITED: &str = "quorlock_run_waited_seconds";
const STARTED: &str = "quorlock_run_start_timestamp_seconds";
const ENDED: &str = "quorlock_run_end_timestamp_seconds";
const COMMAND_CODE: &str = "quorlock_run_command_exit_code";
const STOPPED: &str = "quorlock_run_command_stopped";
const CODE: &str = "quorlock_run_exit_code";
const SUCCEEDED: &str = "quorlock_run_last_success_timestamp_seconds";
const FAILED: &str = "quorlock_run_last_failure_timestamp_seconds";

/// What the file of a job keeps over runs: a run that is refused, because another host has the lock, says nothing of
/// the job. What leads or holds as long as it runs has no success that would end a failure: its next start does.
pub(crate) const KEPT_OF_JOBS: [&str; 2] = [SUCCEEDED, FAILED];

/// The metrics of the run itself, all gauges: name, unit and meaning.
pub(crate) const OWN: [(&str, &str, &str); 8] = [
    (STARTED, "s", "When quorlock run started, since 1970"),
    (WAITED, "s", "How long quorlock run waited for its lock; only once it has the lock"),
    (
        COMMAND_CODE,
        "",
        "The exit code of the command, or 128 + N if signal N ended it; only if it was not stopped",
    ),
    (STOPPED, "", "1 if the command was stopped because its lock was lost, 0 if it ended on its own"),
    (CODE, "", "The exit code of quorlock run, as its help lists them"),
    (ENDED, "s", "When quorlock run ended, since 1970; only then"),
    (
        SUCCEEDED,
        "s",
        "When the command last ended with 0 and its lock here, since 1970; --metrics-file keeps it over runs",
    ),
    (
        FAILED,
        "s",
        "When it last ended otherwise, lost its lock or could not begin, unless the lock was held, since 1970; kept as well",
    ),
];

/// The metrics of `quorlock doctor`, all gauges: name, unit, labels and meaning.
pub(crate) const OF_DOCTOR: [(&str, &str, &str, &str); 4] = [
    (
        FINDING,
        "",
        "`severity`, `finding`, `node`",
        "1 for each finding; node is empty if it is of the deployment",
    ),
    (VOTES, "", "`node`", "1 if the node votes, 0 if not"),
    (CHECK_CODE, "", "", "The exit code of quorlock doctor, as its help lists them"),
    (CHECKED, "s", "", "When the nodes were checked, since 1970"),
];

const FINDING: &str = "quorlock_doctor_finding";
const VOTES: &str = "quorlock_doctor_node_votes";
const CHECK_CODE: &str = "quorlock_doctor_exit_code";
const CHECKED: &str = "quorlock_doctor_timestamp_seconds";

/// A metric of the library, which counts the losses that the library sees itself.
const LOST: &str = "quorlock_lost_total";

/// How often the file is written.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Does the `work` of a verb that acquires the lock `resource`, with metrics if `args` ask for them. Errors of the
/// address or the file are returned before the lock is asked for. The file keeps the metrics `kept` over runs.
pub(crate) fn counted(
    args: &MetricsArgs,
    (resource, kept): (&str, &[&'static str]),
    work: impl FnOnce() -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    if args.metrics.is_none() && args.metrics_file.is_none() {
        return work();
    }
    let listener = args.metrics.as_deref().map(|address| listen(address, &args.metrics_from)).transpose()?;
    // Before there is a coordinator, which keeps the recorder that it finds.
    let handle = install(resource).map_err(Failure::to("start counting"))?;
    for (name, _, help) in OWN {
        describe_gauge!(name, help);
    }
    gauge!(STARTED).set(SystemClock::default().wall());
    if let Some(path) = &args.metrics_file {
        for name in kept.iter().copied() {
            if let Some(value) = textfile::kept(path, name, resource) {
                gauge!(name).set(value);
            }
        }
    }
    let file = args
        .metrics_file
        .as_deref()
        .map(|path| create(path, &handle, &args.metrics_file_from))
        .transpose()?;
    endpoint::serve(listener, handle, file.clone()).map_err(Failure::to("serve metrics"))?;
    let outcome = work();
    gauge!(CODE).set(outcome.as_ref().map_or_else(Failure::code, |code| *code));
    if outcome.as_ref().is_err_and(Failure::is_of_the_job) {
        gauge!(FAILED).set(SystemClock::default().wall());
    }
    gauge!(ENDED).set(SystemClock::default().wall());
    if let Some(file) = file {
        file.finish();
    }
    outcome
}

/// The lease under which the work runs, if it does, for [`is_held`].
static HELD: Mutex<Option<LeaseWatch>> = Mutex::new(None);

/// Says under which lease the work runs from now on, or that it has ended.
pub(crate) fn holds(lease: Option<LeaseWatch>) {
    *HELD.lock() = lease;
}

/// Whether the work runs, and its lease is valid.
fn is_held() -> bool {
    let held = HELD.lock();
    held.as_ref().is_some_and(|lease| lease.check().is_ok())
}

/// Records that the lock was acquired.
pub(crate) fn waited(waited: Duration) {
    gauge!(WAITED).set(waited);
}

/// Records the last end of the command, `None` if it was stopped because of its lock, and the exit code of the run,
/// whose release may have found the lock lost.
pub(crate) fn command_ended(command: Option<u8>, code: u8) {
    gauge!(STOPPED).set(u8::from(command.is_none()));
    gauge!(if code == exit::SUCCESS { SUCCEEDED } else { FAILED }).set(SystemClock::default().wall());
    if let Some(command) = command {
        gauge!(COMMAND_CODE).set(command);
    }
}

/// Counts a lock that was running out under its command and was released in time: a release for the library, which
/// has not counted a loss.
pub(crate) fn lost(reason: Reason) {
    counter!(LOST, "reason" => reason.label()).increment(1);
}

/// Writes the result of a check-up to the file at `path`: not the metrics of the library, whose connections it does not
/// use.
pub(crate) fn of_doctor(path: &Path, examination: &Report, code: u8) -> Result<(), Failure> {
    let recorder = PrometheusBuilder::new().build_recorder();
    ::metrics::with_local_recorder(&recorder, || {
        for (name, _, _, help) in OF_DOCTOR {
            describe_gauge!(name, help);
        }
        for finding in &examination.findings {
            let node = match &finding.subject {
                Subject::Node(node) => node.to_string(),
                Subject::Deployment | _ => String::new(),
            };
            let (severity, check) = (finding.severity.word(), finding.check.code());
            gauge!(FINDING, "severity" => severity, "finding" => check, "node" => node).set(1);
        }
        for node in &examination.nodes {
            let votes = u8::from(node.standing == Standing::Votes);
            gauge!(VOTES, "node" => node.name.to_string()).set(votes);
        }
        gauge!(CHECK_CODE).set(code);
        gauge!(CHECKED).set(SystemClock::default().wall());
    });
    textfile::write(path, &recorder.handle()).map_err(|error| unwritable(path, &error, ""))
}

fn create(path: &Path, handle: &PrometheusHandle, from: &str) -> Result<Textfile, Failure> {
    Textfile::create(path, handle).map_err(|error| unwritable(path, &error, from))
}

fn unwritable(path: &Path, error: &io::Error, from: &str) -> Failure {
    let cure = "give --metrics-file the path of a regular file in a folder that exists and is writable; for no metrics, leave \
                it out and QUORLOCK_METRICS_FILE empty";
    Failure::Config(format!("{from}cannot write metrics to {}: {error}; {cure}", path.display()))
}

/// Listens on an address, or on a port of 127.0.0.1.
fn listen(address: &str, from: &str) -> Result<TcpListener, Failure> {
    let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
    let addresses: io::Result<Vec<SocketAddr>> = match port {
        Ok(port) => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
        Err(_) => address.to_socket_addrs().map(Iterator::collect),
    };
    let listener = addresses.and_then(|addresses| TcpListener::bind(&*addresses));
    listener.map_err(|error| {
        let cure = "give another address to --metrics, such as 127.0.0.1:9464, or a port";
        Failure::Config(format!("{from}cannot serve metrics at {address}: {error}; {cure}"))
    })
}

/// Installs the recorder. Each sample has the label `resource`: a program has one resource, and a collector reads the
/// files of several.
fn install(resource: &str) -> io::Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new().add_global_label("resource", resource);
    for metric in quorlock::metrics::ALL.iter().filter(|metric| !metric.buckets.is_empty()) {
        let name = Matcher::Full(metric.name.to_owned());
        builder = builder.set_buckets_for_metric(name, metric.buckets).map_err(io::Error::other)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    ::metrics::set_global_recorder(recorder).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(handle)
}
