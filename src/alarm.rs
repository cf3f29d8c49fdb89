//! Wakes keepers and rounds when something is due there: one timer for all of them.
//!
//! A timer of its own for each lease would be a sixth of what an idle one needs, and the timers of a
//! cycle of acquire and release nearly never come to anything.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::protocol::Moment;

/// The alarms of a coordinator.
///
/// They ring at their moment or somewhat later, and sometimes for nothing: whoever is woken asks the
/// clock.
pub(crate) struct Alarms {
    clock: Arc<dyn Clock>,
    inside: Mutex<Inside>,
    /// Tells the ringer of an alarm that is earlier than those it knows.
    earlier: Notify,
}

#[derive(Default)]
struct Inside {
    /// In order, so that a seed reproduces in which order they ring.
    set: BTreeMap<Place, Waker>,
    places: u64,
    /// When the ringer looks next; `None` where nobody rings.
    looks: Option<Moment>,
}

/// When an alarm rings, and a number that tells it from others.
type Place = (Moment, u64);

/// One of them, which may be set.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    place: Option<Place>,
}

impl Alarms {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Alarms> {
        Arc::new(Alarms { clock, inside: Mutex::default(), earlier: Notify::new() })
    }

    /// From now on `alarm` wakes the task of `context` at the moment given, and at no other.
    pub(crate) fn set(self: &Arc<Self>, alarm: &mut Alarm, at: Moment, context: &Context<'_>) {
        let mut inside = self.lock();
        if let Some(place) = alarm.place
            && place.0 == at
            && let Some(waker) = inside.set.get_mut(&place)
        {
            return waker.clone_from(context.waker());
        }
        let before = alarm.place.take().and_then(|place| inside.set.remove(&place));
        inside.places += 1;
        let place = (at, inside.places);
        inside.set.insert(place, context.waker().clone());
        alarm.place = Some(place);
        match inside.looks {
            Some(looks) if looks <= at => {}
            Some(_) => {
                inside.looks = Some(at);
                self.earlier.notify_one();
            }
            // Without a runtime nothing is woken in any case.
            None => {
                if let Ok(runtime) = Handle::try_current() {
                    inside.looks = Some(at);
                    drop(runtime.spawn(ring(Ringer { alarms: self.clone(), rings: true })));
                }
            }
        }
        drop(inside);
        drop(before);
    }

    /// The alarm rings no more.
    pub(crate) fn stop(&self, alarm: &mut Alarm) {
        let waker = alarm.place.take().and_then(|place| self.lock().set.remove(&place));
        // Dropped after the lock is gone: it may be the last that keeps a task.
        drop(waker);
    }

    /// All of them ring, once: something has changed that everybody should look at.
    pub(crate) fn ring_all(&self) {
        let all = mem::take(&mut self.lock().set);
        all.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings until nothing is set any more, so an idle coordinator has no such task.
async fn ring(mut ringer: Ringer) {
    let alarms = ringer.alarms.clone();
    while let Some(looks) = alarms.ring_due() {
        tokio::select! {
            biased;
            () = alarms.earlier.notified() => {}
            () = alarms.clock.sleep_until(looks) => {}
        }
    }
    // From the last look on there may be another ringer.
    ringer.rings = false;
}

impl Alarms {
    /// Rings what is due, and says when to look again. `None` if nothing is set: then nobody rings.
    fn ring_due(&self) -> Option<Moment> {
        let mut due = Vec::new();
        let looks = {
            let mut inside = self.lock();
            let now = self.clock.now();
            while let Some(first) = inside.set.first_entry()
                && first.key().0 <= now
            {
                due.push(first.remove());
            }
            inside.looks = inside.set.keys().next().map(|(at, _)| *at);
            inside.looks
        };
        due.into_iter().for_each(Waker::wake);
        looks
    }
}

/// Should it end while alarms are set, because its runtime is shut down, then all of them ring: whoever
/// still waits sets another one.
struct Ringer {
    alarms: Arc<Alarms>,
    rings: bool,
}

impl Drop for Ringer {
    fn drop(&mut self) {
        if self.rings {
            self.alarms.lock().looks = None;
            self.alarms.ring_all();
        }
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms").field("set", &self.lock().set.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::clock::Sleep;

    /// A clock that stands still.
    #[derive(Debug)]
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Moment {
            Moment::since_origin(Duration::from_secs(1))
        }

        fn sleep_until(&self, _: Moment) -> Sleep {
            Box::pin(pending())
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
        alarms: Arc<Alarms>,
        alarm: Alarm,
        bell: Arc<Bell>,
    }

    impl Case {
        fn new() -> Case {
            let alarms = Alarms::new(Arc::new(Stopped));
            Case { alarms, alarm: Alarm::default(), bell: Arc::default() }
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

    #[tokio::test]
    async fn an_alarm_that_was_stopped_does_not_ring() {
        let mut case = Case::new();
        case.set_for_later().await;
        case.alarms.stop(&mut case.alarm);
        case.alarms.ring_all();
        assert_eq!(case.rung(), 0);
    }
}
