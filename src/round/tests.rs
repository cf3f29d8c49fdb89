use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Wake};

use futures::future::BoxFuture;

use super::*;
use crate::clock::Sleep;
use crate::max_ttls::MaxTtls;
use crate::node::{Instance, Node, Question};
use crate::protocol::{Claim, Drift, Quarantine, Token};

const LIMIT: Duration = Duration::from_millis(50);
const TTL: Duration = Duration::from_secs(10);

/// A clock that somebody sets.
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

/// A node that answers when it is told to.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Option<Reply>>>);

impl Node for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn ask(&self, _: Asked, reply: Reply) {
        *self.0.lock().unwrap() = Some(reply);
    }
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Somebody who waits for something.
struct Waiter<T> {
    wait: BoxFuture<'static, T>,
    bell: Arc<Bell>,
}

impl<T> Waiter<T> {
    fn look(&mut self) -> Option<T> {
        let waker = Waker::from(self.bell.clone());
        match self.wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn rung(&self) -> usize {
        self.bell.0.load(Ordering::Relaxed)
    }
}

struct Bench {
    clock: Arc<SetClock>,
    nodes: Vec<Told>,
    members: Arc<Nodes>,
    round: Arc<Round>,
}

impl Bench {
    /// A round of five of which so many are needed, and those given are asked.
    fn of(needed: usize, asked: &[usize]) -> Bench {
        let clock = Arc::new(SetClock::default());
        let nodes = vec![(); 5].into_iter().map(|()| Told::default()).collect::<Vec<_>>();
        let members = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Node>).collect();
        let quorum = Quorum::of(needed, 5).unwrap();
        let max_ttls = Arc::new(MaxTtls::new(LIMIT, Drift::default(), quorum));
        let members =
            Arc::new(Nodes::new(members, quorum, clock.clone(), (Quarantine::none(), max_ttls), LIMIT));
        let round = Bench::ask(&members, asked);
        Bench { clock, nodes, members, round }
    }

    fn ask(members: &Arc<Nodes>, asked: &[usize]) -> Arc<Round> {
        let claim = Arc::new(Claim::new("r".into(), Token::new(7, "")));
        let question = Asked::from(Question::Acquire { claim, ttl: TTL, draw: None });
        let question = |index| asked.contains(&index).then(|| question.clone());
        Round::start(members, Aim::Hold, TTL, question)
    }

    fn new() -> Bench {
        Bench::of(3, &[0, 1, 2, 3, 4])
    }

    fn waiter<T, F: Future<Output = T> + Send + 'static>(
        &self,
        wait: impl FnOnce(Arc<Round>) -> F,
    ) -> Waiter<T> {
        Waiter { wait: Box::pin(wait(self.round.clone())), bell: Arc::default() }
    }

    fn verdict(&self) -> Waiter<Verdict> {
        self.waiter(|round| async move { round.verdict().await })
    }

    fn reply(&self, node: usize) -> Reply {
        self.nodes[node].0.lock().unwrap().take().unwrap()
    }

    fn grant(&self, node: usize) {
        self.grant_as(node, &node.to_string());
    }

    fn grant_as(&self, node: usize, process: &str) {
        self.reply(node).send(Ok(granted(process)));
    }

    fn fail(&self, node: usize) {
        self.reply(node).send(Err(NodeError::NotAsked));
    }
}

fn granted(process: &str) -> Answer {
    said(Vote::Granted, process)
}

fn said(vote: Vote, process: &str) -> Answer {
    Answer::new(vote, Arc::new(Instance::new(process, Moment::ORIGIN, Duration::ZERO)))
}

#[tokio::test]
async fn an_answer_that_decides_nothing_wakes_nobody() {
    let bench = Bench::new();
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.grant(4);
    bench.fail(3);
    bench.grant(0);
    assert_eq!(verdict.rung(), 0, "two are no quorum, and three may still be one");
    bench.grant(1);
    assert_eq!((verdict.rung(), verdict.look()), (1, Some(Verdict::Carried)));
}

#[tokio::test]
async fn the_last_answer_wakes_whoever_waits_for_it_and_those_before_it_do_not() {
    let bench = Bench::new();
    (0..3).for_each(|node| bench.grant(node));
    let mut settled = bench.waiter(|round| async move { round.settled().await });
    assert_eq!(settled.look(), None);
    bench.grant(3);
    assert_eq!(settled.rung(), 0, "one is to come");
    bench.grant(4);
    assert_eq!((settled.rung(), settled.look()), (1, Some(())));
    assert!(bench.round.all_voted());
}

#[tokio::test]
async fn fewer_than_are_needed_may_decide_that_it_is_in_vain() {
    let bench = Bench::of(4, &[0, 1, 2, 3, 4]);
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.fail(0);
    assert_eq!(verdict.rung(), 0);
    bench.fail(1);
    assert_eq!((verdict.rung(), verdict.look()), (1, Some(Verdict::Unavailable)));
}

#[tokio::test]
async fn nodes_that_need_not_be_asked_count_as_if_they_had_done_as_asked() {
    assert_eq!(Bench::of(3, &[]).verdict().look(), Some(Verdict::Carried));
    let bench = Bench::of(3, &[3, 4, 0]);
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.grant(3);
    assert_eq!((verdict.rung(), verdict.look()), (1, Some(Verdict::Carried)));
}

