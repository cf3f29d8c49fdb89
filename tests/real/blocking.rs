//! The blocking API: from threads, from async programs by mistake, and while a program ends.

mod outage;
mod watching;

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use quorlock::blocking::{Background, Coordinator, DowngradeError, Lock};
use quorlock::{
    AcquireError, Builder, ConfigError, LossReason, Owner, PermitError, RenewError, Renewal, RestartGuard,
    Wait, WithError, election::Observed, protocol::Mode,
};
use quorlock_testkit::{MemoryNode, Servers, memory_nodes, patience, until};

const TTL: Duration = Duration::from_secs(20);

struct Bench {
    nodes: Vec<MemoryNode>,
    coordinator: Coordinator,
}

fn bench() -> Bench {
    let nodes = memory_nodes(5);
    let coordinator = Builder::default().custom_nodes(nodes.clone()).ttl(TTL).build_blocking().unwrap();
    Bench { nodes, coordinator }
}

impl Bench {
    fn lock(&self) -> Lock {
        self.coordinator.lock("r").wait(Wait::UpTo(patience()))
    }

    fn keys(&self) -> usize {
        self.nodes.iter().filter(|node| node.holder("r").is_some()).count()
    }

    fn wait_until_free(&self) {
        wait_until("no key left", || self.keys() == 0);
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(until(what, async || condition()));
}

#[test]
fn a_thread_acquires_renews_and_releases() {
    let bench = bench();
    let lease = bench.lock().label("plain").acquire().unwrap();
    assert_eq!(bench.keys(), 5);
    assert_eq!((lease.resource().as_str(), lease.check()), ("r", Ok(())));
    assert!(lease.token().to_string().ends_with(" plain"));
    assert!(bench.lock().try_acquire().unwrap().is_none());
    assert_eq!(bench.lock().inspect().unwrap().holder().unwrap().token, *lease.token());
    lease.renew().unwrap();
    lease.extend(Duration::from_secs(30)).unwrap();
    let first = lease.fencing_token();
    lease.release().unwrap();
    bench.wait_until_free();
    assert!(bench.lock().acquire().unwrap().fencing_token() > first);
}

#[test]
fn a_thread_holds_several_locks() {
    let bench = bench();
    let lease = bench.coordinator.lock_all(["r", "another"]).acquire().unwrap();
    assert_eq!((bench.keys(), lease.resource().as_str()), (5, "another + r"));
    assert!(bench.lock().try_acquire().unwrap().is_none());
    lease.release().unwrap();
    bench.wait_until_free();
}

#[test]
fn a_closure_runs_under_the_lock_and_reports_a_loss() {
    let bench = bench();
    let value = bench.lock().with(|lease| Ok::<_, WithError>(lease.check().map(|()| 42)?)).unwrap();
    assert_eq!(value, 42);
    let failed = bench.lock().with(|_| Err::<(), _>(WithError::Work(ConfigError::NoNodes))).unwrap_err();
    assert_eq!(failed, WithError::Work(ConfigError::NoNodes));
    let outlived = bench.lock().max_hold(Duration::from_millis(50)).with(|lease| {
        // A thread cannot be stopped: it waits for its own loss here, and continues.
        assert!(lease.lost_within(patience()).is_some());
        Ok::<_, WithError>(42)
    });
    let Err(WithError::Lost(lost)) = outlived else { panic!("it ran on after its end: {outlived:?}") };
    assert_eq!(lost.reason, LossReason::MaxHold);
    bench.wait_until_free();
}

#[test]
fn waiting_for_a_loss_respects_its_timeout() {
    let bench = bench();
    let lease = bench.lock().acquire().unwrap();
    assert_eq!(lease.lost_within(Duration::from_millis(1)), None);
    let short = Builder::default().custom_nodes(memory_nodes(3)).build_blocking().unwrap();
    let ends = short.lock("r").ttl(Duration::from_secs(1)).renewal(Renewal::Manual).acquire().unwrap();
    assert_eq!(ends.lost_within(patience()).unwrap().reason, LossReason::Expired);
    assert!(matches!(ends.renew(), Err(RenewError::Lost(_))));
    assert_eq!(ends.release().unwrap_err().reason, LossReason::Expired);
}

#[test]
fn a_thread_may_block_until_the_lease_is_lost() {
    let bench = bench();
    let lease = bench.lock().max_hold(Duration::from_millis(50)).acquire().unwrap();
    let (news, hears) = mpsc::channel();
    let other = bench.coordinator.clone();
    lease.on_lost(move |lost| {
        // A call that waits, on the thread on which it was told.
        other.lock("another").acquire().unwrap().release().unwrap();
        news.send(lost.reason).unwrap();
    });
    assert_eq!(hears.recv_timeout(patience()), Ok(LossReason::MaxHold));
    assert!(lease.check().is_err());
}

#[test]
fn each_of_many_listeners_is_called_while_others_block() {
    const LISTENERS: usize = 600;
    let bench = bench();
    let lease = bench.lock().acquire().unwrap();
    let (news, hears) = mpsc::channel();
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap();
    for _ in 0..LISTENERS {
        let (news, gate) = (news.clone(), gate.clone());
        lease.on_lost(move |lost| {
            news.send(lost.reason).unwrap();
            drop(gate.read().unwrap());
        });
    }
    lease.release().unwrap();
    for called in 0..LISTENERS {
        assert_eq!(hears.recv_timeout(patience()), Ok(LossReason::Released), "{called} were called");
    }
    drop(closed);
}

#[test]
fn work_that_is_woken_all_the_time_is_checked_all_the_same() {
    let coordinator = Builder::default().custom_nodes(memory_nodes(3)).build().unwrap();
    let background = Background::beside(&coordinator).unwrap();
    let mut polls = 0_u32;
    let busy = poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls < 20_000_000 { Poll::Pending } else { Poll::Ready(()) }
    });
    let ended = background.run_checking(Duration::from_millis(1), || Err("checked"), busy);
    assert_eq!(ended, Err("checked"));
}

