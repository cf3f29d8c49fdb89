//! Tools of all benches.
#![allow(dead_code, reason = "no bench needs all of it")]

use quorlock_testkit::Servers;

/// Five real servers: figures of simulated ones would not be meaningful.
pub async fn five_servers() -> Servers {
    // A plain client knows no password.
    let servers = Servers::setup().without_password().start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    servers
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
