//! The thread that answers scrapes.
//!
//! By hand with hyper, since the listener of `metrics-exporter-prometheus` binds its own socket (the port of `:0` cannot
//! be learned), serves every path, and has neither a timeout nor a limit on connections.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use quorlock::runtime::{Clock as _, SystemClock};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tracing::{debug, info};

use super::WRITE_EVERY;
use super::textfile::Textfile;

/// Connections served at the same time; further ones wait.
const MOST_CLIENTS: usize = 16;
/// How long a client may take to send its request; the whole exchange may take twice as long.
const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Starts the thread that answers scrapes and updates the file until the program ends.
pub(super) fn serve(
    listener: Option<TcpListener>,
    handle: PrometheusHandle,
    file: Option<Textfile>,
) -> io::Result<()> {
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
        info!(url = %format_args!("http://{}/metrics", listener.local_addr()?), "metrics are served");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async move {
        let upkeep = upkeep(handle.clone(), file);
        match listener.map(tokio::net::TcpListener::from_std) {
            Some(Ok(listener)) => drop(tokio::join!(upkeep, accept(listener, handle))),
            Some(Err(error)) => debug!(%error, "metrics are not served"),
            None => drop(upkeep.await),
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(move || runtime.block_on(work))?;
    Ok(())
}

/// Drains the histogram samples, which would pile up without scrapes, and updates the file.
async fn upkeep(handle: PrometheusHandle, file: Option<Textfile>) -> Infallible {
    let clock = SystemClock::default();
    loop {
        clock.sleep_until(clock.now() + WRITE_EVERY).await;
        handle.run_upkeep();
        if let Some(file) = &file {
            file.update();
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, handle: PrometheusHandle) -> Infallible {
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    loop {
        let place = places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let handle = handle.clone();
                tokio::spawn(async move {
                    answer(stream, &handle).await;
                    drop(place);
                });
            }
            // Such as too many open files: retry.
            Err(error) => {
                debug!(%error, "a scrape was not accepted");
                let clock = SystemClock::default();
                clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, handle: &PrometheusHandle) {
    let service = service_fn(async |request| Ok::<_, Infallible>(respond(&request, handle)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        // One response per connection, so that an idle client does not keep others out.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the client has gone, or does not speak HTTP.
    let clock = SystemClock::default();
    let late = clock.sleep_until(clock.now() + PATIENCE * 2);
    tokio::select! {
        ended = connection => drop(ended),
        () = late => {}
    }
}

fn respond(request: &Request<Incoming>, handle: &PrometheusHandle) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, handle.render()),
        (&Method::GET | &Method::HEAD, "/ready") if super::is_held() => (StatusCode::OK, "held\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/ready") => {
            (StatusCode::SERVICE_UNAVAILABLE, "not held\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            "metrics are at /metrics, and whether the lock is held at /ready\n".to_owned(),
        ),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
    response
}
