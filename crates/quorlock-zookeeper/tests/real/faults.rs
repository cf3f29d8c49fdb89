//! Members that die, stop and come back, while processes take a lock in turns: never do two believe that they hold it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{LeaseWatch, Wait};
use quorlock_testkit::{eventually, patience};

use crate::queue::process;
use crate::support::ensemble;

/// For how long. `QUORLOCK_FAULTS_SECONDS=600` for longer.
const SECONDS: u64 = 12;

/// The last holder, by name and lease.
type Last = Arc<Mutex<Option<(usize, LeaseWatch)>>>;

async fn take_turns(
    lock: quorlock::Lock,
    number: usize,
    last: Last,
    over: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
) {
    let mut fence = 0;
    while over.load(Ordering::SeqCst) == 0 {
        let Ok(lease) = lock.acquire().await else { continue };
        {
            let mut last = last.lock().unwrap();
            if let Some((other, watch)) = &*last {
                // Ours first: it is the later one.
                let both = lease.check().is_ok() && watch.check().is_ok();
                assert!(!both, "{other} and {number} both believe that they hold the lock");
            }
            *last = Some((number, lease.watch().clone()));
        }
        let token = lease.fencing_token().unwrap().get();
        assert!(token > fence);
        fence = token;
        held.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        drop(lease.release().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_believe_that_they_hold_a_lock_while_members_die_and_stop() {
    let seconds = std::env::var("QUORLOCK_FAULTS_SECONDS").ok().and_then(|number| number.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let clock = SystemClock::default();
    let Some(cluster) = ensemble(3).await else { return };
    let (last, over, held) = (Last::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut tasks = Vec::new();
    let processes: Vec<_> = (0..3).map(|_| process(&cluster)).collect();
    for (number, client) in processes.iter().enumerate() {
        for task in 0..2 {
            let lock = client.lock("a").ttl(Duration::from_secs(4)).wait(Wait::UpTo(Duration::from_secs(5)));
            let (last, over, held) = (last.clone(), over.clone(), held.clone());
            tasks.push(tokio::spawn(take_turns(lock, number * 2 + task, last, over, held)));
        }
    }
    let end = clock.now() + time;
    let mut round = 0;
    while clock.now() < end {
        let leader = cluster.leader().await.unwrap_or(round % 3);
        let member = if round % 3 == 2 { (leader + 1) % 3 } else { leader };
        let pause = |millis| clock.sleep_until(clock.now() + Duration::from_millis(millis));
        if round % 2 == 0 {
            cluster.kill(member);
            pause(1500).await;
            cluster.restart(member).await.unwrap();
        } else {
            cluster.freeze(member).unwrap();
            pause(5000).await;
            cluster.thaw(member).unwrap();
        }
        // It goes on after each fault.
        let before = held.load(Ordering::SeqCst);
        let goes_on = async || held.load(Ordering::SeqCst) > before + 10;
        eventually("more sections", patience(), goes_on).await.unwrap();
        round += 1;
    }
    over.store(1, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    println!("{} sections, {round} faults", held.load(Ordering::SeqCst));
}