#[test]
fn a_thread_that_panics_gives_its_lock_back() {
    let bench = bench();
    let lock = bench.lock();
    let panicked = thread::spawn(move || {
        let _lease = lock.acquire().unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    panicked.join().unwrap_err();
    bench.wait_until_free();
    let lock = bench.lock();
    thread::spawn(move || {
        lock.with(|_| -> Result<(), WithError> { std::panic::resume_unwind(Box::new("again")) })
    })
    .join()
    .unwrap_err();
    bench.wait_until_free();
}

#[test]
fn a_writer_downgrades_to_a_reader() {
    let bench = bench();
    let writer = bench.lock().acquire().unwrap();
    let token = writer.fencing_token();
    let reader = writer.downgrade().unwrap();
    assert_eq!((reader.mode(), reader.fencing_token(), reader.check()), (Mode::Shared, token, Ok(())));
    let other = bench.lock().shared().try_acquire().unwrap().unwrap();
    assert!(bench.lock().try_acquire().unwrap().is_none(), "both read");
    reader.renew().unwrap();
    reader.release().unwrap();
    other.release().unwrap();
    bench.wait_until_free();
    let over = bench.lock().max_hold(Duration::from_millis(50)).acquire().unwrap();
    assert!(over.lost_within(patience()).is_some());
    assert!(
        matches!(over.downgrade(), Err(DowngradeError::Lost(lost)) if lost.reason == LossReason::MaxHold)
    );
    let owner = Owner::new();
    let outer = bench.lock().owner(&owner).acquire().unwrap();
    let inner = bench.lock().owner(&owner).acquire().unwrap();
    let Err(DowngradeError::HeldAgain { lease: inner, .. }) = inner.downgrade() else {
        panic!("the outer lease may rely on being alone");
    };
    inner.release().unwrap();
    assert_eq!(outer.downgrade().unwrap().mode(), Mode::Shared);
}

#[test]
fn threads_never_hold_more_permits_than_a_semaphore_has() {
    let bench = bench();
    let semaphore = bench.coordinator.semaphore("s", 3).wait(Wait::UpTo(patience()));
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let permit = semaphore.acquire().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    assert!(permit.number() < 3);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().unwrap();
                }
            });
        }
    });
    assert!(most.into_inner() <= 3, "more holders than permits");
    let held: Vec<_> = (0..3).map(|_| semaphore.acquire().unwrap()).collect();
    assert!(semaphore.try_acquire().unwrap().is_none(), "full");
    assert_eq!(semaphore.inspect().unwrap().len(), 3);
    let brief = semaphore.clone().wait(Wait::UpTo(Duration::from_millis(20)));
    assert!(matches!(brief.acquire(), Err(PermitError::Full { .. })));
    drop(held);
    let number = semaphore.with(|permit| {
        permit.check()?;
        Ok::<_, WithError<Infallible, PermitError>>(permit.number())
    });
    assert!(number.unwrap() < 3, "the work knows which permit it has");
    let other = bench.coordinator.semaphore("s", 4);
    let first = semaphore.acquire().unwrap();
    assert!(matches!(other.acquire(), Err(PermitError::OtherPermits { .. })), "another number of permits");
    first.release().unwrap();
    let none = bench.coordinator.semaphore("s", 0);
    assert!(matches!(none.validate(), Err(ConfigError::Permits { given: 0, .. })));
}

