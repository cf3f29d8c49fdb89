//! A held lock.

use std::ffi::CString;
use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join_all;
use futures::lock::Mutex;
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use quorlock::blocking::Background;
use quorlock::lock::{Multi, Single};
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Fencing, LossReason, Lost, RenewError, RetainError};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::watch;

type LeaseWatch = quorlock::LeaseWatch<Fencing>;

use crate::error::{self, duration};
use crate::events::Called;
use crate::kept::{ERRORS, LEASE};
use crate::keywords::for_python;
use crate::process::{Own, Process};
use crate::reactor::{Outcome, Reactor, dispatch};

pub(crate) enum Held {
    One(quorlock::Lease<Single, Fencing>),
    Several(quorlock::Lease<Multi, Fencing>),
}

impl Held {
    fn watch(&self) -> LeaseWatch {
        match self {
            Held::One(lease) => lease.watch(),
            Held::Several(lease) => lease.watch(),
        }
    }

    async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        match (self, ttl) {
            (Held::One(lease), None) => lease.renew().await,
            (Held::One(lease), Some(ttl)) => lease.extend(ttl).await,
            (Held::Several(lease), None) => lease.renew().await,
            (Held::Several(lease), Some(ttl)) => lease.extend(ttl).await,
        }
    }

    async fn release(self) -> Result<(), Lost> {
        match self {
            Held::One(lease) => lease.release().await,
            Held::Several(lease) => lease.release().await,
        }
    }
}

#[pyclass(frozen)]
pub(crate) struct Lease {
    held: Own<Lasting>,
    #[pyo3(get)]
    resource: String,
    /// The number of the semaphore's permit, if it is one.
    #[pyo3(get)]
    permit: Option<usize>,
    #[pyo3(get)]
    fencing_token: Option<u64>,
    #[pyo3(get)]
    store_revision: Option<u64>,
    #[pyo3(get)]
    token: Vec<u8>,
}

struct Lasting {
    /// Empty once it is released. A renewal holds the lock, and a release waits for it.
    slot: Arc<Mutex<Option<Held>>>,
    end: End,
    background: Background,
    since: Moment,
    /// Whether it was asked to end.
    ended: AtomicBool,
}

/// Knows when the lease is over, without keeping it.
#[derive(Clone)]
struct End {
    watch: LeaseWatch,
    /// Whether it was released while its owner has further leases, which `watch` does not tell apart.
    left: watch::Sender<bool>,
}

impl End {
    /// Why the lease is over.
    fn over(&self) -> Option<LossReason> {
        if *self.left.borrow() { Some(LossReason::Released) } else { Some(self.watch.check().err()?.reason) }
    }

    /// Waits until the lease is over.
    async fn lost(&self) -> LossReason {
        let mut left = self.left.subscribe();
        tokio::select! {
            lost = self.watch.lost() => lost.reason,
            // It lasts as long as `self`.
            _ = left.wait_for(|left| *left) => LossReason::Released,
        }
    }

    fn check(&self) -> Result<(), Failed> {
        self.over().map_or(Ok(()), |reason| Err(self.failed(reason)))
    }

    /// What an empty slot means, also while its release is under way.
    fn gone(&self) -> Failed {
        self.failed(self.over().unwrap_or(LossReason::Released))
    }

    fn failed(&self, reason: LossReason) -> Failed {
        Failed::Over(self.watch.resource().as_str().to_owned(), reason)
    }
}

/// Notes at its end that the lease was released, if its owner has further ones.
struct Leaving(End);

impl Drop for Leaving {
    fn drop(&mut self) {
        if self.0.watch.check().is_ok() {
            self.0.left.send_replace(true);
        }
    }
}

/// Why a call of a lease failed.
enum Failed {
    Over(String, LossReason),
    Renewal(RenewError),
    Retaining(RetainError),
    Refused(String),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Failed {
        Failed::Over(lost.resource.as_str().to_owned(), lost.reason)
    }
}

impl Failed {
    fn raised(&self, py: Python<'_>) -> PyErr {
        match self {
            Failed::Over(resource, reason) => error::of_lost(py, resource, *reason),
            Failed::Renewal(error) => error::of_renewal(py, error),
            Failed::Retaining(error) => error::of_retaining(py, error),
            Failed::Refused(reason) => error::config(py, reason),
        }
    }
}

/// What Python gets.
fn outcome(result: Result<(), Failed>) -> impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send {
    move |py| match result {
        Ok(()) => Ok(py.None()),
        Err(failed) => Err(failed.raised(py)),
    }
}

