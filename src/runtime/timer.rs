//! Wakes keepers, rounds and whoever waits when something is due there: one timer for all those of a
//! runtime.
//!
//! A timer of its own for each lease would be a sixth of what an idle one needs, and the timers of a
//! cycle of acquire and release nearly never come to anything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::clock::{Clock, Sleep};
use crate::protocol::Moment;

/// The alarms of a coordinator.
///
/// They ring at their moment or somewhat later, and sometimes for nothing: whoever is woken asks the
/// clock.
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// One for each runtime: whoever waits is woken from its own, as by a timer of its own, and one that
    /// nobody drives any more holds up no other.
    rings: Vec<RuntimeTimers>,
    places: u64,
}

/// The alarms that are set from one runtime, where a task rings them.
struct RuntimeTimers {
    runtime: Id,
    set: Slab<Set>,
    /// When they are due and which, in order, so that a seed reproduces in which order they ring. Nearly
    /// all are stopped long before; their places here are given back by the dozen.
    order: BinaryHeap<Reverse<(Moment, usize)>>,
    /// When the ringer looks next.
    looks: Moment,
    /// Tells the ringer of an alarm that is earlier than those it knows.
    earlier: Arc<Notify>,
}

/// An alarm that is set.
struct Set {
    at: Moment,
    number: u64,
    waker: Waker,
}

/// Where an alarm rings, and a number that tells it from others.
#[derive(Clone, Copy, Debug)]
struct TimerKey {
    runtime: Id,
    number: u64,
    /// Among those of its runtime.
    key: usize,
}

/// One of them, which may be set.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    place: Option<TimerKey>,
}

impl Timers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Timers> {
        Arc::new(Timers { clock, inside: Mutex::default() })
    }

    /// From now on `alarm` wakes the task of `context` at the moment given, and at no other, from the
    /// runtime that this is called in.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and in one without timers, as a timer of its own would.
    pub(crate) fn set(self: &Arc<Self>, alarm: &mut Timer, at: Moment, context: &Context<'_>) {
        self.set_on(&Handle::current(), alarm, at, context);
    }

    /// The same, from the runtime `here`. Where that has ended, the alarm rings now.
    pub(crate) fn set_on(
        self: &Arc<Self>,
        here: &Handle,
        alarm: &mut Timer,
        at: Moment,
        context: &Context<'_>,
    ) {
        let runtime = here.id();
        let mut inside = self.lock();
        if let Some(place) = alarm.place
            && place.runtime == runtime
            && let Some(set) = inside.set(place).filter(|set| set.at == at)
        {
            if !set.waker.will_wake(context.waker()) {
                let before = mem::replace(&mut set.waker, context.waker().clone());
                drop(inside);
                drop(before);
            }
            return;
        }
        let before = alarm.place.take().and_then(|place| inside.take(place));
        inside.places += 1;
        let number = inside.places;
        let ringer = if inside.ring(runtime).is_some() { None } else { Some(inside.begin(runtime, at)) };
        if let Some(ring) = inside.ring(runtime) {
            let key = ring.set.insert(Set { at, number, waker: context.waker().clone() });
            ring.order.push(Reverse((at, key)));
            if at < ring.looks {
                ring.looks = at;
                ring.earlier.notify_one();
            }
            alarm.place = Some(TimerKey { runtime, number, key });
        }
        drop(inside);
        drop(before);
        // Not under the lock: a runtime that is being shut down drops its new tasks at once.
        if let Some(earlier) = ringer {
            let ringer = TimerDriver { alarms: self.clone(), runtime, earlier, rings: true };
            let sleep = {
                // A timer of that runtime.
                let _there = here.enter();
                self.clock.sleep_until(at)
            };
            drop(here.spawn(ring(ringer, sleep)));
        }
    }

    /// The alarm rings no more.
    pub(crate) fn stop(&self, alarm: &mut Timer) {
        let waker = alarm.place.take().and_then(|place| self.lock().take(place));
        // Dropped after the lock is gone: it may be the last that keeps a task.
        drop(waker);
    }

    /// Ends at the moment given, if there is one: a timer for the price of an alarm.
    pub(crate) fn until(self: &Arc<Self>, at: Option<Moment>) -> Until {
        Until { alarms: self.clone(), at, alarm: Timer::default() }
    }

    /// All of them ring, once: something has changed that everybody should look at.
    pub(crate) fn ring_all(&self) {
        let all: Vec<_> = self.lock().rings.iter_mut().map(|ring| mem::take(&mut ring.set)).collect();
        all.into_iter().for_each(wake);
    }

    /// Rings what should have rung a while ago from other runtimes than this one: they may not be driven.
    pub(crate) fn ring_overdue(&self, here: Id) {
        let now = self.clock.now();
        let mut inside = self.lock();
        let others = inside.rings.iter_mut().filter(|ring| ring.runtime != here);
        let overdue: Vec<Waker> = others.flat_map(|ring| ring.take_due(now.back(OVERDUE))).collect();
        drop(inside);
        overdue.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for a moment.
pub(crate) struct Until {
    alarms: Arc<Timers>,
    at: Option<Moment>,
    alarm: Timer,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Until { alarms, at, alarm } = &mut *self;
        let Some(at) = *at else { return Poll::Pending };
        if alarms.clock.now() >= at {
            return Poll::Ready(());
        }
        alarms.set(alarm, at, context);
        Poll::Pending
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        self.alarms.stop(&mut self.alarm);
    }
}

