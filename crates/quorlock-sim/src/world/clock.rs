//! The clock of a host: its own rate, origin and calendar, and timers that fire late.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Mutex, Sleep};

use super::{Event, Host, HostState, Inside, Time, World, nanos};

const MILLION: i128 = 1_000_000;

/// The clock of one host.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    world: Arc<World>,
    host: Host,
    rate: Rate,
    /// Its reading at the start.
    origin: u64,
    /// The total of its steps forwards.
    stepped: Arc<AtomicU64>,
    /// The offset of its calendar from the start of the simulation. It is synchronized, and so runs
    /// at the true rate.
    calendar: Duration,
    /// The maximum delay of its timers.
    slack: u64,
}

/// How much faster than true time a clock runs, in millionths; slower if negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate(pub(crate) i64);

/// Like the async runtime's timers: a resolution of a millisecond, and some delay of the machine.
const SLACK: Duration = Duration::from_micros(1200);

impl HostClock {
    pub(crate) fn new(
        world: &Arc<World>,
        host: Host,
        rate: Rate,
        origin: Duration,
        calendar: Duration,
    ) -> HostClock {
        HostClock {
            world: world.clone(),
            host,
            rate,
            origin: nanos(origin),
            stepped: Arc::default(),
            calendar,
            slack: nanos(SLACK),
        }
    }

    /// Returns the same clock with timers that are never late, for checks.
    pub(crate) fn exact(&self) -> HostClock {
        HostClock { slack: 0, ..self.clone() }
    }

    /// Steps the clock forwards. Timers do not notice.
    pub(crate) fn step(&self, by: Duration) {
        self.stepped.fetch_add(nanos(by), Ordering::Relaxed);
    }

    /// Returns the true time in which this clock advances by `span`, rounded down.
    pub(crate) fn until_it_shows(&self, span: Duration) -> Time {
        u64::try_from(i128::from(nanos(span)) * MILLION / (MILLION + i128::from(self.rate.0)))
            .unwrap_or(Time::MAX)
    }

    fn elapsed(&self, at: Time) -> u64 {
        let run = i128::from(at) * (MILLION + i128::from(self.rate.0)) / MILLION;
        u64::try_from(run).unwrap_or(0) + self.stepped.load(Ordering::Relaxed)
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        Moment::since_origin(Duration::from_nanos(self.origin + self.elapsed(self.world.now())))
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let wait = self.until_it_shows(moment.since(self.now()));
        // Rounded up: never early.
        let due = self.world.now().saturating_add(wait).saturating_add(2);
        Box::pin(Nap { world: self.world.clone(), host: self.host, due, slack: self.slack, timer: None })
    }

    fn wall(&self) -> Duration {
        self.calendar + Duration::from_nanos(self.world.now())
    }
}

/// A timer of a host, once it is polled.
pub(crate) struct Timer {
    host: Host,
    life: u32,
    state: Mutex<State>,
}

struct State {
    due: Time,
    /// How long the host's timers had been stopped in total when it was set.
    frozen: Time,
    waiting: Waiting,
}

enum Waiting {
    For(Waker),
    /// It has fired.
    Fired,
    /// It was dropped.
    Gone,
}

impl Timer {
    /// Fires if it is still awaited, and returns its host. A timer that was stopped with its host
    /// is due later by as much.
    pub(crate) fn fire(self: Arc<Timer>, inside: &mut Inside) -> Option<Host> {
        let host = &mut inside.hosts[self.host];
        let mut state = self.state.lock();
        if host.life != self.life || !matches!(state.waiting, Waiting::For(_)) {
            return None;
        }
        if host.frozen_since.is_some() {
            drop(state);
            host.overdue.push(self);
            return None;
        }
        if host.frozen > state.frozen {
            state.due += host.frozen - state.frozen;
            state.frozen = host.frozen;
            let due = state.due;
            drop(state);
            inside.schedule(due, Event::Timer(self));
            return None;
        }
        if let Waiting::For(waker) = std::mem::replace(&mut state.waiting, Waiting::Fired) {
            inside.wakers.push(waker);
        }
        Some(self.host)
    }
}

/// Waits for a moment. Its timer is set on the first poll.
struct Nap {
    world: Arc<World>,
    host: Host,
    due: Time,
    slack: u64,
    timer: Option<Arc<Timer>>,
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = &self.timer {
            let mut state = timer.state.lock();
            return match &mut state.waiting {
                Waiting::For(waker) => {
                    waker.clone_from(context.waker());
                    Poll::Pending
                }
                Waiting::Fired | Waiting::Gone => Poll::Ready(()),
            };
        }
        let waker = context.waker().clone();
        let timer = self.world.with(|inside, now| {
            // A wait that is already over also yields first, like a real timer.
            let due = self.due.max(now) + inside.rng.number(0, self.slack);
            let HostState { life, frozen, .. } = inside.hosts[self.host];
            let state = State { due, frozen, waiting: Waiting::For(waker) };
            let timer = Arc::new(Timer { host: self.host, life, state: Mutex::new(state) });
            inside.schedule(due, Event::Timer(timer.clone()));
            timer
        });
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Nap {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.state.lock().waiting = Waiting::Gone;
        }
    }
}
