use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::node::{Identity, Vote};
use quorlock_protocol::{Claim, Moment, Token};

/// Holds requests until the test answers them.
#[derive(Clone, Debug, Default)]
struct Store {
    asked: Arc<Mutex<Vec<(SharedRequest, Responder)>>>,
    /// Answers immediately instead.
    at_once: Arc<AtomicBool>,
}

impl Node for Store {
    fn name(&self) -> &'static str {
        "store"
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        if self.at_once.load(Ordering::Relaxed) {
            responder.send(Ok(granted()));
        } else {
            self.asked.lock().push((request, responder));
        }
    }
}

impl Store {
    /// The requests that it has not answered.
    fn asked(&self) -> Vec<String> {
        let name = |request: &Request| match request {
            Request::Acquire { claim, .. } => format!("acquire {}", claim.key()),
            Request::Transfer { to, .. } => format!("transfer {}", to.key()),
            Request::Release { claim } => format!("release {}", claim.key()),
            Request::Cancel { claim, .. } => format!("cancel {}", claim.key()),
            Request::Renew { .. }
            | Request::WriteBack { .. }
            | Request::Inspect { .. }
            | Request::Offer { .. }
            | Request::Enqueue { .. }
            | Request::ListWaiters { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::LeaveQueue { .. }
            | _ => format!("{request:?}"),
        };
        self.asked.lock().iter().map(|(request, _)| name(request)).collect()
    }

    fn answer(&self, place: usize, answer: Result<Response, NodeError>) {
        let (_, responder) = self.asked.lock().remove(place);
        responder.send(answer);
    }
}

fn granted() -> Response {
    Response::new(Vote::Granted, Arc::new(Identity::new("store", Moment::ORIGIN, Duration::MAX)))
}

fn unknown() -> NodeError {
    NodeError::Unanswered { waited: Duration::from_secs(1) }
}

#[derive(Debug, Default)]
struct Asker {
    answers: Mutex<Vec<(usize, Result<Vote, NodeError>)>>,
    gone: AtomicBool,
}

impl Collect for Asker {
    fn answer(&self, index: usize, answer: Result<Response, NodeError>) {
        self.answers.lock().push((index, answer.map(|answer| answer.vote)));
    }

    fn wanted(&self) -> bool {
        !self.gone.load(Ordering::Relaxed)
    }
}

/// An ordered node over a store, and its round.
struct Bench {
    store: Store,
    node: Arc<dyn Node>,
    asker: Arc<Asker>,
}

fn bench() -> Bench {
    let store = Store::default();
    Bench { node: in_order(Arc::new(store.clone())), store, asker: Arc::default() }
}

impl Bench {
    fn ask(&self, number: usize, request: Request) {
        self.node.ask(request.into(), Responder::new(self.asker.clone(), number));
    }

    fn answers(&self) -> Vec<(usize, Result<Vote, NodeError>)> {
        std::mem::take(&mut *self.asker.answers.lock())
    }
}

fn claim(key: &str) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(1, "test")))
}

fn acquire(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: claim.clone(), ttl: Duration::from_secs(9), fence_hint: None }
}

fn release(claim: &Arc<Claim>) -> Request {
    Request::Release { claim: claim.clone() }
}

