//! The scenarios: what a subject does, and the figures that it gives.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use quorlock::Wait;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};

use crate::children;
use crate::subjects::{Running, Subject};

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) fits: fn(&Subject) -> bool,
    /// In one turn: it takes minutes.
    pub(crate) once: bool,
    /// Returns a figure for each column.
    pub(crate) measure: Measure,
}

type Measure = fn(Arc<Running>) -> BoxFuture<'static, Vec<f64>>;

const fn scenario(
    name: &'static str,
    columns: &'static [&'static str],
    fits: fn(&Subject) -> bool,
    measure: Measure,
) -> Scenario {
    Scenario { name, columns, fits, once: false, measure }
}

pub(crate) static SCENARIOS: [Scenario; 7] = [
    scenario("cycle", &["p50 (ms)", "p99 (ms)", "longest (ms)"], Subject::is_near, |subject| {
        cycle(subject).boxed()
    }),
    scenario("tasks", &["cycles/s, 64 tasks"], Subject::is_near, |subject| tasks(subject).boxed()),
    scenario(
        "handover",
        &["p50 (ms)", "p99 (ms)"],
        |subject| subject.is_near() && !subject.by_hand,
        |subject| handover(subject).boxed(),
    ),
    scenario(
        "contended",
        &["grants/s, 2 processes", "32", "fairness, 32", "longest wait, 2 (ms)", "longest wait, 32 (ms)"],
        |subject| subject.is_near() && !subject.by_hand,
        |subject| children::contended(subject).boxed(),
    ),
    scenario(
        "passed-on",
        &[
            "grants/s, 64 in a row",
            "longest wait of a process (ms)",
            "grants/s, 16 in a row",
            "longest wait of a process (ms)",
        ],
        |subject| subject.is_near() && subject.is_ours_on_five(),
        |subject| children::passed_on(subject).boxed(),
    ),
    Scenario {
        once: true,
        ..scenario(
            "beside",
            &[
                "a writer (ms)",
                "at most",
                "a reader (ms)",
                "at most",
                "a caller of two locks (ms)",
                "at most",
                "a client that polls (ms)",
                "at most",
            ],
            Subject::is_ours_on_five,
            |subject| children::beside(subject).boxed(),
        )
    },
    Scenario {
        once: true,
        ..scenario(
            "held",
            &[
                "bytes a lease",
                "% of a core, 10,000 in bursts",
                "% of a core, one after another",
                "bytes, watched",
                "bytes a waiting task",
                "% of a core, 10,000 waiting",
            ],
            |subject| subject.is_near() && !subject.by_hand,
            |subject| children::held(subject).boxed(),
        )
    },
];

pub(crate) fn now() -> Moment {
    SystemClock::default().now()
}

pub(crate) async fn pause(time: Duration) {
    SystemClock::default().sleep_until(now() + time).await;
}

/// In milliseconds.
fn percentile(times: &mut [Duration], share: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}

async fn cycle(subject: Arc<Running>) -> Vec<f64> {
    let mut times = Vec::new();
    for number in 0..250 {
        // Fresh names, as jobs have them.
        let (name, began) = (format!("bench/{:?}/{number}", now()), now());
        subject.cycle(&name).await;
        times.push(now().since(began));
    }
    [50, 99, 100].map(|share| percentile(&mut times, share)).into()
}

async fn tasks(subject: Arc<Running>) -> Vec<f64> {
    let (began, lasts) = (now(), Duration::from_secs(1));
    let counts = join_all((0..64).map(|task| {
        let subject = Arc::clone(&subject);
        tokio::spawn(async move {
            let (name, mut count) = (format!("bench/task/{task}"), 0.0);
            while now().since(began) < lasts {
                subject.cycle(&name).await;
                count += 1.0;
            }
            count
        })
    }))
    .await;
    let cycles: f64 = counts.into_iter().map(Result::unwrap).sum();
    vec![cycles / now().since(began).as_secs_f64()]
}

/// From before the release to the return of the waiter's call, between two processes.
async fn handover(subject: Arc<Running>) -> Vec<f64> {
    let lock = |client: usize| {
        subject.clients[client].lock("bench/pass").fencing(subject.fencing).wait(Wait::Forever)
    };
    let (mut times, mut held) = (Vec::new(), lock(0).acquire().await.unwrap());
    for next in (1..=50).map(|place| place % 2) {
        let lock = lock(next);
        let waiting = tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            (lease, now())
        });
        // Until it is in the queue.
        pause(Duration::from_millis(30)).await;
        let began = now();
        held.release().await.unwrap();
        let (lease, got) = waiting.await.unwrap();
        held = lease;
        times.push(got.since(began));
    }
    held.release().await.unwrap();
    [50, 99].map(|share| percentile(&mut times, share)).into()
}
