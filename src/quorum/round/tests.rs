use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Poll, Wake};

use futures::future::BoxFuture;

use super::waiting::SILENCE_CHECKS;
use super::*;
use crate::node::max_ttls::MaxTtls;
use crate::node::{Capabilities, Expiry, Holding, Identity, Node, Request, Vote};
use crate::runtime::clock::Sleep;
use crate::runtime::entropy::SystemEntropy;
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::LEAST_PATIENCE;
use quorlock_protocol::{Claim, Drift, FenceHint, FencingToken, Quarantine, Quorum, Token, Verdict};

const LIMIT: Duration = Duration::from_millis(50);
const TTL: Duration = Duration::from_secs(10);

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl SetClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Moment) -> Sleep {
        Box::pin(pending())
    }
}

/// A node that answers when the test says so.
#[derive(Clone, Debug, Default)]
struct ScriptedNode(Arc<Mutex<Option<Responder>>>, Arc<AtomicUsize>);

impl Node for ScriptedNode {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn ask(&self, _: SharedRequest, reply: Responder) {
        *self.0.lock() = Some(reply);
    }

    fn ready(&self) -> crate::runtime::BoxFuture<'static, Result<(), NodeError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A future that the test polls.
struct Waiter<T> {
    wait: BoxFuture<'static, T>,
    woken: Arc<CountingWaker>,
}

impl<T> Waiter<T> {
    fn look(&mut self) -> Option<T> {
        let waker = Waker::from(self.woken.clone());
        // Before it treats silence as a timeout it yields to other tasks.
        (0..=SILENCE_CHECKS).find_map(|_| match self.wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    }

    fn rung(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

struct Bench {
    clock: Arc<SetClock>,
    nodes: Vec<ScriptedNode>,
    members: Arc<Nodes>,
    round: Arc<Round>,
}

impl Bench {
    /// Starts a round on five nodes, of which `needed` must grant and those in `asked` are asked.
    fn of(needed: usize, asked: &[usize]) -> Bench {
        Bench::with(Some(LIMIT), needed, asked)
    }

    fn with(limit: Option<Duration>, needed: usize, asked: &[usize]) -> Bench {
        let clock = Arc::new(SetClock::default());
        let nodes = vec![(); 5].into_iter().map(|()| ScriptedNode::default()).collect::<Vec<_>>();
        let members = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Node>).collect();
        let quorum = Quorum::of(needed, 5).unwrap();
        let max_ttls = Arc::new(MaxTtls::new(LIMIT, Drift::default(), quorum));
        let members = Arc::new(Nodes::new(
            members,
            quorum,
            (clock.clone(), Arc::new(SystemEntropy)),
            (Quarantine::none(), max_ttls),
            limit,
        ));
        let round = Bench::ask(&members, asked);
        Bench { clock, nodes, members, round }
    }

    fn ask(members: &Arc<Nodes>, asked: &[usize]) -> Arc<Round> {
        let claim = Arc::new(Claim::new("r".into(), Token::new(7, "")));
        let request = SharedRequest::from(Request::Acquire { claim, ttl: TTL, fence_hint: None });
        let request = |index| asked.contains(&index).then(|| request.clone());
        Round::start(members, Expect::Hold, TTL, request)
    }

    fn new() -> Bench {
        Bench::of(3, &[0, 1, 2, 3, 4])
    }

    fn waiter<T, F: Future<Output = T> + Send + 'static>(
        &self,
        wait: impl FnOnce(Arc<Round>) -> F,
    ) -> Waiter<T> {
        Waiter { wait: Box::pin(wait(self.round.clone())), woken: Arc::default() }
    }

    fn verdict(&self) -> Waiter<Verdict> {
        self.waiter(|round| async move { round.verdict().await })
    }

    fn reply(&self, node: usize) -> Responder {
        self.nodes[node].0.lock().take().unwrap()
    }

    fn grant(&self, node: usize) {
        self.grant_as(node, &node.to_string());
    }

    fn grant_as(&self, node: usize, process: &str) {
        self.reply(node).send(Ok(granted(process)));
    }

    fn refuse(&self, node: usize) {
        let holding = Holding::new(Token::new(9, ""), Expiry::In(TTL));
        let identity = Arc::new(Identity::new(node.to_string(), Moment::ORIGIN, Duration::ZERO));
        self.reply(node).send(Ok(Response::new(holding.into(), identity)));
    }

    fn fail(&self, node: usize) {
        self.reply(node).send(Err(NodeError::NotAsked));
    }
}

fn granted(process: &str) -> Response {
    response(Vote::Granted, process)
}

fn response(vote: Vote, process: &str) -> Response {
    Response::new(vote, Arc::new(Identity::new(process, Moment::ORIGIN, Duration::ZERO)))
}

#[tokio::test]
async fn an_answer_without_effect_wakes_no_task() {
    let bench = Bench::new();
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.grant(4);
    bench.fail(3);
    bench.grant(0);
    assert_eq!(verdict.rung(), 0, "two are no quorum, but three may be");
    bench.grant(1);
    assert_eq!((verdict.rung(), verdict.look()), (1, Some(Verdict::Won)));
}

#[tokio::test]
async fn only_the_last_answer_wakes_a_task_waiting_for_all() {
    let bench = Bench::new();
    (0..3).for_each(|node| bench.grant(node));
    let mut settled = bench.waiter(|round| async move { round.settled().await });
    assert_eq!(settled.look(), None);
    bench.grant(3);
    assert_eq!(settled.rung(), 0, "one is outstanding");
    bench.grant(4);
    assert_eq!((settled.rung(), settled.look()), (1, Some(())));
    assert!(bench.round.all_voted());
}

#[tokio::test]
async fn the_last_answer_in_time_is_news_though_another_node_is_silent() {
    let mut bench = Bench::with(None, 3, &[0, 1, 2, 3, 4]);
    (0..4).for_each(|node| bench.grant(node));
    bench.clock.pass(Duration::from_millis(300));
    bench.grant(4);
    bench.round = Bench::ask(&bench.members, &[0, 1, 2, 3, 4]);
    (0..3).for_each(|node| bench.grant(node));
    let mut settled = bench.waiter(|round| async move { round.settled().await });
    assert_eq!(settled.look(), None);
    bench.clock.pass(Duration::from_secs(1));
    assert_eq!(settled.look(), None, "the other is distant, and has a longer timeout");
    bench.grant(4);
    assert_eq!((settled.rung(), settled.look()), (1, Some(())));
}

#[tokio::test]
async fn i46_answers_count_that_arrived_while_the_task_was_delayed() {
    let bench = Bench::new();
    let mut verdict = Box::pin(bench.round.verdict());
    assert!(futures::poll!(&mut verdict).is_pending());
    let replies: Vec<Responder> = (0..3).map(|node| bench.reply(node)).collect();
    // The task that reads the sockets runs after the one that waits.
    drop(tokio::spawn(async move {
        for (node, reply) in replies.into_iter().enumerate() {
            reply.send(Ok(granted(&node.to_string())));
        }
    }));
    bench.clock.pass(LIMIT * 10);
    assert_eq!(verdict.await, Verdict::Won);
}

const PATIENCE: Duration = LEAST_PATIENCE;
const MOMENT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_distant_node_has_a_few_of_its_own_round_trips() {
    let mut bench = Bench::with(None, 3, &[0, 1, 2, 3, 4]);
    bench.clock.pass(Duration::from_millis(100));
    bench.grant(4);
    (0..4).for_each(|node| bench.fail(node));
    bench.round = Bench::ask(&bench.members, &[0, 1, 2, 3, 4]);
    let mut verdict = bench.verdict();
    (0..2).for_each(|node| bench.grant(node));
    bench.refuse(2);
    bench.fail(3);
    bench.clock.pass(Duration::from_millis(599));
    assert_eq!(verdict.look(), None, "four round trips of 100 ms, and half of that for the deviation");
    bench.clock.pass(MOMENT);
    assert_eq!(verdict.look(), Some(Verdict::Contended));
}

#[tokio::test]
async fn the_preferred_node_is_not_waited_for_longer_than_it_should_need() {
    let bench = Bench::with(None, 3, &[0]);
    let mut refuses = bench.waiter(|round| async move { round.refuses(0).await });
    assert_eq!(refuses.look(), None);
    bench.clock.pass(PATIENCE.saturating_sub(MOMENT));
    assert_eq!(refuses.look(), None);
    bench.clock.pass(MOMENT);
    assert_eq!(refuses.look(), Some(false));
    bench.refuse(0);
    assert_eq!(bench.waiter(|round| async move { round.refuses(0).await }).look(), Some(true));
}

/// The first node is silent; the others are asked, answer, and have drawn different numbers.
#[tokio::test]
async fn an_attempt_is_woken_when_it_has_something_to_send_and_when_it_is_decided() {
    let bench = Bench::with(None, 3, &[]);
    let wanted = machine::Wanted {
        claim: Arc::new(Claim::new("r".into(), Token::new(7, ""))),
        ttl: TTL,
        fence_hint: Some(FenceHint::at(Duration::from_secs(1), None, TTL)),
    };
    let attempt = Attempt::ask(&*bench.members, bench.clock.now(), wanted, Some(0));
    let attempt = Driven::attempt(&bench.members, attempt);
    let waiter = || {
        let waited_for = attempt.clone();
        Waiter { wait: Box::pin(async move { waited_for.decided().await }), woken: Arc::default() }
    };
    let mut first = waiter();
    assert_eq!(first.look(), None);
    bench.clock.pass(PATIENCE.saturating_sub(MOMENT));
    assert_eq!(first.look(), None);
    bench.clock.pass(MOMENT);
    assert_eq!(first.look(), Some(None), "the others are to be asked");
    attempt.send_due(bench.clock.now());
    let mut votes = waiter();
    assert_eq!(votes.look(), None);
    for node in 1..4 {
        let number = FencingToken::new(u64::try_from(node).unwrap());
        bench.reply(node).send(Ok(granted(&node.to_string()).with_fencing_token(number)));
    }
    assert_eq!((votes.rung(), votes.look()), (1, Some(None)), "the number is to be written back");
    attempt.send_due(bench.clock.now());
    let mut write_back = waiter();
    assert_eq!(write_back.look(), None);
    (0..3).for_each(|node| bench.grant(node));
    assert_eq!((write_back.rung(), write_back.look()), (1, Some(Some(Verdict::Won))));
    assert_eq!(waiter().look(), Some(Some(Verdict::Won)), "it stays");
    assert_eq!(attempt.with(|attempt, _| (attempt.number(), attempt.rounds())), (FencingToken::new(4), 2));
}

#[tokio::test]
async fn a_receive_time_of_another_clock_is_ignored() {
    let bench = Bench::new();
    let (at, other) = (Moment::ORIGIN + LIMIT, SetClock::default());
    bench.reply(0).send_received(Ok(granted("0")), ReceivedAt { at, clock: &other });
    assert_eq!(bench.round.report().votes()[0].took, Duration::ZERO);
    bench.reply(1).send_received(Ok(granted("1")), ReceivedAt { at, clock: &*bench.clock });
    assert_eq!(bench.round.report().votes()[1].took, LIMIT);
}

#[tokio::test]
async fn a_task_that_stops_waiting_leaves_the_others_waiting() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.verdict(), bench.verdict());
    assert_eq!((one.look(), other.look()), (None, None));
    let woken = one.woken.clone();
    drop(one);
    assert_eq!(Arc::strong_count(&woken), 1, "no waker is kept of a task that stopped waiting");
    assert_eq!((other.rung(), other.look()), (1, None), "it registers again");
    (0..3).for_each(|node| bench.grant(node));
    assert_eq!((other.rung(), other.look()), (2, Some(Verdict::Won)));
}

#[tokio::test]
async fn a_node_that_is_asked_again_is_woken_and_measures_no_round_trip() {
    let bench = Bench::new();
    let claim = Arc::new(Claim::new("r".into(), Token::new(7, "")));
    let terms = machine::Terms {
        of: machine::Of::Lease,
        ttl: TTL,
        linger: TTL,
        drift: Drift::default(),
        is_wanted: false,
        offer: None,
    };
    let states = KeyStates::of([KeyState::Holds]);
    let undo = Undo::start(&*bench.members, bench.clock.now(), &claim, states, terms).unwrap();
    let undo = Driven::undo(&bench.members, undo);
    bench.fail(0);
    assert!(bench.nodes[0].0.lock().is_none(), "not immediately");
    bench.clock.pass(TTL / 2);
    undo.ask_again(bench.clock.now());
    assert_eq!(bench.nodes[0].1.load(Ordering::Relaxed), 1);
    bench.grant(0);
    assert!(undo.with(|undo, _| undo.is_settled()));
    assert_eq!(bench.members.round_trip(0), None, "five seconds are none");
}
