//! Sends the spans of a contended lock to an OpenTelemetry collector.
//!
//! ```sh
//! QUORLOCK_NODES=redis://10.0.0.1,redis://10.1.0.1,redis://10.2.0.1 cargo run -- worker-1
//! ```
//!
//! The collector is at `OTEL_EXPORTER_OTLP_ENDPOINT`, `http://localhost:4317` unless set. `scripts/pictures trace` runs two of
//! these and draws what a collector received.

use std::error::Error;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use quorlock::{Coordinator, RestartGuard};
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, info_span};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "worker".to_owned());
    let nodes = std::env::var("QUORLOCK_NODES")?;

    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(SpanExporter::builder().with_tonic().build()?)
        .with_resource(Resource::builder().with_service_name(name.clone()).build())
        .build();
    // The exporter's own connection emits spans as well, which would never end.
    let wanted = Targets::new()
        .with_target("quorlock", LevelFilter::TRACE)
        .with_target("quorlock_otlp", LevelFilter::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("quorlock"));
    tracing_subscriber::registry().with(layer.with_filter(wanted)).try_init()?;

    let coordinator = Coordinator::builder()
        .nodes(nodes.split(','))
        .label(name)
        // Safe only for servers that have just started for the first time.
        .restart_guard(RestartGuard::Off)
        .build()?;
    job(&coordinator).instrument(info_span!("job")).await?;

    // Sends what is left.
    tokio::task::spawn_blocking(move || provider.shutdown()).await??;
    Ok(())
}

async fn job(coordinator: &Coordinator) -> Result<(), Box<dyn Error + Send + Sync>> {
    let lease = coordinator.lock("orders/42").acquire().await?;
    println!("the lock is held");
    tokio::time::sleep(Duration::from_millis(300)).instrument(info_span!("work")).await;
    lease.release().instrument(info_span!("release")).await?;
    Ok(())
}
