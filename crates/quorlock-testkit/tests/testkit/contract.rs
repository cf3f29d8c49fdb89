//! The contract suite: in-memory nodes pass it, and it detects broken ones.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use quorlock::protocol::Claim;
use quorlock::{
    node::{Capabilities, Capability, Expiry, Hint, Hints, Identity, Node, Order, Request, Response},
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::contract::{Breach, Plant, check_contract};
use quorlock_testkit::{MemoryNode, TokioClock, Value, WrappedNode};

#[tokio::test]
async fn a_node_in_memory_keeps_the_contract() -> Result<(), Breach> {
    let node = MemoryNode::new("memory");
    check_contract(&node, &node, &SystemClock::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_under_paused_time_keeps_the_contract() -> Result<(), Breach> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let node = MemoryNode::on("slow", Arc::clone(&clock));
    node.delay(Duration::from_millis(3), Duration::from_millis(4));
    check_contract(&node, &node, &*clock).await
}

/// A node as of a store with a queue of its own.
fn first_come() -> Capabilities {
    Capabilities::all().without(Capability::Offer).without(Capability::Shared).first_come()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_serves_who_came_first_keeps_the_contract() -> Result<(), Breach> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let node = MemoryNode::on("first", Arc::clone(&clock)).with_capabilities(first_come());
    node.delay(Duration::from_millis(3), Duration::from_millis(4));
    check_contract(&node, &node, &*clock).await
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_says_so_breaks_the_contract() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let any = MemoryNode::on("any", Arc::clone(&clock));
    let node = WrappedNode::new(any.clone()).capabilities(first_come());
    let breach = check_contract(&node, &any, &*clock).await.expect_err("it serves any client that asks");
    let message = breach.to_string();
    assert!(message.contains("a plain acquisition does not pass the queue"), "{message}");
}

/// Answers a release of anything with a grant.
fn careless(memory: &MemoryNode) -> WrappedNode {
    let server = memory.clone();
    WrappedNode::new(memory.clone()).on_request(move |request, responder, inner| {
        let Request::Release { claim } = &*request else { return inner.ask(request, responder) };
        let claim = match server.holder(claim.key()) {
            Some(holder) => Arc::new(Claim::new(claim.key().into(), holder)),
            None => Arc::clone(claim),
        };
        inner.ask(Request::Release { claim }.into(), responder);
    })
}

#[tokio::test]
async fn a_node_that_releases_for_any_client_breaks_it_and_is_named() {
    let memory = MemoryNode::new("careless");
    let breach = check_contract(&careless(&memory), &memory, &SystemClock::default())
        .await
        .expect_err("it releases foreign keys");
    let message = breach.to_string();
    assert!(message.contains("careless"), "{message}");
    assert!(message.contains("a release leaves a foreign key"), "{message}");
    assert!(!message.contains("a free key is granted"), "that much it can: {message}");
}

/// Releases where it should cancel, and so leaves no tombstone.
fn without_tombstones(memory: &MemoryNode) -> WrappedNode {
    WrappedNode::new(memory.clone()).on_request(|request, responder, inner| {
        if let Request::Cancel { claim, .. } = &*request {
            inner.ask(Request::Release { claim: Arc::clone(claim) }.into(), responder);
        } else {
            inner.ask(request, responder);
        }
    })
}

/// Treats another holder's lock as its own.
fn credulous(memory: &MemoryNode) -> WrappedNode {
    let server = memory.clone();
    WrappedNode::new(memory.clone()).on_request(move |request, responder, inner| {
        if let Request::Acquire { claim, .. } = &*request {
            MemoryNode::remove(&server, claim.key());
        }
        inner.ask(request, responder);
    })
}

/// Shortens what a request asks for.
type Shorten = fn(&mut Request);

fn shortened(memory: &MemoryNode, shorten: Shorten) -> WrappedNode {
    WrappedNode::new(memory.clone()).on_request(move |request, responder, inner| {
        let mut request = Request::clone(&request);
        shorten(&mut request);
        inner.ask(request.into(), responder);
    })
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_keys_renewals_or_tombstones_end_early_breaks_it() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let memory = MemoryNode::on("memory", Arc::clone(&clock));
    let rows: [(Shorten, &str); 4] = [
        (
            |request| {
                if let Request::Acquire { ttl, .. } = request {
                    *ttl = *ttl * 97 / 100;
                }
            },
            "a free key is granted",
        ),
        (
            |request| {
                if let Request::Renew { ttl, .. } = request {
                    *ttl = *ttl * 4 / 5;
                }
            },
            "a renewal prolongs the own key",
        ),
        (
            |request| {
                if let Request::Cancel { linger, .. } = request {
                    *linger = Duration::from_millis(200);
                }
            },
            "a tombstone expires",
        ),
        (
            |request| {
                if let Request::Cancel { linger, .. } = request {
                    *linger /= 2;
                }
            },
            "a tombstone expires",
        ),
    ];
    for (shorten, clause) in rows {
        let node = shortened(&memory, shorten);
        let message = check_contract(&node, &memory, &*clock).await.expect_err(clause).to_string();
        assert!(message.contains(clause), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_tombstones_and_one_that_takes_what_others_hold_break_it() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let memory = MemoryNode::on("memory", Arc::clone(&clock));
    for (node, clause) in [
        (without_tombstones(&memory), "a late acquisition of a cancelled attempt does nothing"),
        (credulous(&memory), "a held key is refused with its holder"),
    ] {
        let message = check_contract(&node, &memory, &*clock).await.expect_err(clause).to_string();
        assert!(message.contains(clause) && !message.contains("a free key is granted"), "{message}");
    }
}

#[tokio::test]
async fn a_dead_node_breaks_it_without_a_panic() {
    let memory = MemoryNode::new("memory");
    memory.disconnect();
    let breach = check_contract(&memory, &memory, &SystemClock::default()).await.expect_err("it is dead");
    assert!(breach.to_string().contains("unreachable"), "{breach}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_promises_hints_and_gives_none_breaks_it() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let memory = MemoryNode::on("memory", Arc::clone(&clock));
    let mute = WrappedNode::new(memory.clone()).on_listen(|listener, _| listener.on_hint(Hint::Subscribed));
    let breach = check_contract(&mute, &memory, &*clock).await.expect_err("it gives no hints");
    let message = breach.to_string();
    assert!(message.contains("breaks 8 of"), "{message}");
    assert!(message.contains("a removal by another client notifies refused clients"), "{message}");
}

#[tokio::test]
async fn a_node_without_hints_keeps_it() -> Result<(), Breach> {
    let memory = MemoryNode::new("memory");
    memory.hints(false);
    check_contract(&memory, &memory, &SystemClock::default()).await
}

#[tokio::test]
async fn a_node_of_any_capability_alone_keeps_it() -> Result<(), Breach> {
    let least = Capabilities::default();
    let each = Capability::ALL.map(|capability| Capabilities::default().with(capability));
    for capabilities in
        [least, least.in_order(Order::PerKey), least.hinting(Hints::Removal)].into_iter().chain(each)
    {
        let node = MemoryNode::new("memory").with_capabilities(capabilities);
        check_contract(&node, &node, &SystemClock::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_node_that_does_what_it_does_not_support_breaks_it() {
    let memory = MemoryNode::new("memory");
    let modest = WrappedNode::new(memory.clone()).capabilities(Capabilities::default());
    let breach = check_contract(&modest, &memory, &SystemClock::default()).await;
    let message = breach.expect_err("it is modest").to_string();
    assert!(
        message.contains("breaks 1 of") && message.contains("what it cannot do is refused by name"),
        "{message}"
    );
}

#[tokio::test]
async fn a_node_that_remembers_keeps_it() -> Result<(), Breach> {
    let node = MemoryNode::new("memory").with_capabilities(Capabilities::all().durable());
    check_contract(&node, &node, &SystemClock::default()).await
}

/// A server that loses its keys when it is restarted, and the capabilities of its node.
struct Forgetful {
    server: MemoryNode,
    capabilities: Capabilities,
    /// Whether it keeps its id over the restart.
    same_name: bool,
}

impl Plant for Forgetful {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        self.server.plant(key, value, expiry)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Plant::remove(&self.server, key)
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Plant::expiry(&self.server, key)
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        self.server.restart_empty();
        if self.same_name {
            self.server.identify_as("always the same");
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_node_that_forgets_silently_breaks_it() {
    for (capabilities, same_name, clause) in [
        (Capabilities::all().durable(), false, "what is durable survives a restart"),
        (Capabilities::all(), true, "after a restart all is remembered or the history is a new one"),
    ] {
        let server = MemoryNode::new("memory").with_capabilities(capabilities);
        if same_name {
            server.identify_as("always the same");
        }
        let plant = Forgetful { server: server.clone(), capabilities, same_name };
        let breach = check_contract(&server, &plant, &SystemClock::default()).await;
        let message = breach.expect_err("it has forgotten").to_string();
        assert!(
            message.contains("breaks 1 of") && message.contains(clause),
            "{:?}: {message}",
            plant.capabilities
        );
    }
}

/// Reports the uptime of its machine, or another time that a restart of the store does not reset.
#[tokio::test]
async fn a_node_that_claims_an_age_after_it_has_forgotten_breaks_it() {
    let server = MemoryNode::new("memory");
    let node = WrappedNode::new(server.clone()).on_request(|request, responder, inner| {
        let old = |mut answer: Response| {
            let Identity { id, seen, age, .. } = &*answer.identity;
            answer.identity = Identity::new(id.clone(), *seen, *age + Duration::from_secs(3_600)).into();
            answer
        };
        inner.ask(request, responder.map(move |answer| answer.map(old)));
    });
    let plant = Forgetful { server: server.clone(), capabilities: Capabilities::all(), same_name: false };
    let breach = check_contract(&node, &plant, &SystemClock::default()).await;
    let message = breach.expect_err("it has forgotten, and votes").to_string();
    let clause = "after a restart all is remembered or the history is a new one";
    assert!(message.contains("breaks 1 of") && message.contains(clause), "{message}");
    assert!(message.contains("the new history is 3600"), "{message}");
}
