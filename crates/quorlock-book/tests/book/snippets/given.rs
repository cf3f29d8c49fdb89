//! The variables and functions that the blocks of the pages use without declaring them.

use std::io;

use quorlock::runtime::Mutex;
use quorlock_testkit::Servers;

pub(crate) use quorlock::election::Observed;
pub(crate) use quorlock::*;
pub(crate) use tracing::warn;

/// The addresses of the started servers.
static NODES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Starts the servers that replace those of the pages.
pub(crate) async fn start() -> Servers {
    let servers = Servers::start(5).await.unwrap();
    *NODES.lock() = servers.urls();
    servers
}

/// Returns the server that replaces `address`: `redis://10.0.0.1` is the first node, `redis://10.1.0.1` the
/// second, and so on.
pub(crate) fn node(address: &str) -> String {
    let number: usize = address.split('.').nth(1).and_then(|number| number.parse().ok()).unwrap();
    NODES.lock()[number].clone()
}

/// Returns the environment variable that `quorlock demo` sets for the programs that it runs.
pub(crate) fn variable(name: &str) -> Result<String, String> {
    assert_eq!(name, "QUORLOCK_NODES", "another variable than QUORLOCK_NODES");
    Ok(blocking_nodes().join(","))
}

pub(crate) async fn nodes() -> Vec<String> {
    blocking_nodes()
}

pub(crate) fn blocking_nodes() -> Vec<String> {
    NODES.lock().iter().take(3).cloned().collect()
}

pub(crate) async fn coordinator() -> Coordinator {
    Coordinator::builder().nodes(nodes().await).restart_guard(RestartGuard::Off).build().unwrap()
}

pub(crate) fn blocking_coordinator() -> blocking::Coordinator {
    let builder = Coordinator::builder().nodes(blocking_nodes()).restart_guard(RestartGuard::Off);
    builder.build_blocking().unwrap()
}

pub(crate) async fn lock() -> quorlock::Lock {
    coordinator().await.lock("orders/given")
}

pub(crate) async fn lease() -> quorlock::Lease {
    lock().await.acquire().await.unwrap()
}

pub(crate) async fn election() -> quorlock::Election {
    coordinator().await.election("scheduler")
}

// What a reader's own functions return: no error of this library, and none that is made from one.

pub(crate) async fn load(_: u32) -> io::Result<u32> {
    Ok(40)
}

pub(crate) async fn store(order: u32, _: FencingToken) -> io::Result<u32> {
    Ok(order + 2)
}

pub(crate) async fn transfer(_: FencingToken) -> io::Result<()> {
    Ok(())
}

pub(crate) fn port(number: usize) -> usize {
    number
}

pub(crate) async fn write_to(_: usize) -> io::Result<()> {
    Ok(())
}

pub(crate) async fn schedule() {}

pub(crate) async fn connect(_: &str) {}

pub(crate) fn wait_for_one() {}
