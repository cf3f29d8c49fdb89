//! In an outage of all nodes each call of a thread says that no quorum answers, whether or not another thread waits.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use quorlock::blocking::{Coordinator, Lock};
use quorlock::{
    AcquireError, Builder, Owner, PermitError, RenewError, Renewal, RetainError, Token, Wait, WithError,
};
use quorlock::{election::Observed, votes::VoteReport};
use quorlock_testkit::{MemoryNode, memory_nodes, patience};

const LIMIT: Duration = Duration::from_millis(50);
/// A retention is tried until the lease would have ended.
const SHORT: Duration = Duration::from_secs(1);

fn is_outage_of_lock(error: &AcquireError) -> bool {
    matches!(error, AcquireError::Unavailable { .. })
}

fn is_outage_of_permit(error: &PermitError) -> bool {
    matches!(error, PermitError::Unavailable { .. })
}

fn say<T: Debug, E: Debug>(what: &str, result: &Result<T, E>, is_outage: impl Fn(&E) -> bool) {
    assert!(result.as_ref().is_err_and(is_outage), "{what}: {result:?}");
}

fn try_lock<K: Debug + 'static, F: Debug + 'static>(kind: &str, lock: &Lock<K, F>) {
    say(&format!("{kind}.acquire"), &lock.acquire(), is_outage_of_lock);
    say(&format!("{kind}.try_acquire"), &lock.try_acquire(), is_outage_of_lock);
    let with = lock.with(|_| Ok::<_, WithError>(()));
    say(
        &format!("{kind}.with"),
        &with,
        |error| matches!(error, WithError::Acquire(error) if is_outage_of_lock(error)),
    );
}

/// Makes each call that acquires or waits.
fn try_all(q: &Coordinator, wait: Wait) {
    let lock = q.lock("r").wait(wait);
    try_lock("lock", &lock);
    try_lock("unfenced", &lock.clone().unfenced());
    try_lock("owner", &lock.clone().owner(&Owner::new()));
    try_lock("shared", &lock.clone().shared());
    try_lock("several", &q.lock_all(["r", "s"]).wait(wait));
    say("until_free", &lock.until_free(), is_outage_of_lock);
    let permits = q.semaphore("p", 2).wait(wait);
    say("semaphore.acquire", &permits.acquire(), is_outage_of_permit);
    say("semaphore.try_acquire", &permits.try_acquire(), is_outage_of_permit);
    let with = permits.with(|_| Ok::<_, WithError<_, PermitError>>(()));
    say(
        "semaphore.with",
        &with,
        |error: &WithError<Infallible, PermitError>| matches!(error, WithError::Acquire(error) if is_outage_of_permit(error)),
    );
    let election = q.election("r").wait(wait);
    say("campaign", &election.campaign("me"), is_outage_of_lock);
    say("lead", &election.lead("me", |_| ()), is_outage_of_lock);
}

fn ask_all(q: &Coordinator) {
    let lock = q.lock("r");
    let mut reports = q.semaphore("p", 2).inspect().unwrap();
    reports.extend([lock.inspect().unwrap(), lock.revoke(&Token::new(1, "")).unwrap()]);
    assert!(reports.iter().all(|report: &VoteReport| report.holder().is_none() && report.granted() == 0));
    assert!(lock.waiters().unwrap().has_more, "there may be some");
    assert!(matches!(q.election("r").leader().unwrap(), Observed::Unknown(_)));
}

#[test]
fn each_call_of_a_thread_says_that_no_quorum_answers() {
    for (fails, waits) in [MemoryNode::hang, MemoryNode::disconnect]
        .into_iter()
        .flat_map(|fails| [(fails, false), (fails, true)])
    {
        let nodes = memory_nodes(5);
        let builder = Builder::default().custom_nodes(nodes.clone()).node_timeout(LIMIT);
        let q = builder.build_blocking().unwrap();
        let lock = |name| q.lock(name).renewal(Renewal::Manual);
        let (renewed, released) = (lock("a").acquire().unwrap(), lock("b").acquire().unwrap());
        let retained = lock("c").ttl(SHORT).acquire().unwrap();
        nodes.iter().for_each(fails);
        if waits {
            let (waits, waiting) = mpsc::channel();
            let waiter = q.lock("r").wait(Wait::Forever).on_wait(move |_| {
                waits.send(()).ok();
            });
            // It never ends.
            thread::spawn(move || drop(waiter.acquire()));
            waiting.recv_timeout(patience()).expect("a thread waits");
        }
        let (done, ended) = mpsc::channel();
        let calls = thread::spawn(move || {
            assert!(matches!(renewed.renew(), Err(RenewError::Unconfirmed { .. })));
            assert!(matches!(renewed.extend(Duration::from_secs(30)), Err(RenewError::Unconfirmed { .. })));
            let watch = released.watch();
            assert_eq!(released.release(), Ok(()), "it was valid until then");
            assert!(watch.unconfirmed_release().is_some(), "and may stay taken");
            let retained = retained.retain(Duration::from_secs(20), "");
            // On a busy machine it ends before.
            let fails = matches!(retained, Err(RetainError::Unconfirmed { .. } | RetainError::Lost(_)));
            assert!(fails, "{retained:?}");
            for wait in [Wait::Never, Wait::UpTo(LIMIT)] {
                try_all(&q, wait);
            }
            ask_all(&q);
            done.send(()).unwrap();
        });
        assert_ne!(ended.recv_timeout(patience()), Err(RecvTimeoutError::Timeout), "a call goes on");
        calls.join().unwrap();
    }
}