fn wake(set: Slab<Set>) {
    set.into_iter().for_each(|(_, set)| set.waker.wake());
}

impl RuntimeTimers {
    fn get(&mut self, number: u64, key: usize) -> Option<&mut Set> {
        self.set.get_mut(key).filter(|set| set.number == number)
    }

    fn take(&mut self, number: u64, key: usize) -> Option<Waker> {
        self.get(number, key)?;
        self.set.try_remove(key).map(|set| set.waker)
    }

    /// Takes out what was due by `then`.
    fn take_due(&mut self, then: Moment) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(Reverse((at, key))) = self.order.peek().copied().filter(|Reverse((at, _))| *at <= then)
        {
            if RuntimeTimers::is_set(&self.set, at, key) {
                due.extend(self.set.try_remove(key).map(|set| set.waker));
            }
            self.order.pop();
        }
        due
    }

    /// Whether one of these is due then.
    fn is_set(set: &Slab<Set>, at: Moment, key: usize) -> bool {
        set.get(key).is_some_and(|set| set.at == at)
    }

    /// Forgets when the stopped ones would be due, once they are a third.
    fn tidy(&mut self) {
        if self.order.len() > self.set.len() + self.set.len() / 2 + TOLERATED {
            let set = &self.set;
            self.order.retain(|Reverse((at, key))| RuntimeTimers::is_set(set, *at, *key));
        }
    }
}

/// The most that ring at once. After a standstill of the process all of them may be due, and each may
/// start a task.
const HANDFUL: usize = 64;
/// As many places of stopped alarms are no waste of room.
const TOLERATED: usize = 64;
/// A runtime that is driven rings far sooner, unless the process stood still.
const OVERDUE: Duration = Duration::from_millis(20);

impl Inside {
    fn ring(&mut self, runtime: Id) -> Option<&mut RuntimeTimers> {
        self.rings.iter_mut().find(|ring| ring.runtime == runtime)
    }

    fn set(&mut self, place: TimerKey) -> Option<&mut Set> {
        self.ring(place.runtime)?.get(place.number, place.key)
    }

    fn take(&mut self, place: TimerKey) -> Option<Waker> {
        let ring = self.ring(place.runtime)?;
        let waker = ring.take(place.number, place.key);
        ring.tidy();
        waker
    }

    /// A ring for a runtime that has none, and what its ringer is to listen to.
    fn begin(&mut self, runtime: Id, at: Moment) -> Arc<Notify> {
        let earlier = Arc::<Notify>::default();
        let (set, order) = (Slab::new(), BinaryHeap::new());
        self.rings.push(RuntimeTimers { runtime, set, order, looks: at, earlier: earlier.clone() });
        earlier
    }

