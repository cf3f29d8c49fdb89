//! Five nodes in three regions: a lock costs the round trip to the third nearest node, even when a
//! whole region is down.
//!
//! ```sh
//! cargo run --example regions
//! ```
//!
//! The regions are simulated by proxies that delay; `docs/choosing.md` lists the settings to change.

use std::error::Error;
use std::time::Duration;

use quorlock::{
    Coordinator, Lock, RestartGuard,
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Proxy, Server, Servers, Way};

/// Round trips from Frankfurt, where this program pretends to run. No region has more than two of the
/// five nodes; otherwise its loss would cost the quorum.
const NODES: [(&str, u64); 5] =
    [("Frankfurt a", 1), ("Frankfurt b", 1), ("Stockholm", 22), ("Dublin a", 25), ("Dublin b", 25)];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(NODES.len()).await?;
    println!("Lock servers: {servers}");
    let mut proxies = Vec::new();
    for (server, (name, millis)) in servers.iter().zip(NODES) {
        let proxy = Proxy::before(server).await?;
        proxy.delay(Way::Both, Duration::from_micros(millis * 1000 / 2));
        println!("  {name}: {millis} ms round trip");
        proxies.push(proxy);
    }

    let coordinator = Coordinator::builder()
        .nodes(proxies.iter().map(Proxy::url))
        // Far more than twenty times the longest round trip, and equal for all clients, because a
        // restarted node does not vote for the longest TTL in use. Node timeouts adapt to the round
        // trips.
        .ttl(Duration::from_secs(10))
        .max_ttl(Duration::from_secs(10))
        // Only because these servers have just started: leave it out for yours.
        .restart_guard(RestartGuard::Off)
        .build()?;
    let lock = coordinator.lock("orders/42");

    lock.acquire().await?.release().await?; // opens the connections
    let healthy = fastest(&lock).await?;
    println!("A lock takes {healthy:.1?}: the round trip to Stockholm, which completes the quorum.");
    assert!(healthy >= Duration::from_millis(22), "it cannot be faster than the third node");

    servers.iter().take(2).for_each(Server::kill);
    let alone = fastest(&lock).await?;
    println!("Frankfurt is down. A lock takes {alone:.1?}: the round trip to Dublin.");
    assert!(alone >= Duration::from_millis(25), "all of the other three must agree");
    Ok(())
}

/// The fastest of five, because a busy machine only adds time.
async fn fastest(lock: &Lock) -> Result<Duration, Box<dyn Error>> {
    let (clock, mut best) = (SystemClock::default(), Duration::MAX);
    for _ in 0..5 {
        let asked = clock.now();
        let lease = lock.acquire().await?;
        best = best.min(clock.now().since(asked));
        lease.release().await?;
    }
    Ok(best)
}
