//! Measures the rules alone, and a lock on nodes in memory: no network, so only the library's own cost
//! is left. `cargo bench --bench core`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use quorlock::protocol::{
    Backoff, Claim, Drift, FenceVotes, FencingToken, Moment, Quorum, RoundTrip, Tally, Term, Token,
    node_timeout,
};
use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::memory_nodes;

fn rules(criterion: &mut Criterion) {
    let quorum = Quorum::majority(5);
    criterion.bench_function("count five votes", |bencher| {
        bencher.iter(|| {
            let mut tally = Tally::new(black_box(quorum));
            for _ in 0..3 {
                tally.grant();
            }
            tally.deny();
            tally.unknown();
            tally.verdict()
        });
    });
    let start = Moment::since_origin(Duration::from_secs(7));
    criterion.bench_function("the deadline of a lease", |bencher| {
        bencher.iter(|| Drift::default().deadline(black_box(start), black_box(Duration::from_secs(30))));
    });
    criterion.bench_function("renew a term and check it", |bencher| {
        let term = Term::until(start + Duration::from_secs(30));
        bencher.iter(|| {
            term.renew(black_box(start + Duration::from_secs(30)), black_box(start));
            term.remaining(black_box(start))
        });
    });
    criterion.bench_function("the largest of five numbers", |bencher| {
        let numbers = [7, 9, 9, 8, 9].map(|number| FencingToken::new(number).unwrap());
        bencher.iter(|| FenceVotes::of(black_box(numbers).to_vec()).map(|drawn| drawn.stands(quorum)));
    });
    criterion.bench_function("a new claim and its siblings", |bencher| {
        bencher.iter(|| {
            let claim = Claim::new("locks:orders/42".into(), Token::new(black_box(7), "db-7:4121 nightly"));
            (claim.tombstone(), claim.want_mark(), claim.fence_counter())
        });
    });
    criterion.bench_function("a pause and the timeout of a node", |bencher| {
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));
        bencher.iter(|| {
            let base = Duration::from_millis(50);
            (
                backoff.next(black_box(7)),
                node_timeout(None, Some(RoundTrip::first(black_box(base))), Duration::from_secs(30)),
            )
        });
    });
    criterion.bench_function("read the clock", |bencher| {
        let clock = SystemClock::default();
        bencher.iter(|| clock.now());
    });
}

fn rounds(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let coordinator = {
        let _inside = runtime.enter();
        let builder = Coordinator::builder().custom_nodes(memory_nodes(5));
        builder.restart_guard(RestartGuard::Off).build().unwrap()
    };
    for (name, fencing) in [("plain", Fencing::Off), ("fenced", Fencing::On)] {
        let lock = coordinator.lock(name).fencing(fencing);
        criterion.bench_function(&format!("acquire and release in memory, {name}"), |bencher| {
            bencher
                .iter(|| runtime.block_on(async { lock.acquire().await.unwrap().release().await.unwrap() }));
        });
    }
    let lock = coordinator.lock("renewed");
    let lease = runtime.block_on(lock.acquire()).unwrap();
    criterion.bench_function("renew in memory", |bencher| {
        bencher.iter(|| runtime.block_on(lease.renew()).unwrap());
    });
    criterion.bench_function("check a lease", |bencher| bencher.iter(|| lease.check().unwrap()));
    runtime.block_on(lease.release()).unwrap();

    let lock = coordinator.lock("passed on").wait(Wait::Forever);
    criterion.bench_function("a lock handed off through ten tasks in memory", |bencher| {
        bencher.iter_batched(
            || lock.clone(),
            |lock| {
                runtime.block_on(async {
                    let ten =
                        (0..10).map(|_| async { lock.acquire().await.unwrap().release().await.unwrap() });
                    futures::future::join_all(ten).await
                })
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(core, rules, rounds);
criterion_main!(core);