    /// Nobody rings for this runtime any more. What was set there is returned.
    fn end(&mut self, runtime: Id) -> Option<RuntimeTimers> {
        let place = self.rings.iter().position(|ring| ring.runtime == runtime)?;
        Some(self.rings.remove(place))
    }
}

/// Rings until nothing is set any more, so an idle coordinator has no such task.
async fn ring(mut ringer: TimerDriver, mut sleep: Sleep) {
    loop {
        tokio::select! {
            biased;
            () = ringer.earlier.notified() => {}
            () = &mut sleep => {}
        }
        match ringer.ring_due() {
            Some(looks) => sleep = ringer.alarms.clock.sleep_until(looks),
            None => break,
        }
        // Those who were woken have their turn before the next are.
        yield_now().await;
    }
    // From the last look on there may be another ringer.
    ringer.rings = false;
}

/// Rings the alarms of its runtime. Should it end while some are set, because the runtime is shut down,
/// then these ring: whoever still waits sets another one, elsewhere.
struct TimerDriver {
    alarms: Arc<Timers>,
    runtime: Id,
    earlier: Arc<Notify>,
    rings: bool,
}

impl TimerDriver {
    /// Rings what is due, and says when to look again. `None` if nothing is set: then nobody rings.
    fn ring_due(&self) -> Option<Moment> {
        let mut due = Vec::new();
        let mut inside = self.alarms.lock();
        let ring = inside.ring(self.runtime)?;
        let now = self.alarms.clock.now();
        let looks = loop {
            match ring.order.peek().copied() {
                Some(Reverse((at, key))) if !RuntimeTimers::is_set(&ring.set, at, key) => {
                    ring.order.pop();
                }
                Some(Reverse((at, _))) if at > now || due.len() == HANDFUL => break Some(at),
                Some(Reverse((_, key))) => {
                    due.extend(ring.set.try_remove(key).map(|set| set.waker));
                    ring.order.pop();
                }
                None => break None,
            }
        };
        let ended = match looks {
            Some(looks) => {
                ring.looks = looks;
                None
            }
            None => inside.end(self.runtime),
        };
        drop(inside);
        drop(ended);
        due.into_iter().for_each(Waker::wake);
        looks
    }
}

