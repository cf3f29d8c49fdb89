//! A store that serves waiters in the order in which they entered its queue, foreign ones included.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::node::{Capabilities, Capability, NodeError, Request, Vote, ask};
use quorlock::protocol::{Claim, Token, WaiterId};
use quorlock::{Coordinator, Wait, runtime::Clock};
use quorlock_testkit::{MemoryNode, WrappedNode};

use crate::common::{Bench, MS, TTL, Turns, another, bench, client, client_of, forever, passing};

const LATE: Duration = Duration::from_secs(10);

/// A deployment of one such node.
fn first_come() -> Bench {
    let bench = bench(1);
    let served = Capabilities::all().without(Capability::Offer).without(Capability::Shared).first_come();
    let node = bench.nodes[0].clone().with_capabilities(served);
    node.delay(MS, MS);
    let coordinator = another(&bench.clock, std::slice::from_ref(&node), |builder| builder);
    Bench { nodes: vec![node], coordinator, ..bench }
}

/// A program without this library: waits for its turn, and holds the lock for a moment.
struct Foreign {
    node: MemoryNode,
    clock: Arc<dyn Clock>,
    taken: u64,
}

impl Foreign {
    async fn section(&mut self, work: impl FnOnce()) {
        self.taken += 1;
        let waiter = WaiterId::new(1_000 + self.taken);
        let place = Request::enqueue("r".into(), waiter, Duration::ZERO, LATE, LATE);
        while ask(&self.node, place.clone()).await.unwrap().vote != Vote::Free {
            self.clock.sleep_until(self.clock.now() + MS).await;
        }
        let token = Token::found(format!("foreign {}", self.taken).as_bytes());
        let claim = Arc::new(Claim::new("r".into(), token).in_place_of(waiter));
        let acquire = Request::Acquire { claim: claim.clone(), ttl: TTL, fence_hint: None };
        assert_eq!(ask(&self.node, acquire).await.unwrap().vote, Vote::Granted);
        work();
        self.clock.sleep_until(self.clock.now() + 3 * MS).await;
        ask(&self.node, Request::Release { claim }).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_process_and_a_foreign_program_take_turns() {
    let bench = first_come();
    let order = Arc::new(Mutex::new(String::new()));
    let mut ours = Vec::new();
    for _ in 0..4 {
        let (lock, order, clock) = (forever(&bench.coordinator), order.clone(), bench.clock.clone());
        ours.push(tokio::spawn(async move {
            for _ in 0..5 {
                let lease = lock.acquire().await.unwrap();
                order.lock().unwrap().push('o');
                clock.sleep_until(clock.now() + 3 * MS).await;
                lease.release().await.unwrap();
            }
        }));
    }
    let mut foreign = Foreign { node: bench.nodes[0].clone(), clock: bench.clock.clone(), taken: 0 };
    for _ in 0..20 {
        foreign.section(|| order.lock().unwrap().push('f')).await;
    }
    for task in ours {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    let longest = |side| order.split(side).map(str::len).max().unwrap();
    assert!(longest('f') <= 2, "the foreign program waited for several of ours: {order}");
    assert!(longest('o') <= 2, "ours waited for several of the foreign program: {order}");
}

#[tokio::test(start_paused = true)]
async fn processes_are_served_in_the_order_in_which_they_came() {
    let bench = first_come();
    let first = bench.lock().acquire().await.unwrap();
    let mut turns = Turns::default();
    for _ in 0..6 {
        turns.join(&bench, forever(&client(&bench)), Duration::ZERO);
        bench.pass(20 * MS).await;
    }
    let hasty = client(&bench).lock("r").ttl(TTL).wait(Wait::Never);
    let before = bench.clock.now();
    first.release().await.unwrap();
    assert!(hasty.acquire().await.is_err(), "it would pass the queue");
    assert_eq!(turns.order().await, [0, 1, 2, 3, 4, 5]);
    let took = bench.clock.now().since(before);
    assert!(took < 60 * MS, "two trips of 2 ms each for six holders, not {took:?}");
}

/// A waiter without a place would never be served while others come.
#[tokio::test(start_paused = true)]
async fn a_node_that_did_not_answer_is_asked_for_a_place_again() {
    let bench = first_come();
    let holder = bench.lock().acquire().await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let node = WrappedNode::new(bench.nodes[0].clone()).on_request(move |request, responder, inner| {
        let is_first =
            matches!(*request, Request::Enqueue { .. }) && counted.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first {
            responder.send(Err(NodeError::Unreachable { reason: "the leader has changed".into() }));
        } else {
            inner.ask(request, responder);
        }
    });
    let waiting = passing(forever(&client_of(&bench, [node])));
    bench.pass(Duration::from_secs(3)).await;
    assert!(asked.load(Ordering::Relaxed) >= 2, "it has asked once");
    let later = passing(forever(&client(&bench)));
    bench.pass(100 * MS).await;
    assert!(!waiting.is_finished() && !later.is_finished());
    let before = bench.clock.now();
    holder.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(before) < 20 * MS, "its turn was not the next");
    later.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn callers_of_several_locks_take_their_places_together() {
    let bench = first_come();
    let several =
        |client: &Coordinator| client.lock_all(["a", "r"]).ttl(TTL).wait(Wait::UpTo(Duration::from_secs(30)));
    let first = client(&bench).lock("r").ttl(TTL).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(passing(several(&client(&bench))));
        let one = client(&bench).lock("r").ttl(TTL).wait(Wait::UpTo(Duration::from_secs(30)));
        waiting.push(passing(one));
    }
    bench.pass(50 * MS).await;
    first.release().await.unwrap();
    for task in waiting {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_has_the_number_of_the_only_store() {
    for (nodes, expected) in [(1, Some(7)), (3, None)] {
        let bench = bench(nodes);
        let nodes = bench.nodes.iter().map(|node| {
            WrappedNode::new(node.clone()).on_request(|request, responder, inner| {
                let numbered = responder.map(|answer| Ok(answer?.with_store_revision(NonZeroU64::new(7))));
                inner.ask(request, numbered);
            })
        });
        let lease = client_of(&bench, nodes).lock("r").acquire().await.unwrap();
        assert_eq!(lease.store_revision(), expected);
        assert_eq!(lease.watch().store_revision(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_is_refused_there_by_the_name_of_the_node() {
    let bench = first_come();
    let error = bench.coordinator.semaphore("r", 2).acquire().await.unwrap_err();
    assert!(error.to_string().contains("the node node-1 keeps no semaphores"), "{error}");
}
