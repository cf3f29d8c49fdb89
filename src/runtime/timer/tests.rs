use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::Wake;

use super::*;
use crate::runtime::clock::Sleep;

/// A clock that does not advance.
#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Moment {
        Moment::since_origin(Duration::from_secs(1))
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        if moment <= self.now() { Box::pin(ready(())) } else { Box::pin(pending()) }
    }
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Case {
    timers: Arc<Timers>,
    timer: Timer,
    woken: Arc<CountingWaker>,
}

impl Case {
    fn new() -> Case {
        let timers = Timers::new(Arc::new(Stopped));
        Case { timers, timer: Timer::default(), woken: Arc::default() }
    }

    async fn set_for_later(&mut self) {
        let (waker, later) = (Waker::from(self.woken.clone()), Stopped.now() + Duration::from_secs(1));
        self.timers.set(&mut self.timer, later, &Context::from_waker(&waker));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn fired(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

#[test]
fn timers_fire_when_their_runtime_shuts_down() {
    let mut case = Case::new();
    for time in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(case.set_for_later());
        assert_eq!(case.fired(), time, "it is not due");
        drop(runtime);
        assert_eq!(case.fired(), time + 1, "the task can set another one elsewhere");
    }
}

#[test]
fn a_timer_set_on_a_runtime_that_has_shut_down_fires_immediately() {
    let mut case = Case::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended = runtime.handle().clone();
    drop(runtime);
    let _here = ended.enter();
    let (waker, later) = (Waker::from(case.woken.clone()), Stopped.now() + Duration::from_secs(1));
    case.timers.set(&mut case.timer, later, &Context::from_waker(&waker));
    assert_eq!(case.fired(), 1);
}

#[test]
fn a_timer_that_is_set_again_elsewhere_fires_there() {
    let mut case = Case::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (before, after) = (runtime(), runtime());
    before.block_on(case.set_for_later());
    after.block_on(case.set_for_later());
    drop(before);
    assert_eq!(case.fired(), 0, "it was set elsewhere since");
    drop(after);
    assert_eq!(case.fired(), 1);
}

#[tokio::test]
async fn all_timers_can_be_fired() {
    let mut case = Case::new();
    case.set_for_later().await;
    assert_eq!(case.fired(), 0, "it is not due");
    case.timers.fire_all();
    assert_eq!(case.fired(), 1);
    case.timers.fire_all();
    assert_eq!(case.fired(), 1, "each of them once");
}

/// Reports when it is woken.
struct Notes(usize, Mutex<Sender<usize>>);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        self.1.lock().send(self.0).unwrap();
    }
}

#[tokio::test]
async fn many_due_timers_fire_in_batches() {
    let case = Case::new();
    let waker = Waker::from(case.woken.clone());
    let mut set: Vec<Timer> = (0..3 * FIRE_BATCH).map(|_| Timer::default()).collect();
    for timer in &mut set {
        case.timers.set(timer, Moment::ORIGIN, &Context::from_waker(&waker));
    }
    let mut fired = Vec::new();
    while fired.last() != Some(&set.len()) {
        tokio::task::yield_now().await;
        fired.push(case.fired());
    }
    fired.dedup();
    assert_eq!(fired, [1, 2, 3].map(|handfuls| handfuls * FIRE_BATCH), "other tasks run in between");
}

#[tokio::test]
async fn due_timers_fire_in_order() {
    let (case, (fired, firing)) = (Case::new(), channel());
    let mut set = Vec::new();
    for (woken, millis) in [30, 10, 40, 20, 10].into_iter().enumerate() {
        let (waker, mut timer) =
            (Waker::from(Arc::new(Notes(woken, Mutex::new(fired.clone())))), Timer::default());
        let at = Moment::since_origin(Duration::from_millis(millis));
        case.timers.set(&mut timer, at, &Context::from_waker(&waker));
        set.push(timer);
    }
    case.timers.stop(&mut set[3]);
    tokio::task::yield_now().await;
    assert_eq!(firing.try_iter().collect::<Vec<_>>(), [1, 4, 0, 2]);
}

#[tokio::test]
async fn stopped_timers_leave_no_entries() {
    let mut case = Case::new();
    case.set_for_later().await;
    for _ in 0..10 {
        let (waker, mut timer) = (Waker::from(case.woken.clone()), Timer::default());
        case.timers.set(&mut timer, Stopped.now() + Duration::from_secs(2), &Context::from_waker(&waker));
        case.timers.stop(&mut timer);
    }
    assert_eq!(case.timers.inside.lock().runtimes[0].set.len(), 1);
}

#[tokio::test]
async fn a_timer_that_has_fired_stops_no_other_that_was_set_since() {
    let mut case = Case::new();
    case.set_for_later().await;
    case.timers.fire_all();
    let mut fired = mem::take(&mut case.timer);
    case.set_for_later().await;
    case.timers.stop(&mut fired);
    case.timers.fire_all();
    assert_eq!(case.fired(), 2);
}

#[tokio::test]
async fn a_timer_that_was_stopped_does_not_fire() {
    let mut case = Case::new();
    case.set_for_later().await;
    case.timers.stop(&mut case.timer);
    case.timers.fire_all();
    assert_eq!(case.fired(), 0);
}