#[test]
fn requests_wait_for_earlier_ones_for_the_same_key_only() {
    let bench = bench();
    let (a, b) = (claim("a"), claim("b"));
    for (number, request) in [acquire(&a), release(&a), acquire(&b)].into_iter().enumerate() {
        bench.ask(number, request);
    }
    assert_eq!(bench.store.asked(), ["acquire a", "acquire b"]);
    bench.store.answer(0, Ok(granted()));
    assert_eq!(bench.store.asked(), ["acquire b", "release a"]);
    bench.store.answer(1, Ok(granted()));
    bench.store.answer(0, Ok(granted()));
    assert_eq!(bench.answers().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_transfer_is_in_the_queue_of_its_key_though_it_names_two_claims() {
    let bench = bench();
    let (from, to) = (claim("a"), claim("a"));
    bench.ask(0, Request::Transfer { from: from.clone(), to, ttl: Duration::from_secs(9), fence_hint: None });
    bench.ask(1, release(&from));
    assert_eq!(bench.store.asked(), ["transfer a"]);
}

#[test]
fn a_request_for_several_keys_waits_for_all_of_them_and_all_wait_for_it() {
    let bench = bench();
    let both = Arc::new(Claim::clone(&claim("a")).and(Arc::new([Arc::from("b")])));
    for (number, request) in
        [acquire(&claim("b")), acquire(&both), acquire(&claim("a")), acquire(&claim("c"))]
            .into_iter()
            .enumerate()
    {
        bench.ask(number, request);
    }
    assert_eq!(bench.store.asked(), ["acquire b", "acquire c"], "the third is queued behind that for both");
    bench.store.answer(0, Ok(granted()));
    assert_eq!(bench.store.asked(), ["acquire c", "acquire a"], "that for both");
    bench.store.answer(1, Ok(granted()));
    assert_eq!(bench.store.asked(), ["acquire c", "acquire a"], "the third");
}

#[test]
fn i5_what_leaves_no_tombstone_is_not_sent_after_a_request_with_unknown_outcome() {
    let cancel = |claim: &Arc<Claim>, linger| Request::Cancel { claim: claim.clone(), linger };
    let a = claim("a");
    for takes_back in [release(&a), cancel(&a, Duration::ZERO)] {
        let bench = bench();
        bench.ask(0, acquire(&a));
        bench.ask(1, takes_back);
        bench.ask(2, cancel(&a, Duration::from_secs(9)));
        bench.store.answer(0, Err(unknown()));
        assert_eq!(bench.store.asked(), ["cancel a"], "the one with a tombstone");
        let answers = bench.answers();
        let [(0, Err(_)), (1, Err(error))] = &answers[..] else { panic!("{answers:?}") };
        assert!(error.may_have_acted(), "so that it is cancelled: {error}");
    }
}

#[test]
fn a_request_no_longer_wanted_is_not_sent() {
    let bench = bench();
    let (a, other) = (claim("a"), claim("a"));
    bench.ask(0, acquire(&a));
    bench.ask(1, acquire(&other));
    bench.ask(2, release(&other));
    bench.asker.gone.store(true, Ordering::Relaxed);
    bench.store.answer(0, Ok(granted()));
    assert_eq!(bench.store.asked(), ["release a"]);
    assert_eq!(bench.answers()[1], (1, Err(NodeError::NotAsked)));
}

/// It ended its lease, say, whose clean-up asked the node for another key, and waited for the lock.
#[test]
fn a_request_that_a_full_queue_refuses_is_answered_without_a_lock() {
    let (node, a) = (Arc::new(Store::default()), claim("a"));
    let node = Ordered { queues: Arc::new(Queues::of(node.clone())), node };
    for _ in 0..MOST_WAITING {
        node.ask(acquire(&a).into(), Responder::from_fn(drop));
    }
    let (queues, was_free) = (node.queues.clone(), Arc::<AtomicBool>::default());
    let seen = was_free.clone();
    let answered = move |_| seen.store(queues.state.try_lock().is_some(), Ordering::Relaxed);
    node.ask(acquire(&a).into(), Responder::from_fn(answered));
    assert!(was_free.load(Ordering::Relaxed));
}

#[test]
fn a_store_that_answers_immediately_needs_no_stack() {
    let bench = bench();
    let a = claim("a");
    for number in 0..MOST_WAITING {
        bench.ask(number, acquire(&a));
    }
    bench.ask(MOST_WAITING, acquire(&a));
    assert_eq!(bench.answers(), [(MOST_WAITING, Err(NodeError::Overloaded { waiting: MOST_WAITING }))]);
    bench.store.at_once.store(true, Ordering::Relaxed);
    let small = std::thread::Builder::new().stack_size(64 * 1024);
    let answers = std::thread::scope(|scope| {
        let answered = small.spawn_scoped(scope, || bench.store.answer(0, Ok(granted()))).unwrap();
        answered.join().unwrap();
        bench.answers()
    });
    assert_eq!(answers.len(), MOST_WAITING);
    assert!(answers.iter().all(|(_, vote)| *vote == Ok(Vote::Granted)));
}
