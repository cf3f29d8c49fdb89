//! The loads.

use std::time::Duration;

use crate::wanted::Lock;
use futures::future::try_join_all;

use super::figures::{Load, Node};
use crate::exit;
use crate::failure::Failure;
use crate::runtime::now;

/// Sequential requests to each node.
const ROUNDS: usize = 100;

/// Measures the round trip of each node without other load from us.
pub(super) async fn round_trips(lock: &Lock) -> Result<Vec<Node>, Failure> {
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..ROUNDS {
        let report = lock.inspect().await?;
        if nodes.is_empty() {
            nodes = report.votes().iter().map(|vote| Node::new(&vote.node)).collect::<Result<_, _>>()?;
        }
        for (node, vote) in nodes.iter_mut().zip(report.votes()) {
            node.add(vote);
        }
    }
    Ok(nodes)
}

/// Acquires and releases each of the locks in a loop for `lasts`, concurrently.
///
/// The first attempt on each lock must succeed; later failures are counted.
pub(super) async fn run(locks: &[Lock], lasts: Duration) -> Result<Load, Failure> {
    let began = now();
    let end = began + lasts;
    let one = async |lock: &Lock| {
        let mut load = Load::new()?;
        loop {
            let asked = now();
            if asked >= end {
                return Ok(load);
            }
            match lock.acquire().await {
                Ok(lease) => {
                    load.acquire.add(now().since(asked));
                    let held = now();
                    match lease.release().await {
                        Ok(()) => load.release.add(now().since(held)),
                        Err(lost) => load.fail(&lost),
                    }
                }
                Err(error) if load.acquire.is_empty() => {
                    return Err(Failure::of_acquiring(error, exit::HELD));
                }
                Err(error) => load.fail(&error),
            }
        }
    };
    let loads = try_join_all(locks.iter().map(one)).await?;
    let mut all = Load::new()?;
    for load in &loads {
        all.add(load);
    }
    all.took = now().since(began);
    Ok(all)
}
