//! When leases are renewed on nodes of which an answer proves what is older than the request: there is room for two renewals
//! before the last notice to a program, for each kind of node (rule I-50).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::node::{Node, Responder, Response, SharedRequest};
use quorlock::protocol::{LeaseTiming, Moment};
use quorlock::runtime::Clock;
use quorlock::{AcquireError, ConfigError, Coordinator, Renewal};
use quorlock_testkit::MemoryNode;

use crate::common::{MS, bench, client_of};

/// How a kind of node keeps locks.
#[derive(Clone, Copy, Debug)]
enum Keeping {
    /// Each answer is the server's own.
    Answers,
    /// An answer may come from a heartbeat that was sent this long ago; with an older one, the node sends one.
    Heartbeat(Duration),
    /// Locks live as long as a session that lasts this long. Each `pause` a write keeps it, of which the next one but `behind`
    /// proves that it did.
    Session { lasts: Duration, pause: Duration, behind: u32 },
}

use Keeping::{Answers, Heartbeat, Session};

impl Keeping {
    fn grant_age(self, ttl: Duration) -> Duration {
        match self {
            Answers => Duration::ZERO,
            Heartbeat(age) => age,
            Session { lasts, pause, behind } => ttl.saturating_sub(lasts) + pause * (behind + 1),
        }
    }
}

/// A node that keeps locks so.
#[derive(Clone, Debug)]
struct Timed {
    inner: MemoryNode,
    clock: Arc<dyn Clock>,
    keeping: Keeping,
    ttl: Duration,
    last_beat: Arc<Mutex<Moment>>,
}

impl Timed {
    /// From when a grant counts that is asked for now.
    fn counts_from(&self) -> Option<Moment> {
        let (now, mut last) = (self.clock.now(), self.last_beat.lock().unwrap());
        match self.keeping {
            Answers => None,
            Heartbeat(age) => {
                if now.since(*last) > age {
                    *last = now;
                }
                Some(*last)
            }
            Session { lasts, pause, behind } => {
                while now.since(*last) >= pause {
                    *last = *last + pause;
                }
                Some((last.back(pause * behind) + lasts).back(self.ttl))
            }
        }
    }
}

impl Node for Timed {
    quorlock::node::forward_node!(self => &self.inner; name ready capabilities);

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let from = self.counts_from();
        let counted = move |answer: Response| from.into_iter().fold(answer, Response::counting_from);
        self.inner.ask(request, responder.map(move |answer| answer.map(counted)));
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        self.keeping.grant_age(ttl)
    }
}

