//! The library's metrics, in the text format of Prometheus.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::process::Process;

/// Gives each process a recorder of its own.
struct PerProcess;

fn recorder() -> &'static PrometheusRecorder {
    Process::here().recorder.get_or_init(|| {
        let buckets = quorlock::metrics::ALL.iter().filter(|metric| !metric.buckets.is_empty());
        let builder = buckets.fold(PrometheusBuilder::new(), |builder, metric| {
            // It refuses an empty list only.
            builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)
                .unwrap_or_else(|_| PrometheusBuilder::new())
        });
        builder.build_recorder()
    })
}

impl Recorder for PerProcess {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        recorder().describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        recorder().describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        recorder().describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        recorder().register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        recorder().register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        recorder().register_histogram(key, metadata)
    }
}

/// Counts from now on, in coordinators that are made from now on.
#[pyfunction]
pub(crate) fn enable_metrics() -> PyResult<()> {
    metrics::set_global_recorder(PerProcess)
        .map_err(|_| PyRuntimeError::new_err("metrics are enabled already"))
}

/// Returns the metrics of this process. Also to be called now and then, so that histograms do not grow.
#[pyfunction]
pub(crate) fn metrics_text(py: Python<'_>) -> String {
    py.detach(|| recorder().handle().render())
}