impl Lease {
    pub(crate) fn hand_out(
        py: Python<'_>,
        background: Background,
        held: Held,
        permit: Option<usize>,
    ) -> PyResult<Py<PyAny>> {
        let watch = held.watch();
        let lease = Lease {
            resource: watch.resource().as_str().to_owned(),
            permit,
            fencing_token: watch.fencing_token().map(u64::from),
            store_revision: watch.store_revision(),
            token: watch.token().as_bytes().to_vec(),
            held: Own::new(Lasting {
                slot: Arc::new(Mutex::new(Some(held))),
                end: End { watch, left: watch::Sender::new(false) },
                background,
                since: SystemClock::default().now(),
                ended: AtomicBool::new(false),
            }),
        };
        Ok(Py::new(py, lease)?.into_any())
    }

    /// Ends a context: releases, and raises a loss, or logs it. What the body has released is over already.
    pub(crate) fn end(&self, py: Python<'_>, raises: bool) -> PyResult<()> {
        if self.loss() == Some(error::reason(LossReason::Released)) {
            return Ok(());
        }
        let Err(failed) = self.release(py, None) else { return Ok(()) };
        if raises || !failed.is_instance(py, &ERRORS.get(py, "Lost")?) {
            return Err(failed);
        }
        LEASE.get(py, "report")?.call1((failed.into_value(py),))?;
        Ok(())
    }

    /// Returns an error in a process that has inherited the lease: only its parent holds it.
    fn lasting(&self, py: Python<'_>) -> PyResult<&Lasting> {
        self.held.get().ok_or_else(|| error::forked(py, &self.resource))
    }

    /// As [`Lease::lasting`], for calls that end it.
    fn ending(&self, py: Python<'_>) -> PyResult<&Lasting> {
        let held = self.lasting(py)?;
        held.ended.store(true, Ordering::Relaxed);
        Ok(held)
    }
}

