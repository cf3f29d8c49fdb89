//! What an idle lease costs.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Bench, TTL, bench, bench_with};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Fencing, Lease, RenewError,
    node::{
        Capabilities, Hint, HintListener, Identity, Node, Request, Responder, Response, SharedRequest, Vote,
    },
    runtime::{Clock, Sleep},
};
use quorlock_testkit::{MemoryNode, TokioClock, WrappedNode};

/// Counts the timers that are waiting.
#[derive(Clone, Debug)]
struct Counting {
    clock: TokioClock,
    sleeping: Arc<AtomicUsize>,
}

impl Clock for Counting {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        Box::pin(Counted { sleep: self.clock.sleep_until(moment), sleeping: self.sleeping.clone() })
    }
}

struct Counted {
    sleep: Sleep,
    sleeping: Arc<AtomicUsize>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(context)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn a_hundred_leases(bench: &Bench) -> Vec<Lease> {
    let acquire = async |number| bench.coordinator.lock(format!("r{number}")).acquire().await.unwrap();
    join_all((0..100).map(acquire)).await
}

/// Before, each had its own timer, which fired once a second.
#[tokio::test(start_paused = true)]
async fn a_hundred_leases_and_their_watchers_share_one_timer_and_see_the_loss() {
    let clock = Counting { clock: TokioClock::new(), sleeping: Arc::default() };
    let bench = bench_with(5, |builder| builder.clock(clock.clone()));
    let leases = a_hundred_leases(&bench).await;
    bench.pass(TTL).await;
    let sleeping = clock.sleeping.load(Ordering::Relaxed);
    assert!(sleeping <= 1, "{sleeping} timers for {} leases", leases.len());
    let watching: Vec<_> = leases
        .iter()
        .map(|lease| {
            let (watch, clock) = (lease.watch(), clock.clone());
            tokio::spawn(async move {
                let lost = watch.lost().await;
                (lost, clock.now())
            })
        })
        .collect();
    for _ in 0..3 {
        bench.pass(TTL).await;
        let sleeping = clock.sleeping.load(Ordering::Relaxed);
        assert!(sleeping <= 1, "{sleeping} timers for {} watchers", watching.len());
        assert!(leases.iter().all(|lease| lease.check().is_ok()), "all of them are renewed");
    }
    let ends: Vec<_> = leases.iter().map(|lease| clock.now() + lease.remaining()).collect();
    bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::hang);
    for (watching, end) in watching.into_iter().zip(ends) {
        let (_, notified) = watching.await.unwrap();
        assert!(notified <= end, "it was notified {:?} after the end of its lease", notified.since(end));
    }
}