#[tokio::test]
async fn once_the_time_of_a_node_is_up_each_answer_counts() {
    let bench = Bench::new();
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.clock.pass(LIMIT);
    bench.grant(0);
    assert_eq!((verdict.rung(), verdict.look()), (1, Some(Verdict::Unavailable)), "four are too late");
}

#[tokio::test]
async fn the_last_answer_in_time_is_news_though_another_node_is_silent() {
    let mut bench = Bench::new();
    bench.clock.pass(LIMIT * 3 / 5);
    bench.grant(4);
    bench.round = Bench::ask(&bench.members, &[0, 1, 2, 3, 4]);
    (0..3).for_each(|node| bench.grant(node));
    let mut settled = bench.waiter(|round| async move { round.settled().await });
    assert_eq!(settled.look(), None);
    bench.clock.pass(LIMIT);
    assert_eq!(settled.look(), None, "the other is a slow one, and has more time");
    bench.grant(4);
    assert_eq!((settled.rung(), settled.look()), (1, Some(())));
}

#[tokio::test]
async fn a_verdict_that_rests_on_silence_changes_when_somebody_speaks() {
    let bench = Bench::new();
    (0..2).for_each(|node| bench.grant(node));
    let mut verdict = bench.verdict();
    assert_eq!(verdict.look(), None);
    bench.clock.pass(LIMIT);
    assert_eq!(verdict.look(), Some(Verdict::Unavailable));
    bench.grant(2);
    assert_eq!(bench.verdict().look(), Some(Verdict::Carried));
}

#[tokio::test]
async fn two_answers_of_one_process_are_one_vote_in_whichever_order_they_come() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let bench = Bench::new();
        for node in order {
            bench.grant_as(node, if node == 1 { "one" } else { "two" });
        }
        assert_eq!(bench.verdict().look(), None, "two processes are no quorum");
        bench.grant_as(3, "three");
        assert_eq!(bench.verdict().look(), Some(Verdict::Carried));
    }
}

#[tokio::test]
async fn one_that_calls_itself_by_the_name_of_another_takes_no_vote_away() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]] {
        let bench = Bench::new();
        for node in order {
            let vote = if node == 0 { Vote::Free } else { Vote::Granted };
            // The first calls itself as the second does, and refuses.
            let process = node.max(1).to_string();
            bench.reply(node).send(Ok(said(vote, &process)));
        }
        assert_eq!(bench.verdict().look(), Some(Verdict::Carried), "three have granted: {order:?}");
        let ballot = bench.round.ballot();
        assert!(matches!(ballot.papers()[0].said, Said::Duplicate { .. }), "{ballot}");
    }
}

#[tokio::test]
async fn a_key_that_one_address_of_a_server_stored_anew_is_not_confirmed_by_the_other() {
    for restored in [0, 1] {
        let bench = Bench::new();
        for node in 0..4 {
            let vote = if node == restored { Vote::Restored } else { Vote::Granted };
            bench.reply(node).send(Ok(said(vote, &node.max(1).to_string())));
        }
        assert_eq!(bench.round.tally(Moment::ORIGIN).granted(), 2, "somebody may have held it in between");
    }
}

#[tokio::test]
async fn what_another_clock_says_of_an_answer_is_not_believed() {
    let bench = Bench::new();
    let (at, other) = (Moment::ORIGIN + LIMIT, SetClock::default());
    bench.reply(0).send_what_came(Ok(granted("0")), Came { at, clock: &other });
    assert_eq!(bench.round.ballot().papers()[0].took, Duration::ZERO);
    bench.reply(1).send_what_came(Ok(granted("1")), Came { at, clock: &*bench.clock });
    assert_eq!(bench.round.ballot().papers()[1].took, LIMIT);
}

#[tokio::test]
async fn whoever_waits_for_one_node_hears_its_answer_whatever_was_decided_before() {
    let bench = Bench::new();
    (0..3).for_each(|node| bench.grant(node));
    let mut answer = bench.waiter(|round| async move { round.answer_of(3).await });
    assert_eq!(answer.look(), None);
    bench.grant(3);
    assert_eq!((answer.rung(), answer.look()), (1, Some(Some(Ok(Vote::Granted)))));
}

#[tokio::test]
async fn whoever_stops_waiting_is_forgotten_and_the_others_are_not() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.verdict(), bench.verdict());
    assert_eq!((one.look(), other.look()), (None, None));
    let bell = one.bell.clone();
    drop(one);
    assert_eq!(Arc::strong_count(&bell), 1, "nothing is kept of a task that waits no longer");
    assert_eq!((other.rung(), other.look()), (1, None), "it comes back");
    (0..3).for_each(|node| bench.grant(node));
    assert_eq!((other.rung(), other.look()), (2, Some(Verdict::Carried)));
}

/// Others may have raised the counter since; see docs/adr/0016-without-scripts.md.
#[test]
fn a_refusal_tells_the_number_of_the_holder_and_not_that_of_the_counter() {
    let (wanted, counter) = (crate::FencingToken::new(41).unwrap(), crate::FencingToken::new(99));
    let token = crate::Token::numbered(1, wanted, "");
    let held = Vote::from(crate::Holding::new(token, crate::Expiry::Never));
    let instance = Arc::new(crate::Instance::new("a", Moment::ORIGIN, Duration::ZERO));
    let answer = Answer::new(held, instance).with_fencing_token(counter);
    assert_eq!(answer.number_told(false), Some(wanted));
    assert_eq!(answer.number_told(true), counter, "who asked was told what was drawn for the holder");
}
