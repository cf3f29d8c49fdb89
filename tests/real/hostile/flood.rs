//! Servers that push without end, or close each connection: they are disconnected, and the other nodes
//! are unaffected.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::{
    Coordinator, RestartGuard,
    health::NodeStatus,
    redis::Address,
    runtime::{Clock, SystemClock},
    transport::{Dial, Stream},
};
use quorlock_testkit::{SeededEntropy, TokioClock, memory_nodes_on};

use super::server::{Hostile, Phase};
use super::{attack, deployment, in_time, memory_since, on_both_runtimes};

on_both_runtimes! {
    a_flooding_server_is_disconnected_and_named
}

/// How many bytes a flooding server may push over one connection in no time: 64 KiB unasked, eight times the bytes
/// sent to it (which it does not read, so at most the handshake and the pipe's capacity), and what is
/// read ahead or still in the pipe.
const BOUND: usize = (64 + 8 * (64 + 8) + 16 + 64) * 1024;

async fn a_flooding_server_is_disconnected_and_named() {
    let push = ">2\r\n+invalidate\r\n*1\r\n$9\r\norders/42\r\n";
    let far_more = "it pushed far more data than the requests explain";
    for (name, words, expected) in [
        ("changes", push, far_more),
        // The connection ends at the first of them.
        ("all changes", ">2\r\n+invalidate\r\n_\r\n", "the server has invalidated all keys"),
        ("nothing", ">0\r\n", far_more),
    ] {
        let began = SystemClock::default().now();
        let server = Hostile::new(Phase::Vote, attack("a flood", "", words.repeat(20)));
        let coordinator = deployment(&server, 1);
        in_time(name, async {
            loop {
                let lease = coordinator.lock("orders/42").acquire().await.unwrap();
                lease.release().await.unwrap();
                let node = &coordinator.health().now()[0];
                if let NodeStatus::Unreachable { reason } = &node.status
                    && format!("{reason:#}").contains(expected)
                {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let taken = Hostile::count(&server.taken);
        let dials = Hostile::count(&server.dials);
        assert!(taken <= memory_since(began, BOUND * dials), "{name}: {taken} bytes of {dials} connections");
        in_time(name, coordinator.close(Duration::from_millis(100))).await;
    }
}

/// Answers correctly, and disconnects after a tenth of a second.
#[derive(Clone, Debug)]
struct Leaving(Hostile);

impl Dial for Leaving {
    fn dial(&self, address: &Address) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let behind = self.0.dial(address);
        Box::pin(async move {
            let (near, mut far) = tokio::io::duplex(64 * 1024);
            let mut behind = behind.await?;
            tokio::spawn(async move {
                let clock = TokioClock::new();
                let late = clock.sleep_until(clock.now() + Duration::from_millis(100));
                let passing = tokio::io::copy_bidirectional(&mut far, &mut behind);
                futures::future::select(std::pin::pin!(passing), late).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_connections_is_dialled_less_often() {
    let server = Hostile::saying(super::server::Words::sound());
    let clock = Arc::new(TokioClock::new());
    let coordinator = Coordinator::builder()
        .nodes(["redis://leaving"])
        .custom_nodes(memory_nodes_on(&(Arc::clone(&clock) as Arc<dyn Clock>), 2))
        .dial(Leaving(server.clone()))
        .clock(Arc::clone(&clock))
        .entropy(SeededEntropy::new(1))
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap();
    coordinator.lock("orders/42").acquire().await.unwrap().release().await.unwrap();
    clock.sleep_until(clock.now() + Duration::from_secs(60)).await;
    let dials = Hostile::count(&server.dials);
    // A tenth of a second each, and up to a second between them: 0.6 s on average.
    assert!((60..160).contains(&dials), "{dials} connections in a minute");
}
