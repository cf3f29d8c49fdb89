//! Clients that contend for locks while servers fail: the history is recorded, and checked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Lease, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_history::{Expectations, History, Stamp, What, check};
use quorlock_testkit::{eventually, patience};
use tokio::task::JoinHandle;

/// How long a client waits for a lock.
const WAIT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(20);
/// The clock is read twice for the end of validity: a smaller change is no move.
const SLACK: Duration = Duration::from_millis(100);

pub(crate) struct Load {
    run: Arc<Run>,
    ttl: Duration,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Run {
    history: Mutex<History>,
    grants: AtomicUsize,
    /// Holds that last across renewals.
    long: AtomicUsize,
    over: AtomicBool,
}

impl Load {
    /// The first client holds the first of these locks for two TTLs at a time, the others each of them briefly.
    pub(crate) fn start(
        coordinators: impl IntoIterator<Item = Coordinator>,
        locks: &'static [&'static str],
        ttl: Duration,
    ) -> Load {
        let run = Arc::<Run>::default();
        let start = |(client, coordinator)| {
            let run = Arc::clone(&run);
            tokio::spawn(async move { run.work(client, &coordinator, locks, ttl).await })
        };
        let clients = coordinators.into_iter().enumerate().map(start).collect();
        Load { run, ttl, clients }
    }

    /// Waits until the next hold begins that lasts across renewals.
    pub(crate) async fn long_hold(&self) {
        more_of("a long hold", &self.run.long, 1).await;
    }

    /// Waits for this many more grants.
    pub(crate) async fn grants(&self, more: usize) {
        more_of(&format!("{more} more grants"), &self.run.grants, more).await;
    }

    /// Checks the history, and returns how many holds were lost.
    pub(crate) async fn judge(self) -> usize {
        self.run.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        // A busy machine may notify a holder late: that is not checked here.
        let expected = Expectations::new().max_ttl(self.ttl).signal_slack(patience());
        let report = check(&self.run.history.lock().unwrap(), &expected);
        println!("{}", report.seen);
        assert!(report.is_clean(), "{report:#?}");
        report.seen.lost
    }
}

async fn more_of(what: &str, counter: &AtomicUsize, more: usize) {
    let before = counter.load(Ordering::Relaxed);
    let enough = async || counter.load(Ordering::Relaxed) >= before + more;
    eventually(what, 2 * patience(), enough).await.unwrap();
}

impl Run {
    async fn work(&self, client: usize, coordinator: &Coordinator, locks: &[&str], ttl: Duration) {
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let is_long = client == 0;
            let name = if is_long { locks[0] } else { locks[(number + client) % locks.len()] };
            let attempt = format!("{client}-{number}");
            let (client, resource) = (client.to_string().into(), name.into());
            self.note(now(), What::Invoked { client, resource, attempt: attempt.as_str().into() });
            let Ok(lease) = coordinator.lock(name).wait(Wait::UpTo(WAIT)).acquire().await else {
                self.note(now(), What::NotAcquired { attempt: attempt.into() });
                continue;
            };
            self.grants.fetch_add(1, Ordering::Relaxed);
            self.long.fetch_add(usize::from(is_long), Ordering::Relaxed);
            self.hold(lease, &attempt, if is_long { 2 * ttl } else { SHORT }).await;
        }
    }

    async fn hold(&self, lease: Lease, attempt: &str, time: Duration) {
        let (clock, attempt) = (SystemClock::default(), || attempt.into());
        let mut deadline = ends(&lease);
        let fencing_token = Some(lease.fencing_token().get());
        self.note(now(), What::Acquired { attempt: attempt(), deadline, fencing_token });
        let (end, mut looked) = (clock.now() + time, now());
        while clock.now() < end && !self.over.load(Ordering::Relaxed) {
            tokio::select! {
                lost = lease.lost() => {
                    self.note(now(), What::Lost { attempt: attempt(), reason: lost.to_string() });
                    return;
                }
                () = clock.sleep_until(clock.now() + SHORT) => {}
            }
            let at = now();
            if lease.check().is_ok() {
                let later = ends(&lease);
                if later.since(deadline) > SLACK {
                    deadline = later;
                    self.note(looked, What::Renewed { attempt: attempt(), deadline });
                }
                // So close to its end, two readings of our clock may fall on either side of it.
                if deadline.since(at) > SLACK {
                    self.note(at, What::SeenValid { attempt: attempt() });
                }
            }
            looked = at;
        }
        self.note(now(), What::Releasing { attempt: attempt() });
        match lease.release().await {
            Ok(()) => self.note(now(), What::Released { attempt: attempt() }),
            Err(lost) => self.note(now(), What::Lost { attempt: attempt(), reason: lost.to_string() }),
        }
    }

    fn note(&self, at: Stamp, what: What) {
        self.history.lock().unwrap().record(at, what);
    }
}

/// The end of validity, as close as it can be determined from outside, and not later.
fn ends(lease: &Lease) -> Stamp {
    let end = |_| {
        let now = SystemClock::default().now();
        stamp(now + lease.remaining())
    };
    (0..3).map(end).max().unwrap()
}

fn now() -> Stamp {
    stamp(SystemClock::default().now())
}

fn stamp(moment: Moment) -> Stamp {
    Stamp::from_nanos(u64::try_from(moment.since(Moment::ORIGIN).as_nanos()).unwrap())
}
