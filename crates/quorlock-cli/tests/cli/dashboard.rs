//! A real Prometheus answers each query of the dashboard with data, while nodes fail.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, Wait};
use quorlock_testkit::{Servers, eventually, patience, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{self, freeze, run, servers, skips, thaw};

/// So short that the test has many samples after a few seconds.
const CONFIGURATION: &str = "
global: { scrape_interval: 250ms, scrape_timeout: 250ms }
scrape_configs:
  - job_name: app
    metrics_path: /app
    static_configs: [{ targets: ['TARGET'] }]
  - job_name: cron
    metrics_path: /job.prom
    static_configs: [{ targets: ['TARGET'] }]
";

/// The longest TTL, and so the time for which a restarted node does not vote.
const TTL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_has_data_for_each_panel() {
    let Some(servers) = servers(3).await else { return };
    let exporter = Exporter::start();
    let Some(prometheus) = Prometheus::start(exporter.address).await else { return };
    let file = exporter.folder.path().join("job.prom");
    run(&servers, &["--metrics-file", file.to_str().unwrap()], "true").end().await.expect(0);

    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    let start = SystemClock::default().wall();
    let answered = async {
        let mut left = queries;
        let mut last = Vec::new();
        let done = eventually("data for each panel", patience(), async || {
            left.retain(|(_, query)| !prometheus.has_data(query, start));
            last = left.iter().map(|(panel, query)| format!("{panel}: {query}")).collect();
            left.is_empty()
        });
        let done = done.await;
        done.unwrap_or_else(|error| panic!("{error}; none for {last:#?}"));
    };
    tokio::select! {
        () = answered => {}
        () = work(exporter.coordinator(&servers)) => unreachable!("it works forever"),
        () = failure(&servers) => unreachable!("there is always trouble"),
    }
    prometheus.end().await;
}

/// Returns the title of the panel and the query, for all queries of the dashboard.
fn queries() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability/quorlock-dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            // What Grafana replaces.
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$job", ".*").replace("$instance", ".*");
            let query = query.replace("$__rate_interval", "4s").replace("$__range", "1m");
            assert!(!query.contains('$'), "{query}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    queries
}

/// Locks one name from four tasks, which hand it to each other, and another one for long enough to renew it.
async fn work(coordinator: Coordinator) {
    let orders = async |_| {
        let lock = coordinator.lock("orders").metrics_class("orders").ttl(TTL).wait(Wait::UpTo(TTL));
        loop {
            if let Ok(lease) = lock.acquire().await {
                pause(10).await;
                drop(lease.release().await);
            }
            pause(1).await;
        }
    };
    let leader = async {
        let lock = coordinator.lock("leader").ttl(TTL).wait(Wait::UpTo(TTL));
        loop {
            if let Ok(lease) = lock.acquire().await {
                pause(1500).await;
                drop(lease.release().await);
            }
            pause(1).await;
        }
    };
    futures::join!(leader, orders(1), orders(2), orders(3), orders(4));
}

/// Restarts one node without its data, then lets a quorum hang for longer than a lease lives, and repeats.
async fn failure(servers: &Servers) {
    loop {
        pause(2000).await;
        servers[2].restart_empty().await.unwrap();
        pause(2500).await;
        freeze(&servers[..2]);
        pause(2000).await;
        thaw(&servers[..2]);
    }
}

async fn pause(millis: u64) {
    support::pause(Duration::from_millis(millis)).await;
}

/// A program that uses the library, and the folder of a textfile collector, on one port.
struct Exporter {
    address: SocketAddr,
    folder: Arc<TempDir>,
    recorder: metrics_exporter_prometheus::PrometheusRecorder,
}

impl Exporter {
    fn start() -> Exporter {
        let mut builder = PrometheusBuilder::new();
        for metric in quorlock::metrics::ALL.iter().filter(|metric| !metric.buckets.is_empty()) {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, metric.buckets).unwrap();
        }
        let recorder = builder.build_recorder();
        let (handle, folder) = (recorder.handle(), Arc::new(tempfile::tempdir().unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let files = Arc::clone(&folder);
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A scraper that leaves early concerns nobody.
                drop(stream.and_then(|stream| answer(stream, &handle, files.path())));
            }
        });
        Exporter { address, folder, recorder }
    }

    fn coordinator(&self, servers: &Servers) -> Coordinator {
        metrics::with_local_recorder(&self.recorder, || {
            Coordinator::builder().nodes(servers.urls()).ttl(TTL).max_ttl(TTL).build().unwrap()
        })
    }
}

fn answer(mut stream: TcpStream, handle: &PrometheusHandle, files: &Path) -> std::io::Result<()> {
    stream.set_read_timeout(Some(patience()))?;
    let mut request = [0; 4096];
    let length = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let body = if path == "app" {
        handle.render()
    } else {
        fs::read_to_string(files.join(path)).unwrap_or_default()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A Prometheus on a port of its own.
struct Prometheus {
    process: Child,
    address: String,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `target`; returns `None`, with a message, if none is installed.
    async fn start(target: SocketAddr) -> Option<Prometheus> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(path("prometheus.yml"), CONFIGURATION.replace("TARGET", &target.to_string())).unwrap();
        let log = path("log");
        let program = std::env::var_os("PROMETHEUS").unwrap_or_else(|| "prometheus".into());
        let spawned = Command::new(program)
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn();
        let process = match spawned {
            Ok(process) => process,
            Err(error) => {
                let word = "no prometheus is here; install Debian's package, or name it in PROMETHEUS";
                skips(format_args!("{word} ({error})"));
                return None;
            }
        };
        let mut prometheus = Prometheus { process, address: String::new(), _folder: folder };
        let mut output = String::new();
        let listens = eventually("Prometheus to listen", patience(), async || {
            output = fs::read_to_string(&log).unwrap();
            let line = output.lines().find(|line| line.contains("Listening on"));
            let address = line.and_then(|line| line.split_once("address=")?.1.split(' ').next());
            address.unwrap_or_default().clone_into(&mut prometheus.address);
            !prometheus.address.is_empty()
        });
        listens.await.unwrap_or_else(|error| panic!("{error}: {output}"));
        Some(prometheus)
    }

    /// Whether a graph of the query, from `start` on, has a point.
    fn has_data(&self, query: &str, start: Duration) -> bool {
        let encoded = query.bytes().fold(String::new(), |encoded, byte| encoded + &format!("%{byte:02X}"));
        let end = SystemClock::default().wall().as_secs_f64();
        let start = start.as_secs_f64();
        let path = format!("/api/v1/query_range?query={encoded}&start={start}&end={end}&step=0.25");
        let answer = self.get(&path);
        let Some((_, body)) = answer.split_once("\r\n\r\n") else { return false };
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        assert_ne!(answer["status"], "error", "{query}: {answer}");
        let is_number = |point: &Value| {
            point[1].as_str().and_then(|value| value.parse::<f64>().ok()).is_some_and(f64::is_finite)
        };
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        series.flat_map(|series| series["values"].as_array().into_iter().flatten()).any(is_number)
    }

    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(&self.address).expect("Prometheus listens");
        stream.set_read_timeout(Some(patience())).unwrap();
        // HTTP 1.0, so that the body is not in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: here\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    async fn end(mut self) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), Signal::SIGTERM).unwrap();
        until("the end of Prometheus", async || self.process.try_wait().unwrap().is_some()).await;
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