impl Drop for TimerDriver {
    fn drop(&mut self) {
        if self.rings {
            let ended = self.alarms.lock().end(self.runtime);
            if let Some(ring) = ended {
                wake(ring.set);
            }
        }
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: usize = self.lock().rings.iter().map(|ring| ring.set.len()).sum();
        f.debug_struct("Alarms").field("set", &set).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    use super::*;
    use crate::runtime::clock::Sleep;

    /// A clock that stands still.
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
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Case {
        alarms: Arc<Timers>,
        alarm: Timer,
        bell: Arc<Bell>,
    }

    impl Case {
        fn new() -> Case {
            let alarms = Timers::new(Arc::new(Stopped));
            Case { alarms, alarm: Timer::default(), bell: Arc::default() }
        }

        async fn set_for_later(&mut self) {
            let (waker, later) = (Waker::from(self.bell.clone()), Stopped.now() + Duration::from_secs(1));
            self.alarms.set(&mut self.alarm, later, &Context::from_waker(&waker));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        fn rung(&self) -> usize {
            self.bell.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn alarms_ring_when_the_runtime_ends_that_was_to_ring_them() {
        let mut case = Case::new();
        for time in 0..3 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(case.set_for_later());
            assert_eq!(case.rung(), time, "it is not due");
            drop(runtime);
            assert_eq!(case.rung(), time + 1, "whoever waits can set another one elsewhere");
        }
    }

    #[test]
    fn an_alarm_that_is_set_where_no_task_can_be_started_any_more_rings_at_once() {
        let mut case = Case::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime.handle().clone();
        drop(runtime);
        let _here = ended.enter();
        let (waker, later) = (Waker::from(case.bell.clone()), Stopped.now() + Duration::from_secs(1));
        case.alarms.set(&mut case.alarm, later, &Context::from_waker(&waker));
        assert_eq!(case.rung(), 1);
    }

    #[test]
    fn an_alarm_that_is_set_again_elsewhere_rings_there() {
        let mut case = Case::new();
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (before, after) = (runtime(), runtime());
        before.block_on(case.set_for_later());
        after.block_on(case.set_for_later());
        drop(before);
        assert_eq!(case.rung(), 0, "it has left");
        drop(after);
        assert_eq!(case.rung(), 1);
    }

    #[tokio::test]
    async fn all_alarms_ring_at_once_if_need_be() {
        let mut case = Case::new();
        case.set_for_later().await;
        assert_eq!(case.rung(), 0, "it is not due");
        case.alarms.ring_all();
        assert_eq!(case.rung(), 1);
        case.alarms.ring_all();
        assert_eq!(case.rung(), 1, "each of them once");
    }

    /// Notes when it rings, among others.
    struct Bells(usize, Mutex<Sender<usize>>);

    impl Wake for Bells {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().send(self.0).unwrap();
        }
    }

    #[tokio::test]
    async fn many_that_are_due_ring_a_handful_at_a_time() {
        let case = Case::new();
        let waker = Waker::from(case.bell.clone());
        let mut set: Vec<Timer> = (0..3 * HANDFUL).map(|_| Timer::default()).collect();
        for alarm in &mut set {
            case.alarms.set(alarm, Moment::ORIGIN, &Context::from_waker(&waker));
        }
        let mut rung = Vec::new();
        while rung.last() != Some(&set.len()) {
            tokio::task::yield_now().await;
            rung.push(case.rung());
        }
        rung.dedup();
        assert_eq!(rung, [1, 2, 3].map(|handfuls| handfuls * HANDFUL), "others have a turn in between");
    }

    #[tokio::test]
    async fn those_that_are_due_ring_in_the_order_of_their_moments() {
        let (case, (rung, ringing)) = (Case::new(), channel());
        let mut set = Vec::new();
        for (bell, millis) in [30, 10, 40, 20, 10].into_iter().enumerate() {
            let (waker, mut alarm) =
                (Waker::from(Arc::new(Bells(bell, Mutex::new(rung.clone())))), Timer::default());
            let at = Moment::since_origin(Duration::from_millis(millis));
            case.alarms.set(&mut alarm, at, &Context::from_waker(&waker));
            set.push(alarm);
        }
        case.alarms.stop(&mut set[3]);
        tokio::task::yield_now().await;
        assert_eq!(ringing.try_iter().collect::<Vec<_>>(), [1, 4, 0, 2]);
    }

    #[tokio::test]
    async fn alarms_that_were_stopped_leave_no_trail() {
        let mut case = Case::new();
        case.set_for_later().await;
        for _ in 0..10 * TOLERATED {
            let (waker, mut alarm) = (Waker::from(case.bell.clone()), Timer::default());
            case.alarms.set(&mut alarm, Stopped.now() + Duration::from_secs(2), &Context::from_waker(&waker));
            case.alarms.stop(&mut alarm);
        }
        let inside = case.alarms.lock();
        assert_eq!(inside.rings[0].set.len(), 1);
        assert!(inside.rings[0].order.len() <= TOLERATED + 2, "{}", inside.rings[0].order.len());
    }

    #[tokio::test]
    async fn an_alarm_that_has_rung_stops_no_other_that_was_set_since() {
        let mut case = Case::new();
        case.set_for_later().await;
        case.alarms.ring_all();
        let mut rung = mem::take(&mut case.alarm);
        case.set_for_later().await;
        case.alarms.stop(&mut rung);
        case.alarms.ring_all();
        assert_eq!(case.rung(), 2);
    }

    #[tokio::test]
    async fn an_alarm_that_was_stopped_does_not_ring() {
        let mut case = Case::new();
        case.set_for_later().await;
        case.alarms.stop(&mut case.alarm);
        case.alarms.ring_all();
        assert_eq!(case.rung(), 0);
    }
}
