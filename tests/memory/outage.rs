//! In an outage of all nodes every call says that no quorum answers, within its time: never that others hold the lock, and
//! without an end only if that was asked for. Whether others of the process wait, or held the lock before, is the same.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture, join};
use quorlock::{
    AcquireError, Coordinator, Lease, Lock, Owner, Permit, PermitError, RenewError, Renewal, RetainError,
    Token, Wait, WithError,
    doctor::Summary,
    election::Observed,
    votes::{NodeVote, VoteOutcome},
};
use quorlock_testkit::MemoryNode;
use tokio::task::JoinSet;

use crate::common::{Bench, LIMIT, TTL, bench, client};

/// What a call says: that it got something, or why not, and whether that is the outage.
type Outcome = Result<(), (bool, String)>;
/// A call by its name.
type Call = (&'static str, LocalBoxFuture<'static, Outcome>);

/// What a call may take beyond its wait: some rounds of nodes that do not answer.
const GRACE: Duration = LIMIT.saturating_mul(6);

trait IsOutage: ToString {
    fn is_outage(&self) -> bool;
}

impl IsOutage for AcquireError {
    fn is_outage(&self) -> bool {
        matches!(self, AcquireError::Unavailable { .. })
    }
}

impl IsOutage for PermitError {
    fn is_outage(&self) -> bool {
        matches!(self, PermitError::Unavailable { .. })
    }
}

fn outcome<T, E: IsOutage>(result: Result<T, E>) -> Outcome {
    result.map(drop).map_err(|error| (error.is_outage(), error.to_string()))
}

/// Of a call that returns nothing if others hold the lock.
fn tried<T, E: IsOutage>(result: Result<Option<T>, E>) -> Outcome {
    match result {
        Ok(None) => Err((false, "others hold it".to_owned())),
        other => outcome(other),
    }
}

/// Of a call that runs work.
fn worked<E: IsOutage>(result: Result<(), WithError<Infallible, E>>) -> Outcome {
    match result {
        Err(WithError::Acquire(error)) => outcome(Err::<(), _>(error)),
        Err(_) => Err((false, "it was lost".to_owned())),
        Ok(()) => Ok(()),
    }
}

fn calls_of<K: 'static, F: 'static>(lock: Lock<K, F>) -> [Call; 3] {
    let (again, with) = (lock.clone(), lock.clone());
    [
        ("acquire", async move { outcome(lock.acquire().await) }.boxed_local()),
        ("try_acquire", async move { tried(again.try_acquire().await) }.boxed_local()),
        ("with", async move { worked(with.with(async |_| Ok(())).await) }.boxed_local()),
    ]
}

/// Each call that may acquire or waits, by kind of lock.
fn calls(q: &Coordinator, wait: Wait) -> Vec<(&'static str, Call)> {
    let lock = q.lock("r").ttl(TTL).wait(wait);
    let several = q.lock_all(["r", "s"]).ttl(TTL).wait(wait);
    let permits = || q.semaphore("p", 2).ttl(TTL).wait(wait);
    let election = || q.election("r").ttl(TTL).wait(wait);
    let free = lock.clone();
    let [acquired, tried_permit, with_permit] = [permits(), permits(), permits()];
    let (campaigning, leading) = (election(), election());
    let others: [(&str, Call); 6] = [
        ("lock", ("until_free", async move { outcome(free.until_free().await) }.boxed_local())),
        ("semaphore", ("acquire", async move { outcome(acquired.acquire().await) }.boxed_local())),
        ("semaphore", ("try_acquire", async move { tried(tried_permit.try_acquire().await) }.boxed_local())),
        (
            "semaphore",
            ("with", async move { worked(with_permit.with(async |_| Ok(())).await) }.boxed_local()),
        ),
        ("election", ("campaign", async move { outcome(campaigning.campaign("me").await) }.boxed_local())),
        ("election", ("lead", async move { outcome(leading.lead("me", async |_| ()).await) }.boxed_local())),
    ];
    let kinds = [
        ("lock", calls_of(lock.clone())),
        ("unfenced", calls_of(lock.clone().unfenced())),
        ("owner", calls_of(lock.clone().owner(&Owner::new()))),
        ("shared", calls_of(lock.shared())),
        ("several", calls_of(several.clone())),
        ("several, unfenced", calls_of(several.unfenced())),
    ];
    kinds.into_iter().flat_map(|(kind, calls)| calls.map(|call| (kind, call))).chain(others).collect()
}