impl Drop for Lease {
    /// Says that the lock is given back though no one has asked for that.
    fn drop(&mut self) {
        let Some(held) = self.held.get() else { return };
        if held.ended.load(Ordering::Relaxed) || held.end.over().is_some() {
            return;
        }
        let age = SystemClock::default().now().since(held.since);
        let warning = format!(
            "the lease of `{}` was dropped {age:.1?} after it was acquired, and this gave the lock back: keep it in a \
             variable, use `with`, or acquire(keep=True)",
            error::printable(&self.resource),
        );
        tracing::warn!(target: "quorlock::python", "{warning}");
        let _ = Python::try_attach(|py| {
            // Objects may be dropped while an exception is raised.
            let raised = PyErr::take(py);
            let text = CString::new(warning).unwrap_or_default();
            if let Err(error) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1) {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

#[pymethods]
impl Lease {
    /// Gives the lock back without waiting for the nodes, and without a warning.
    pub(crate) fn give_back(&self) {
        let Some(held) = self.held.get() else { return };
        held.ended.store(true, Ordering::Relaxed);
        let leaving = Leaving(held.end.clone());
        if let Some(mut slot) = held.slot.try_lock() {
            drop(slot.take());
            return;
        }
        let slot = Arc::clone(&held.slot);
        held.background.spawn(async move {
            drop(slot.lock().await.take());
            drop(leaving);
        });
    }

    /// Raises `Lost` once the lease is over.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.lasting(py)?.end.check().map_err(|failed| failed.raised(py))
    }

    /// The remaining validity in seconds; 0 once it is over.
    #[getter]
    fn remaining(&self) -> f64 {
        let lasting = self.held.get().filter(|held| held.end.over().is_none());
        lasting.map_or(0.0, |held| held.end.watch.remaining().as_secs_f64())
    }

    /// Why the lease is over; `None` while it lasts.
    #[getter]
    fn loss(&self) -> Option<&'static str> {
        match self.held.get() {
            Some(held) => held.end.over().map(error::reason),
            None => Some(error::FORKED),
        }
    }

    /// What the nodes said to a release that no quorum has confirmed.
    #[getter]
    fn unconfirmed_release(&self) -> Option<String> {
        let votes = self.held.get()?.end.watch.unconfirmed_release()?;
        Some(for_python(votes.to_string()))
    }

    #[getter]
    fn shared(&self) -> bool {
        self.held.get().is_some_and(|held| held.end.watch.mode() == quorlock::protocol::Mode::Shared)
    }

    /// Waits until the lease is over, for at most `timeout` seconds. Returns the reason, or `None`.
    #[pyo3(signature = (timeout=None, reactor=None))]
    fn wait_lost(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        reactor: Option<&Reactor>,
    ) -> PyResult<Py<PyAny>> {
        let held = self.lasting(py)?;
        let (end, longest) = (held.end.clone(), duration("timeout", timeout)?);
        let background = held.background.clone();
        dispatch(py, &held.background, reactor, async move {
            let lost = match longest {
                Some(longest) => background.within(longest, end.lost()).await,
                None => Some(end.lost().await),
            };
            let word = lost.map(error::reason);
            move |py: Python<'_>| Ok(word.into_pyobject(py)?.unbind())
        })
    }

    /// Waits until the lease is over, or will be in `notice` seconds if it is not renewed. A release is not reported.
    fn until_notice(&self, py: Python<'_>, notice: f64, reactor: &Reactor) -> PyResult<u64> {
        let held = self.lasting(py)?;
        let end = held.end.clone();
        let notice = duration("notice", Some(notice))?.unwrap_or_default();
        reactor.add(async move {
            let lost = until_notice(&end, notice).await;
            if lost == Some(LossReason::Released) {
                return None;
            }
            let word = lost.map(error::reason);
            Some(Box::new(move |py: Python<'_>| Ok(word.into_pyobject(py)?.unbind())) as Outcome)
        })
    }

    /// Puts `number` into the queue of events once the lease is over. If it is lost, and `exit_code` is given, the callback
    /// of that number ends the process; this does, if the callback has not within [`CALLBACK_TIME`].
    #[pyo3(signature = (number, exit_code=None))]
    fn notify_lost(&self, py: Python<'_>, number: u64, exit_code: Option<i32>) -> PyResult<()> {
        let held = self.lasting(py)?;
        let end = held.end.clone();
        held.background.spawn(async move {
            let lost = end.lost().await;
            Process::here().called.push(Called::Lost(number, error::reason(lost)));
            if let Some(code) = exit_code
                && !matches!(lost, LossReason::Released | LossReason::Closed)
            {
                end_process(code).await;
            }
        });
        Ok(())
    }

    /// Starts a new TTL now: another one, if `ttl` is given.
    #[pyo3(signature = (ttl, reactor=None))]
    fn renew(&self, py: Python<'_>, ttl: Option<f64>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (held, ttl) = (self.lasting(py)?, duration("ttl", ttl)?);
        let (slot, end) = (Arc::clone(&held.slot), held.end.clone());
        dispatch(py, &held.background, reactor, async move {
            outcome(match &*slot.lock().await {
                Some(held) => held.renew(ttl).await.map_err(Failed::Renewal),
                None => Err(end.gone()),
            })
        })
    }

    /// Gives the lock back.
    #[pyo3(signature = (reactor=None))]
    fn release(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let held = self.ending(py)?;
        let (slot, end) = (Arc::clone(&held.slot), held.end.clone());
        let released = dispatch(py, &held.background, reactor, async move {
            let taken = slot.lock().await.take();
            let leaving = Leaving(end);
            outcome(match taken {
                Some(held) => held.release().await.map_err(Failed::from),
                None => Err(leaving.0.gone()),
            })
        });
        // The handler of a signal may have ended the wait before it began to release.
        released.inspect_err(|_| self.give_back())
    }

    /// Ends the lease, and keeps the lock taken for this many more seconds.
    #[pyo3(signature = (seconds, note, reactor=None))]
    pub(crate) fn retain(
        &self,
        py: Python<'_>,
        seconds: f64,
        note: String,
        reactor: Option<&Reactor>,
    ) -> PyResult<Py<PyAny>> {
        let time = duration("seconds", Some(seconds))?.unwrap_or_default();
        let held = self.ending(py)?;
        let (slot, end) = (Arc::clone(&held.slot), held.end.clone());
        let retained = dispatch(py, &held.background, reactor, async move {
            let taken = slot.lock().await.take();
            let leaving = Leaving(end);
            outcome(match taken {
                Some(Held::One(lease)) => lease.retain(time, &note).await.map_err(Failed::Retaining),
                Some(Held::Several(lease)) => {
                    let resource = lease.resource().clone();
                    drop(lease.release().await);
                    let reason = "it is of several resources";
                    Err(Failed::Retaining(RetainError::Unsupported { resource, reason }))
                }
                None => Err(leaving.0.gone()),
            })
        });
        retained.inspect_err(|_| self.give_back())
    }

    /// Makes a reader of a writer.
    #[pyo3(signature = (reactor=None))]
    fn downgrade(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let held = self.lasting(py)?;
        let (slot, end, after) = (Arc::clone(&held.slot), held.end.clone(), held.end.clone());
        let (sender, done) = oneshot::channel();
        // It goes on if the handler of a signal ends the wait: cut off, it would release the lock.
        held.background.spawn(async move { drop(sender.send(downgrade(&slot, &end).await)) });
        dispatch(py, &held.background, reactor, async move {
            outcome(done.await.unwrap_or_else(|_| Err(after.gone())))
        })
    }
}

/// How long the callback that ends the process has until it is ended without it: other callbacks may hold their thread, or
/// what writes the log may block.
const CALLBACK_TIME: Duration = Duration::from_millis(250);

/// Ends the process without the interpreter, which code of other modules may hold.
async fn end_process(code: i32) {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + CALLBACK_TIME).await;
    // What other libraries have registered for the exit runs now, and may block; the system may grant no thread.
    drop(thread::Builder::new().spawn(move || process::exit(code)));
    clock.sleep_until(clock.now() + CALLBACK_TIME).await;
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Keeps a lease until it is over.
#[pyfunction]
pub(crate) fn keep(py: Python<'_>, lease: Py<Lease>) {
    let is_over =
        |kept: &Py<PyAny>| kept.bind(py).cast::<Lease>().is_ok_and(|lease| lease.get().loss().is_some());
    let mut kept = Process::here().kept.lock();
    let (over, mut lasting): (Vec<_>, Vec<_>) = kept.drain(..).partition(is_over);
    lasting.push(lease.into_any());
    *kept = lasting;
    drop(kept);
    // What this drops may run code.
    drop(over);
}

/// Releases what is kept, also of coordinators that no variable has.
pub(crate) fn release_kept(py: Python<'_>) -> impl Future<Output = ()> + Send + use<> {
    let kept = mem::take(&mut *Process::here().kept.lock());
    let held = kept.iter().filter_map(|lease| lease.bind(py).cast::<Lease>().ok()?.get().held.get());
    let leases = held.map(|held| {
        held.ended.store(true, Ordering::Relaxed);
        (Arc::clone(&held.slot), held.end.clone())
    });
    let releases: Vec<_> = leases
        .map(|(slot, end)| async move {
            let taken = slot.lock().await.take();
            let _leaving = Leaving(end);
            if let Some(held) = taken {
                drop(held.release().await);
            }
        })
        .collect();
    async move {
        join_all(releases).await;
    }
}

async fn downgrade(slot: &Mutex<Option<Held>>, end: &End) -> Result<(), Failed> {
    use quorlock::DowngradeError::{HeldAgain, Lost, Unsupported};

    let mut slot = slot.lock().await;
    let error = match slot.take() {
        Some(Held::One(lease)) => match lease.downgrade().await {
            Ok(lease) => {
                *slot = Some(Held::One(lease));
                return Ok(());
            }
            Err(error) => error,
        },
        several @ Some(Held::Several(_)) => {
            *slot = several;
            return Err(Failed::Refused("a lock of several names cannot be downgraded".to_owned()));
        }
        None => return Err(end.gone()),
    };
    let reason = error.to_string();
    match error {
        Lost(lost) => Err(lost.into()),
        HeldAgain { lease, .. } | Unsupported { lease, .. } => {
            *slot = Some(Held::One(lease));
            Err(Failed::Refused(reason))
        }
        _ => Err(Failed::Refused(reason)),
    }
}

/// Waits until the lease is over, or its remaining validity is `notice` or less: `None` then.
async fn until_notice(end: &End, notice: Duration) -> Option<LossReason> {
    let clock = SystemClock::default();
    // A lease from an offer begins with a second, and has its TTL after a round trip.
    let mut notice_for_now = notice.min(end.watch.remaining() / 2);
    loop {
        let left = end.watch.remaining().saturating_sub(mem::replace(&mut notice_for_now, notice));
        if let Some(lost) = end.over() {
            return Some(lost);
        }
        if left.is_zero() {
            return None;
        }
        // A renewal in the meantime makes the remaining validity longer.
        tokio::select! {
            lost = end.lost() => return Some(lost),
            () = clock.sleep_until(clock.now() + left) => {}
        }
    }
}
