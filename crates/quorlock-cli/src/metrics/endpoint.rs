//! The thread that answers scrapes.
//!
//! By hand with hyper, since the listener of `metrics-exporter-prometheus` binds its own socket (the port of `:0` cannot
//! be learned), serves every path, and has neither a timeout nor a limit on connections.
//!
//! A probe decides whether the holder of a lock stays in service, so it must be answered whatever else is connected:
//! scanners, balancers that only connect, or someone who opens connections and sends nothing. Each connection is a task
//! of its own with little time. No client waits for another one's end: beyond [`MOST_CLIENTS`] the oldest connection is
//! closed for the newest. A probe sends its request as it connects, and is answered long before it is the oldest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
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
use tokio::task::{AbortHandle, yield_now};
use tracing::{debug, info};

use super::WRITE_EVERY;
use super::textfile::Textfile;

/// The most connections at the same time: more than a host with many scrapers has, and a quarter of the files that a
/// process usually may open.
const MOST_CLIENTS: usize = 256;
/// How long a client may take to send its request; the whole exchange may take twice as long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a connection that the system did not give us.
const PAUSE: Duration = Duration::from_millis(100);
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
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = listener.accept().await;
        open.retain(|client| !client.is_finished());
        // Also if too many files are open: then it is made room for the next attempt.
        if (accepted.is_err() || open.len() >= MOST_CLIENTS)
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        match accepted {
            Ok((stream, _)) => {
                let handle = handle.clone();
                let client = tokio::spawn(async move { answer(stream, &handle).await });
                open.push_back(client.abort_handle());
                // A burst of connections must not be accepted without looking at what the first of them sends.
                yield_now().await;
            }
            Err(error) => {
                debug!(%error, "a scrape was not accepted");
                let clock = SystemClock::default();
                clock.sleep_until(clock.now() + PAUSE).await;
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