#[tokio::test(start_paused = true)]
async fn idle_leases_have_no_task() {
    let bench = bench(5);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let leases = a_hundred_leases(&bench).await;
    for _ in 0..7 {
        assert!(tasks() <= before + 1, "{} tasks besides the timer driver", tasks() - before - 1);
        bench.pass(TTL / 2).await;
        bench.settle().await;
        assert!(leases.iter().all(|lease| lease.check().is_ok()), "all of them are renewed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_acquired_and_released_without_a_task() {
    let bench = bench(5);
    bench.lock().acquire().await.unwrap().release().await.unwrap();
    // These nodes answer immediately.
    let lease = bench.lock().acquire().now_or_never().expect("it waits for no task").unwrap();
    lease.release().now_or_never().expect("it waits for no task").unwrap();
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn late_answers_to_a_release_need_no_task() {
    let bench = bench(5);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    bench.nodes[3..].iter().for_each(|node| node.delay(Duration::from_millis(5), Duration::from_millis(5)));
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(Duration::from_millis(20)).await;
    let before = tasks();
    lease.release().await.unwrap();
    assert_eq!(bench.keys(), 2, "not all have answered");
    // Nodes in memory have a task for each delayed answer.
    assert!(tasks() <= before + 2, "{} tasks for 2 answers", tasks() - before);
    bench.pass(Duration::from_millis(20)).await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_needs_no_task_unless_nodes_are_silent() {
    let bench = bench(5);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    let before = tasks();
    assert_eq!(lease.renew().now_or_never(), Some(Ok(())), "the last response of a quorum decides it");
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    let began = bench.clock.now();
    let mut renewing = Box::pin(lease.renew());
    assert!(renewing.as_mut().now_or_never().is_none());
    // Nodes in memory have a task for each delayed answer, and the lease has a timer.
    assert!(tasks() <= before + 6, "{} tasks for 5 answers", tasks() - before);
    renewing.await.unwrap();
    assert_eq!(bench.clock.now().since(began), Duration::from_millis(10), "when the answers arrive");
    bench.nodes[..3].iter().for_each(MemoryNode::hang);
    let error = lease.renew().await.unwrap_err();
    assert!(matches!(error, RenewError::Unconfirmed { .. }), "{error}");
    let took = bench.clock.now().since(began) - Duration::from_millis(10);
    assert!(took <= Duration::from_secs(2), "silence counts after {took:?}");
    bench.nodes[..3].iter().for_each(MemoryNode::resume);
    bench.pass(TTL).await;
    assert_eq!(lease.check(), Ok(()), "and it is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_due_before_the_others_is_renewed_in_time() {
    let bench = bench(5);
    let long = bench.coordinator.lock("long").acquire().await.unwrap();
    let short = bench.coordinator.lock("short").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    for _ in 0..30 {
        bench.pass(Duration::from_millis(100)).await;
        assert_eq!(short.check(), Ok(()));
    }
    assert_eq!(long.check(), Ok(()));
}

/// Grants every request, and can delay its answers.
#[derive(Clone, Debug)]
struct Voter {
    name: String,
    identity: Arc<Identity>,
    /// The requests whose answers are held back.
    kept: Arc<Mutex<Option<Vec<Responder>>>>,
    released: Arc<AtomicUsize>,
}

impl Voter {
    fn new(number: usize, clock: &TokioClock) -> Voter {
        let identity = Identity::new(format!("process {number}"), clock.now(), Duration::from_secs(3600));
        let name = format!("voter {number}");
        Voter { name, identity: Arc::new(identity), kept: Arc::default(), released: Arc::default() }
    }

    fn answer(&self, reply: Responder) {
        reply.send(Ok(Response::new(Vote::Granted, self.identity.clone())));
    }

    fn hold_answers(&self) {
        *self.kept.lock().unwrap() = Some(Vec::new());
    }

    fn send_answers(&self) {
        let kept = self.kept.lock().unwrap().take();
        kept.into_iter().flatten().for_each(|reply| self.answer(reply));
    }

    /// How many answer slots are still referenced.
    fn answers_kept(&self) -> usize {
        // The test and the coordinator share each node.
        Arc::strong_count(&self.identity) - 2
    }
}

impl Node for Voter {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        if matches!(*request, Request::Release { .. }) {
            self.released.fetch_add(1, Ordering::Relaxed);
        }
        match &mut *self.kept.lock().unwrap() {
            Some(kept) => kept.push(reply),
            None => self.answer(reply),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_frees_all_answers_and_still_knows_its_nodes() {
    let clock = TokioClock::new();
    let voters: Vec<_> = (0..5).map(|number| Voter::new(number, &clock)).collect();
    let coordinator = Coordinator::builder().custom_nodes(voters.clone()).clock(clock).build().unwrap();
    let (late, prompt) = voters.split_last().unwrap();
    late.hold_answers();
    let lease = coordinator.lock("r").fencing(Fencing::Off).acquire().await.unwrap();
    clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
    assert!(prompt.iter().all(|voter| voter.answers_kept() == 1), "one answer is missing: {voters:?}");
    assert!(format!("{late:?}").contains("Responder"), "a delayed answer keeps its responder: {late:?}");
    late.send_answers();
    assert!(voters.iter().all(|voter| voter.answers_kept() == 0), "{voters:?}");
    late.hold_answers();
    lease.renew().await.unwrap();
    assert!(prompt.iter().all(|voter| voter.answers_kept() == 1), "one answer is missing: {voters:?}");
    late.send_answers();
    assert!(voters.iter().all(|voter| voter.answers_kept() == 0), "{voters:?}");
    lease.release().await.unwrap();
    let released = voters.iter().map(|voter| voter.released.load(Ordering::Relaxed));
    assert_eq!(released.collect::<Vec<_>>(), [1; 5], "also where the answer was late");
}

/// A clock that runs an action while it is read.
#[derive(Clone, Default)]
struct Meddling {
    clock: TokioClock,
    /// After how many more readings, and the action.
    plan: Arc<Mutex<Option<(usize, Meddle)>>>,
}

type Meddle = Box<dyn FnOnce() + Send>;
type Renewing = BoxFuture<'static, Result<(), RenewError>>;

/// Has `lease` renewed at this reading of the clock, counted from now. Returns where the renewal is found then, unless it is
/// over immediately.
fn renew_at<K: Send + Sync + 'static>(
    reading: usize,
    clock: &Meddling,
    lease: &Arc<Lease<K>>,
) -> Arc<Mutex<Option<Renewing>>> {
    let (asked, lent) = (Arc::new(Mutex::new(None)), lease.clone());
    let keep = asked.clone();
    let meddle = move || {
        let mut renewing = async move { lent.renew().await }.boxed();
        match renewing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(renewed) => renewed.unwrap(),
            Poll::Pending => *keep.lock().unwrap() = Some(renewing),
        }
    };
    *clock.plan.lock().unwrap() = Some((reading, Box::new(meddle)));
    asked
}

impl Clock for Meddling {
    fn now(&self) -> Moment {
        let due = {
            let mut plan = self.plan.lock().unwrap();
            match &mut *plan {
                Some((left, _)) if *left > 0 => {
                    *left -= 1;
                    None
                }
                _ => plan.take(),
            }
        };
        if let Some((_, meddle)) = due {
            meddle();
        }
        self.clock.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.clock.sleep_until(moment)
    }
}

impl std::fmt::Debug for Meddling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meddling")
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_obeys_commands_at_any_moment_of_a_renewal() {
    let mut meddled = 0;
    for reading in 0..100 {
        let clock = Meddling::default();
        let bench = bench_with(3, |builder| builder.clock(clock.clone()));
        let lease = Arc::new(bench.lock().acquire().await.unwrap());
        let wanted = renew_at(reading, &clock, &lease);
        lease.renew().await.unwrap();
        bench.settle().await;
        let renewing = wanted.lock().unwrap().take();
        if let Some(renewing) = renewing {
            meddled += 1;
            let renewed = renewing.now_or_never().expect("the clock is read");
            assert_eq!(renewed, Ok(()), "the command at reading {reading} of the clock was lost");
        }
    }
    assert!((5..100).contains(&meddled), "the clock is read several times, and finitely often: {meddled}");
}

/// A node that counts what is asked of it in the middle of a report: it may have locked then what it needs.
fn strict(node: MemoryNode, violations: &Arc<AtomicUsize>) -> WrappedNode {
    let (reporting, violations) = (Arc::<AtomicBool>::default(), violations.clone());
    let reports = reporting.clone();
    WrappedNode::new(node)
        .on_listen(move |listener, inner| {
            inner.listen(Arc::new(Reported { listener, reporting: reports.clone() }));
        })
        .on_request(move |request, responder, inner| {
            violations.fetch_add(usize::from(reporting.load(Ordering::Relaxed)), Ordering::Relaxed);
            inner.ask(request, responder);
        })
}

#[derive(Debug)]
struct Reported {
    listener: Arc<dyn HintListener>,
    reporting: Arc<AtomicBool>,
}

impl HintListener for Reported {
    fn on_hint(&self, hint: Hint<'_>) {
        self.reporting.store(true, Ordering::Relaxed);
        self.listener.on_hint(hint);
        self.reporting.store(false, Ordering::Relaxed);
    }
}

/// A node of ZooKeeper that was asked in its report waited for itself, and the process for the node.
#[tokio::test(start_paused = true)]
async fn i54_a_node_is_asked_nothing_while_it_reports_a_change() {
    let mut meddled = 0;
    for reading in 0..20 {
        let (bench, violations) = (bench(3), Arc::new(AtomicUsize::new(0)));
        let clock = Meddling::default();
        let nodes = bench.nodes.iter().map(|node| strict(node.clone(), &violations));
        let client = Coordinator::builder().custom_nodes(nodes).clock(clock.clone()).build().unwrap();
        let lease = Arc::new(client.lock("r").ttl(TTL).acquire().await.unwrap());
        lease.renew().await.unwrap();
        bench.settle().await;
        let wanted = renew_at(reading, &clock, &lease);
        bench.nodes[0].remove("r");
        bench.settle().await;
        let renewing = wanted.lock().unwrap().take();
        if let Some(renewing) = renewing {
            meddled += 1;
            renewing.await.unwrap();
        }
        assert_eq!(violations.load(Ordering::Relaxed), 0, "the clock was read {reading} times before");
        lease.check().unwrap();
    }
    assert!((1..20).contains(&meddled), "the clock is read several times, and finitely often: {meddled}");
}