/// What there is before the call.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Before {
    Nothing,
    /// Other callers of the process wait, for each kind of lock.
    Waiters,
    /// Another process held everything.
    Holder,
    /// Both.
    WaitersOfHolder,
}

const BEFORE: [Before; 4] = [Before::Nothing, Before::Waiters, Before::Holder, Before::WaitersOfHolder];
/// Nodes that do not answer, and nodes that are not there.
const OUTAGES: [fn(&MemoryNode); 2] = [MemoryNode::hang, MemoryNode::disconnect];

/// What must live on, for as long as others hold or wait.
type Others = (Vec<Lease>, Vec<Permit>, JoinSet<()>);

/// Nodes in an outage, with what there was before.
async fn outage(before: Before, fails: fn(&MemoryNode)) -> (Bench, Others) {
    let bench = bench(5);
    let (mut leases, mut permits) = (Vec::new(), Vec::new());
    if matches!(before, Before::Holder | Before::WaitersOfHolder) {
        let other = client(&bench);
        for name in ["r", "s"] {
            leases.push(other.lock(name).ttl(TTL).acquire().await.unwrap());
        }
        for _ in 0..2 {
            permits.push(other.semaphore("p", 2).ttl(TTL).acquire().await.unwrap());
        }
        assert!(bench.lock().try_acquire().await.unwrap().is_none());
    }
    let waiters = || {
        let mut waiting = JoinSet::new();
        let lock = bench.coordinator.lock("r").ttl(TTL).wait(Wait::Forever);
        let several = bench.coordinator.lock_all(["r", "s"]).ttl(TTL).wait(Wait::Forever);
        let permit = bench.coordinator.semaphore("p", 2).ttl(TTL).wait(Wait::Forever);
        for lock in [lock.clone().shared(), lock] {
            waiting.spawn(async move { drop(lock.acquire().await) });
        }
        waiting.spawn(async move { drop(several.acquire().await) });
        waiting.spawn(async move { drop(permit.acquire().await) });
        waiting
    };
    let waiting = match before {
        Before::WaitersOfHolder => {
            let waiting = waiters();
            bench.pass(TTL / 10).await;
            bench.nodes.iter().for_each(fails);
            waiting
        }
        Before::Waiters => {
            bench.nodes.iter().for_each(fails);
            waiters()
        }
        Before::Nothing | Before::Holder => {
            bench.nodes.iter().for_each(fails);
            JoinSet::new()
        }
    };
    bench.settle().await;
    (bench, (leases, permits, waiting))
}

