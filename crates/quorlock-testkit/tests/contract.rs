//! The contract suite: nodes in memory keep it, and it notices a node that does not.

use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::Claim;
use quorlock::{Asked, Clock, Hint, Listener, Node, Question, Reply, SystemClock};
use quorlock_testkit::contract::{Breach, check_contract};
use quorlock_testkit::{MemoryNode, TokioClock};

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

/// Answers a release of anything with a grant.
#[derive(Debug)]
struct Careless(MemoryNode);

impl Node for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn ask(&self, question: Asked, reply: Reply) {
        let Question::Release { claim } = &*question else { return self.0.ask(question, reply) };
        let claim = match self.0.holder(claim.key()) {
            Some(holder) => Arc::new(Claim::new(claim.key().into(), holder)),
            None => Arc::clone(claim),
        };
        self.0.ask(Question::Release { claim }.into(), reply);
    }
}

#[tokio::test]
async fn a_node_that_releases_for_anybody_breaks_it_and_is_named() {
    let memory = MemoryNode::new("memory");
    let breach = check_contract(&Careless(memory.clone()), &memory, &SystemClock::default())
        .await
        .expect_err("it releases foreign keys");
    let said = breach.to_string();
    assert!(said.contains("careless"), "{said}");
    assert!(said.contains("a release leaves a foreign key"), "{said}");
    assert!(!said.contains("a free key is granted"), "that much it can: {said}");
}

#[tokio::test]
async fn a_dead_node_breaks_it_without_a_panic() {
    let memory = MemoryNode::new("memory");
    memory.disconnect();
    let breach = check_contract(&memory, &memory, &SystemClock::default()).await.expect_err("it is dead");
    assert!(breach.to_string().contains("unreachable"), "{breach}");
}

/// Says that it tells changes, and tells none.
#[derive(Debug)]
struct Mute(MemoryNode);

impl Node for Mute {
    fn name(&self) -> &'static str {
        "mute"
    }

    fn ask(&self, question: Asked, reply: Reply) {
        self.0.ask(question, reply);
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        listener.hear(Hint::Hearing);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_promises_hints_and_gives_none_breaks_it() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let memory = MemoryNode::on("memory", Arc::clone(&clock));
    let breach = check_contract(&Mute(memory.clone()), &memory, &*clock).await.expect_err("it says nothing");
    let said = breach.to_string();
    assert!(said.contains("breaks 6 of"), "{said}");
    assert!(said.contains("a removal by another client is told"), "{said}");
}

#[tokio::test]
async fn a_node_without_hints_keeps_it() -> Result<(), Breach> {
    let memory = MemoryNode::new("memory");
    memory.hints(false);
    check_contract(&memory, &memory, &SystemClock::default()).await
}
