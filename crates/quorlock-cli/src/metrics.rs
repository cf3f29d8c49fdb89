//! `--metrics` and `--metrics-file`: what the library counts, and how the command fares, for
//! Prometheus.
//!
//! A thread of its own answers scrapes and writes the file, so that neither delays the renewal of
//! the lock nor what watches over the command; it ends with the program, which does not wait for it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::metrics::{counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use quorlock::runtime::{Clock as _, SystemClock};

use crate::failure::Failure;
use crate::report::Reason;

mod endpoint;
mod textfile;

use textfile::Textfile;

/// Where metrics go.
#[derive(clap::Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus over HTTP, at /metrics of this address or port; a port alone is
    /// one of 127.0.0.1 [default: off]
    #[arg(long, hide_short_help = true, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Write them to this file every 5 s and at the end, for the textfile collector of the node
    /// exporter: for commands that end between two scrapes [default: off]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
}

/// Metrics of this program's own. Each counts since it started.
const WAITED: &str = "quorlock_run_waited_seconds";
const STARTED: &str = "quorlock_run_start_timestamp_seconds";
const ENDED: &str = "quorlock_run_end_timestamp_seconds";
const COMMAND_CODE: &str = "quorlock_run_command_exit_code";
const STOPPED: &str = "quorlock_run_command_stopped";
const CODE: &str = "quorlock_run_exit_code";

/// One of the library's, which counts the losses that it sees by itself.
const LOST: &str = "quorlock_lost_total";

/// How long before the file is written again.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Does the `work` of a verb that takes the lock of `resource`, and counts if `args` ask for it.
/// Whatever cannot work there is said before a lock is asked for.
pub(crate) fn counted(
    args: &MetricsArgs,
    resource: &str,
    work: impl FnOnce() -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    if args.metrics.is_none() && args.metrics_file.is_none() {
        return work();
    }
    let listener = args.metrics.as_deref().map(listen).transpose()?;
    // Before there is a coordinator, which counts for the recorder that it finds.
    let handle = install(resource).map_err(Failure::to("start counting"))?;
    describe_own();
    gauge!(STARTED).set(SystemClock::default().wall());
    let file = args.metrics_file.as_deref().map(|path| create(path, &handle)).transpose()?;
    endpoint::serve(listener, handle, file.clone()).map_err(Failure::to("serve metrics"))?;
    let outcome = work();
    gauge!(CODE).set(outcome.as_ref().map_or_else(Failure::code, |code| *code));
    gauge!(ENDED).set(SystemClock::default().wall());
    if let Some(file) = file {
        file.finish();
    }
    outcome
}

/// The lock is there.
pub(crate) fn waited(waited: Duration) {
    gauge!(WAITED).set(waited);
}

/// The command has ended, by itself or because it lost its lock.
pub(crate) fn command_ended(code: Option<u8>) {
    gauge!(STOPPED).set(u8::from(code.is_none()));
    if let Some(code) = code {
        gauge!(COMMAND_CODE).set(code);
    }
}

/// The lock was lost to its command, and was given back before its end: so the library, for which that
/// is a release like any other, has not counted a loss.
pub(crate) fn lost(reason: Reason) {
    counter!(LOST, "reason" => reason.label()).increment(1);
}

fn describe_own() {
    describe_gauge!(STARTED, "When quorlock run started");
    describe_gauge!(ENDED, "When quorlock run ended");
    describe_gauge!(WAITED, "How long quorlock run waited for its lock");
    describe_gauge!(
        COMMAND_CODE,
        "The exit code of the command, or 128 and the number of the signal that ended it"
    );
    describe_gauge!(
        STOPPED,
        "1 if the command was stopped because its lock was lost, 0 if it ended by itself"
    );
    describe_gauge!(CODE, "The exit code of quorlock run, as its help lists them");
}

fn create(path: &Path, handle: &PrometheusHandle) -> Result<Textfile, Failure> {
    Textfile::create(path, handle).map_err(|error| {
        let cure = "give another path to --metrics-file, in a folder that exists and may be written to";
        Failure::Config(format!("cannot write metrics to {}: {error}; {cure}", path.display()))
    })
}

/// Listens at an address, or at a port of this machine that others cannot reach.
fn listen(address: &str) -> Result<TcpListener, Failure> {
    let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
    let addresses: io::Result<Vec<SocketAddr>> = match port {
        Ok(port) => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
        Err(_) => address.to_socket_addrs().map(Iterator::collect),
    };
    let listener = addresses.and_then(|addresses| TcpListener::bind(&*addresses));
    listener.map_err(|error| {
        let cure = "give another address to --metrics, such as 127.0.0.1:9464, or a port";
        Failure::Config(format!("cannot serve metrics at {address}: {error}; {cure}"))
    })
}

/// Counts from now on. One program has one resource, and files of several are read together: so each
/// sample names it.
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