#[tokio::test(start_paused = true)]
async fn each_call_says_that_no_quorum_answers_within_its_wait() {
    for (before, fails) in BEFORE.into_iter().flat_map(|before| OUTAGES.map(|fails| (before, fails))) {
        for wait in [Wait::Never, Wait::UpTo(Duration::ZERO), Wait::UpTo(6 * LIMIT)] {
            let (bench, others) = outage(before, fails).await;
            for (kind, (call, calling)) in calls(&bench.coordinator, wait) {
                let waits = if call == "try_acquire" { Wait::Never } else { wait };
                let longest = if let Wait::UpTo(longest) = waits { longest } else { Duration::ZERO };
                let began = bench.clock.now();
                let ended = calling.await;
                let took = bench.clock.now().since(began);
                let what = format!("{kind}.{call}, {wait:?}, {before:?}: {ended:?} after {took:?}");
                assert!(matches!(ended, Err((true, _))), "{what}");
                assert!(took <= longest + GRACE, "{what}");
            }
            drop(others);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_holder_that_ends_in_an_outage_ends_with_that() {
    for fails in OUTAGES {
        let wait = Wait::UpTo(TTL / 5);
        for index in 0..calls(&bench(1).coordinator, wait).len() {
            let (bench, others) = outage(Before::Holder, |_| ()).await;
            let (kind, (call, calling)) = calls(&bench.coordinator, wait).swap_remove(index);
            if call == "try_acquire" {
                continue;
            }
            let began = bench.clock.now();
            let fail = async {
                bench.pass(TTL / 10).await;
                bench.nodes.iter().for_each(fails);
            };
            let (outcome, ()) = join(calling, fail).await;
            let took = bench.clock.now().since(began);
            assert!(matches!(outcome, Err((true, _))), "{kind}.{call}: {outcome:?}");
            assert!(took <= TTL / 5 + GRACE, "{kind}.{call}: {took:?}");
            drop(others);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_an_end_goes_on_and_ends_with_the_outage() {
    for index in 0..calls(&bench(1).coordinator, Wait::Forever).len() {
        let (bench, others) = outage(Before::Waiters, MemoryNode::hang).await;
        let (kind, (call, mut calling)) = calls(&bench.coordinator, Wait::Forever).swap_remove(index);
        if call == "try_acquire" {
            continue;
        }
        let ended = tokio::select! {
            biased;
            outcome = &mut calling => Some(outcome),
            () = bench.pass(TTL) => None,
        };
        assert_eq!(ended, None, "{kind}.{call}");
        bench.nodes.iter().for_each(MemoryNode::resume);
        let (outcome, ()) = join(calling, bench.pass(TTL)).await;
        assert_eq!(outcome, Ok(()), "{kind}.{call}");
        drop(others);
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_on_a_lease_says_that_no_quorum_confirmed() {
    for fails in OUTAGES {
        let bench = bench(5);
        let lock = |name| bench.coordinator.lock(name).ttl(TTL).renewal(Renewal::Manual);
        let (renewed, released) = (lock("a").acquire().await.unwrap(), lock("b").acquire().await.unwrap());
        let (retained, downgraded) = (lock("c").acquire().await.unwrap(), lock("d").acquire().await.unwrap());
        let began = bench.clock.now();
        bench.nodes.iter().for_each(fails);
        assert!(matches!(renewed.renew().await, Err(RenewError::Unconfirmed { .. })));
        assert!(matches!(renewed.extend(TTL).await, Err(RenewError::Unconfirmed { .. })));
        let watch = released.watch();
        assert_eq!(released.release().await, Ok(()), "it was valid until then");
        assert!(watch.unconfirmed_release().is_some(), "and may stay taken");
        let retained = retained.retain(TTL / 2, "").await;
        assert!(matches!(retained, Err(RetainError::Unconfirmed { .. })), "{retained:?}");
        let took = bench.clock.now().since(began);
        assert!(took <= TTL, "{took:?}");
        // It goes on as before, and keeps its end.
        assert!(downgraded.downgrade().await.is_ok_and(|lease| lease.check().is_ok()));
    }
}

#[tokio::test(start_paused = true)]
async fn each_question_is_answered_by_what_the_nodes_do_not_say() {
    for (before, fails) in BEFORE.into_iter().flat_map(|before| OUTAGES.map(|fails| (before, fails))) {
        let (bench, others) = outage(before, fails).await;
        let q = &bench.coordinator;
        let lock = q.lock("r");
        let began = bench.clock.now();
        let mut reports = q.semaphore("p", 2).inspect().await.unwrap();
        let nobodys = Token::new(1, "");
        reports.extend([lock.inspect().await.unwrap(), lock.revoke(&nobodys).await.unwrap()]);
        for report in reports {
            assert!(report.holder().is_none(), "{report}");
            let failed = |vote: &NodeVote| matches!(vote.outcome, VoteOutcome::Failed(_));
            assert!(report.votes().iter().all(failed), "{report}");
        }
        assert!(lock.waiters().await.unwrap().has_more, "there may be some");
        assert!(matches!(q.election("r").leader().await.unwrap(), Observed::Unknown(_)));
        let permits = q.permits("p").await;
        let is_unknown =
            matches!(permits, Err(PermitError::Unavailable { .. } | PermitError::Misconfigured { .. }));
        assert!(is_unknown, "{permits:?}");
        assert_ne!(q.doctor().await.summary(), Summary::Sound);
        let took = bench.clock.now().since(began);
        assert!(took < TTL * 3, "{took:?}");
        drop(others);
    }
}
