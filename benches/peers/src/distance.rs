//! Servers that are far away: a proxy in front of each, in a process of its own, so that no proxy waits for another.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use quorlock_testkit::{Proxy, Way};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) struct Distance {
    pub(crate) addresses: Vec<String>,
    /// Killed when dropped.
    proxies: Vec<Child>,
}

impl Distance {
    /// Starts a proxy for each server. `round_trip` is in milliseconds.
    pub(crate) async fn from(servers: &[String], round_trip: u64) -> Result<Distance> {
        let mut distance = Distance { addresses: Vec::new(), proxies: Vec::new() };
        for server in servers {
            let address = server.strip_prefix("redis://").context("the address of a server")?;
            let mut proxy = Command::new(std::env::current_exe()?)
                .args(["delay", address, &round_trip.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let mut lines = BufReader::new(proxy.stdout.take().context("no output")?).lines();
            distance.addresses.push(lines.next_line().await?.context("a proxy has ended")?);
            distance.proxies.push(proxy);
        }
        Ok(distance)
    }
}

/// Turns this process into a proxy, until its input ends.
pub(crate) async fn delay(upstream: &str, round_trip: u64) -> Result<()> {
    let proxy = Proxy::start(upstream.parse()?).await?;
    proxy.delay(Way::Both, Duration::from_millis(round_trip) / 2);
    println!("{}", proxy.url());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
