//! A custom kind of node: a server that can be taken out of the vote before an upgrade.
//!
//! ```sh
//! cargo run --example own_node
//! ```
//!
//! A drained node grants nothing, and its keys expire. The test kit's contract suite checks it first.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorlock::{
    Coordinator, RestartGuard,
    node::{Capabilities, HintListener, Node, NodeError, NodeErrorKind, Responder, SharedRequest},
    redis::{Address, RedisNode},
    runtime::SystemClock,
};
use quorlock_testkit::{Servers, contract::check_contract, eventually};

#[derive(Clone, Debug)]
struct Drainable {
    server: Arc<RedisNode>,
    drained: Arc<AtomicBool>,
}

impl Node for Drainable {
    fn name(&self) -> &str {
        self.server.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        // Releases must always get through.
        if request.may_create() && self.drained.load(Ordering::Relaxed) {
            let (kind, reason) = (NodeErrorKind::ReadOnly, "it is drained for an upgrade".into());
            return reply.send(Err(NodeError::Unfit { kind, reason }));
        }
        self.server.ask(request, reply);
    }

    fn ready(&self) -> futures::future::BoxFuture<'static, Result<(), NodeError>> {
        self.server.ready()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.server.listen(listener);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    let node = |url: &String| {
        let server = Arc::new(RedisNode::new(Address::parse(url)?));
        Ok::<_, Box<dyn Error>>(Drainable { server, drained: Arc::default() })
    };
    let nodes = servers.urls().iter().map(node).collect::<Result<Vec<_>, _>>()?;
    let (first, server) = (nodes.first().ok_or("no node")?, servers.first().ok_or("no server")?);
    check_contract(&node(&server.url())?, server, &SystemClock::default()).await?;
    println!("The node keeps the contract.");
    let builder = Coordinator::builder().custom_nodes(nodes.clone()).restart_guard(RestartGuard::Off); // new servers only
    let lease = builder.ttl(Duration::from_secs(2)).build()?.lock("orders/42").acquire().await?;
    first.drained.store(true, Ordering::Relaxed);
    println!("A lock is held, and the first node is drained.");
    let empty = async || server.command(&["EXISTS", "orders/42"]).await.is_ok_and(|n| n.to_string() == "0");
    eventually("the end of its key", Duration::from_secs(20), empty).await?;
    lease.check()?;
    println!("Its key has expired, and the lock is still held: the other four renew it.");
    first.drained.store(false, Ordering::Relaxed);
    lease.release().await?;
    println!("The first node votes again. No client had to wait for it.");
    Ok(())
}
