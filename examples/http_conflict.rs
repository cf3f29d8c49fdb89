//! An HTTP handler that admits one request at a time, and answers the others with `409 Conflict` and
//! `Retry-After`.
//!
//! ```sh
//! cargo run --example http_conflict
//! ```

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use quorlock::{AcquireError, Coordinator, RestartGuard, Wait, WithError};
use quorlock_testkit::Servers;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Receives an upload, which lasts as long as the client sends.
async fn upload(State(coordinator): State<Coordinator>, Path(name): Path<String>, body: Body) -> Response {
    let lock = coordinator.lock(format!("uploads/{name}")).ttl(Duration::from_secs(10)).wait(Wait::Never);
    let stored = lock.with(async |lease| {
        let bytes = to_bytes(body, 1 << 20).await.map_err(WithError::Work)?;
        lease.check()?; // right before the side effect
        Ok(bytes.len())
    });
    match stored.await {
        Ok(length) => format!("{length} bytes of {name} stored").into_response(),
        Err(WithError::Acquire(error @ AcquireError::Contended { .. })) => {
            // Not the remaining time of the lease: it is renewed until the upload ends.
            (StatusCode::CONFLICT, [(RETRY_AFTER, "1")], error.to_string()).into_response()
        }
        Err(WithError::Work(error)) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // Safe only for servers that have just started for the first time.
    let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let app = axum::Router::new().route("/{name}", axum::routing::put(upload)).with_state(builder.build()?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut first = begin(address, "report.csv").await?;
    // The server asks for the body (100 Continue) when it begins to read it, which it does under the
    // lock.
    let mut line = String::new();
    first.read_line(&mut line).await?;
    println!("PUT /report.csv  {}", line.trim_end());
    println!("PUT /report.csv  {}", end(begin(address, "report.csv").await?).await?);
    println!("PUT /other.csv   {}", end(begin(address, "other.csv").await?).await?);
    println!("PUT /report.csv  {}  (the first request)", end(first).await?);
    println!("PUT /report.csv  {}", end(begin(address, "report.csv").await?).await?);
    Ok(())
}

async fn begin(address: std::net::SocketAddr, name: &str) -> Result<BufReader<TcpStream>, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "Host: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    stream.write_all(format!("PUT /{name} HTTP/1.1\r\n{head}").as_bytes()).await?;
    Ok(BufReader::new(stream))
}

/// Sends the body, and returns the response in one line.
async fn end(mut stream: BufReader<TcpStream>) -> Result<String, Box<dyn Error>> {
    stream.write_all(b"1,2,3").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let dull = ["HTTP/1.1 100", "content-", "connection", "date"];
    let lines =
        answer.lines().filter(|line| !line.is_empty() && !dull.iter().any(|word| line.starts_with(word)));
    Ok(lines.collect::<Vec<_>>().join(" | "))
}