fn client(node: &Timed, bench: &crate::common::Bench) -> Coordinator {
    let builder = Coordinator::builder().custom_nodes([node.clone()]).clock(bench.clock.clone());
    builder.ttl(node.ttl).max_ttl(node.ttl.max(Duration::from_secs(60))).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn i50_a_program_is_never_asked_to_end_while_its_servers_are_sound() {
    let session = |lasts: u32, tick: u32| {
        let (lasts, tick) = (lasts * MS, tick * MS);
        let part = lasts / 10;
        let (pause, behind) = if part >= tick { (part, 1) } else { (tick / 2, 2) };
        Session { lasts, pause, behind }
    };
    let kinds = [
        (Answers, vec![1, 3, 5, 10, 15]),
        (Heartbeat(Duration::ZERO), vec![2, 5]),
        (session(10_000, 2000), vec![10, 15, 30]),
        (session(8000, 2000), vec![8, 10, 30]),
        (session(12_000, 2000), vec![12, 30]),
        (session(4000, 500), vec![4, 10, 30]),
        (session(4000, 1000), vec![4, 60]),
        (session(30_000, 2000), vec![30]),
    ];
    for (keeping, ttls) in kinds {
        for ttl in ttls.into_iter().map(Duration::from_secs) {
            let keeping = if let Heartbeat(_) = keeping { Heartbeat(ttl / 10) } else { keeping };
            // At which moment of the session it is acquired.
            for phase in [0, 1, 499, 1300, 1999] {
                let bench = bench(1);
                bench.pass(Duration::from_secs(100)).await;
                let last_beat = Arc::new(Mutex::new(bench.clock.now()));
                let (inner, clock) = (bench.nodes[0].clone(), bench.clock.clone());
                let node = Timed { inner, clock, keeping, ttl, last_beat };
                let client = client(&node, &bench);
                bench.pass(phase * MS).await;
                let lease = client.lock("r").acquire().await.unwrap();
                let timing = client.lease_timing(ttl);
                assert!(timing.has_room());
                // Renewals have until then.
                let spare =
                    timing.left_when_due(timing.renewal_every()).saturating_sub(timing.longest_notice());
                let bound = timing.longest_notice() + spare * 9 / 10;
                let end = bench.clock.now() + ttl * 10;
                while bench.clock.now() < end {
                    bench.pass(ttl / 200).await;
                    let left = lease.remaining();
                    assert!(left >= bound, "{left:?} left of {timing:?}: {keeping:?}, {phase} ms");
                }
            }
        }
    }
}

/// It is asked for a second time before the notice, and the lease goes on.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_adds_nothing_is_followed_by_another_in_time() {
    let ttl = Duration::from_secs(10);
    let bench = bench(1);
    bench.pass(Duration::from_secs(100)).await;
    // Of old heartbeats, of which the node says nothing.
    let node = Timed {
        inner: bench.nodes[0].clone(),
        clock: bench.clock.clone(),
        keeping: Answers,
        ttl,
        last_beat: Arc::default(),
    };
    let old = quorlock_testkit::WrappedNode::new(bench.nodes[0].clone());
    let beats = Timed { keeping: Heartbeat(ttl / 3), ..node.clone() };
    let old = old.on_request(move |request, responder, _| beats.ask(request, responder));
    let client = client_of(&bench, [old]);
    let lease = client.lock("r").acquire().await.unwrap();
    let notice = client.lease_timing(ttl).longest_notice();
    for _ in 0..1000 {
        bench.pass(ttl / 100).await;
        assert!(lease.remaining() > notice, "{:?}", lease.remaining());
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_leaves_no_room_for_renewals_is_refused_with_the_numbers() {
    let ttl = Duration::from_secs(30);
    let bench = bench(1);
    let session = Session { lasts: 500 * MS, pause: 50 * MS, behind: 1 };
    let (inner, clock) = (bench.nodes[0].clone(), bench.clock.clone());
    let node = Timed { inner, clock: clock.clone(), keeping: session, ttl, last_beat: Arc::default() };
    let builder = || Coordinator::builder().custom_nodes([node.clone()]).clock(clock.clone());
    let refused = builder().ttl(ttl).build().unwrap_err();
    assert!(matches!(refused, ConfigError::NoRoomToRenew { .. }), "{refused:?}");
    let words = refused.to_string();
    for number in ["30s", "400ms", "302ms", "node-1"] {
        assert!(words.contains(number), "{number}: {words}");
    }
    let client = builder().ttl(Duration::from_secs(5)).build().unwrap();
    let refused = client.lock("r").ttl(ttl).acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Config(ConfigError::NoRoomToRenew { .. })), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_interval_of_ones_own_is_cut_to_what_a_renewal_proves() {
    let ttl = Duration::from_secs(30);
    let bench = bench(1);
    bench.pass(Duration::from_secs(100)).await;
    let session = Session { lasts: Duration::from_secs(10), pause: Duration::from_secs(1), behind: 1 };
    let (inner, clock) = (bench.nodes[0].clone(), bench.clock.clone());
    let last_beat = Arc::new(Mutex::new(clock.now()));
    let node = Timed { inner, clock, keeping: session, ttl, last_beat };
    let lock = client(&node, &bench).lock("r").renewal(Renewal::Every(Duration::from_secs(15)));
    let lease = lock.acquire().await.unwrap();
    let timing = LeaseTiming::new(ttl, quorlock::protocol::Drift::default(), session.grant_age(ttl));
    for _ in 0..1000 {
        bench.pass(100 * MS).await;
        assert!(lease.remaining() > timing.left_when_due(timing.proven() / 2).saturating_sub(100 * MS));
    }
}