#[test]
fn one_thread_of_two_leads_and_a_third_watches() {
    let bench = bench();
    let election = bench.coordinator.election("e").wait(Wait::UpTo(patience()));
    let mut observer = election.observe().unwrap();
    assert_eq!(observer.changed(), Observed::NoLeader);
    assert_eq!(observer.changed_within(Duration::from_millis(1)), None);
    let first = election.campaign("one").unwrap();
    let Observed::Leader(leader) = observer.changed() else { panic!("there is a leader") };
    assert_eq!((&*leader.value, &leader.token), ("one", first.token()));
    assert_eq!(election.leader().unwrap().to_string(), format!("led by {}", first.token()));
    let before = first.fencing_token();
    let follower = election.clone();
    let next = thread::spawn(move || follower.campaign("two").unwrap());
    assert_eq!((first.check(), first.lost_within(Duration::from_millis(1))), (Ok(()), None));
    first.resign().unwrap();
    let next = next.join().unwrap();
    assert!(next.fencing_token() > before && next.remaining() > Duration::ZERO);
    assert_eq!(next.resource().as_str(), "e");
    drop(next);
    // Work that outlives its leadership is done again in the next one.
    let mut times = 0;
    let ended = election.clone().max_hold(Duration::from_millis(50)).lead("three", |leadership| {
        times += 1;
        if times == 1 {
            assert!(leadership.lost_within(patience()).is_some());
        }
        leadership.check().is_ok()
    });
    assert_eq!((ended, times), (Ok(true), 2));
}

/// Calls that wait panic in an async context, where they would stall the executor; the others work there.
fn misuse(bench: &Bench, held: &quorlock::blocking::Lease) {
    let election = bench.coordinator.election("e");
    let calls: [(&str, &dyn Fn()); 7] = [
        ("acquire", &|| drop(bench.lock().acquire())),
        ("renew", &|| drop(held.renew())),
        ("extend", &|| drop(held.extend(patience()))),
        ("lost_within", &|| drop(held.lost_within(patience()))),
        ("semaphore", &|| drop(bench.coordinator.semaphore("s", 2).try_acquire())),
        ("campaign", &|| drop(election.campaign("me"))),
        ("close", &|| bench.coordinator.close(patience())),
    ];
    for (name, call) in calls {
        let panicked = catch_unwind(AssertUnwindSafe(call)).expect_err(name);
        let message = panicked.downcast_ref::<&str>().copied().map(str::to_owned);
        let message = message.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap();
        assert!(message.contains("runtime"), "{name}: {message}");
    }
    assert_eq!((held.check(), held.mode()), (Ok(()), Mode::Exclusive), "as it was");
    assert_eq!(bench.keys(), 5, "nothing was asked");
}

#[tokio::test(flavor = "current_thread")]
async fn blocking_calls_panic_on_a_current_thread_runtime() {
    let bench = Arc::new(bench());
    let within = bench.clone();
    let held = tokio::task::spawn_blocking(move || within.lock().acquire().unwrap()).await.unwrap();
    misuse(&bench, &held);
    drop(held);
    until("no key left", async || bench.keys() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_calls_panic_on_a_multi_thread_runtime() {
    let bench = Arc::new(bench());
    for spawned in [false, true] {
        let within = bench.clone();
        let held = tokio::task::spawn_blocking(move || within.lock().acquire().unwrap()).await.unwrap();
        if spawned {
            let within = bench.clone();
            tokio::spawn(async move { misuse(&within, &held) }).await.unwrap();
        } else {
            misuse(&bench, &held);
            drop(held);
        }
        until("no key left", async || bench.keys() == 0).await;
    }
    let lease = tokio::task::block_in_place(|| bench.lock().acquire().unwrap());
    tokio::task::block_in_place(|| lease.release().unwrap());
}

#[test]
fn a_thread_inside_a_runtime_guard_may_block() {
    let bench = bench();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    bench.lock().acquire().unwrap().release().unwrap();
}

#[test]
fn bad_settings_are_refused_as_in_the_async_api() {
    assert_eq!(Builder::default().build_blocking().unwrap_err(), ConfigError::NoNodes);
    let bench = bench();
    assert!(matches!(bench.coordinator.lock("").acquire(), Err(AcquireError::Config(_))));
    bench.coordinator.close(patience());
    assert!(matches!(bench.lock().acquire(), Err(AcquireError::Closed)));
}

/// How a program ends that is started by the test below.
const ENDING: &str = "QUORLOCK_TEST_ENDING";
const NODES: &str = "QUORLOCK_TEST_NODES";

/// What that program does.
#[test]
fn a_program_that_ends() {
    let (Ok(ending), Ok(nodes)) = (std::env::var(ENDING), std::env::var(NODES)) else { return };
    let builder = Builder::default().nodes(nodes.split(',')).restart_guard(RestartGuard::Off);
    let coordinator = builder.build_blocking().unwrap();
    let lease = coordinator.lock("r").acquire().unwrap();
    match &*ending {
        "holding" => std::process::exit(7),
        "released" => lease.release().unwrap(),
        "closed" => {
            drop(lease);
            coordinator.close(patience());
        }
        _ => panic!("no such ending"),
    }
    std::process::exit(8);
}

#[test]
fn a_program_exits_promptly_and_leaves_no_key_if_it_closed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let servers = runtime.block_on(Servers::start(3)).unwrap();
    println!("on {}", servers.kind());
    for (ending, code, left) in [("released", 8, 0..=1), ("closed", 8, 0..=0), ("holding", 7, 2..=3)] {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "blocking::a_program_that_ends", "--nocapture"])
            .env(ENDING, ending)
            .env(NODES, servers.urls().join(","))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(code), "{ending}");
        let keys = async {
            let mut keys = 0;
            for server in servers.iter() {
                keys += usize::from(server.command(&["EXISTS", "r"]).await.unwrap().to_string() == "1");
            }
            keys
        };
        // A quorum has confirmed; the third may not have heard of it before the program ended.
        let keys = runtime.block_on(keys);
        assert!(left.contains(&keys), "{ending}: {keys} keys");
        for server in servers.iter() {
            runtime.block_on(server.command(&["DEL", "r"])).unwrap();
        }
    }
}
