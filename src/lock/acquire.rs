//! How a call acquires a lock: in its own future, from the queue of its process, or again by its owner.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select};
use tokio::runtime::Handle;

use super::Lock;
use crate::engine::acquire_span::{AcquireSpan, SpanHandle};
use crate::engine::hold::{Hold, WeakHold};
use crate::engine::keeper::dispatcher::{Dispatcher, ServedBy, serve};
use crate::engine::options::{AcquireRequest, Fencing, Reentry, check_label};
use crate::engine::owner::{Owner, Slot};
use crate::engine::queue::{HoldReceiver, Joined, Place, Waiter};
use crate::engine::wait::Wait;
use crate::error::{AcquireError, ConfigError};
use crate::lease::LeaseWatch;
use crate::node::{Capability, Grants};
use crate::runtime::tasks::{Helped, Registry};
use crate::runtime::timer::Until;
use quorlock_protocol::{Mode, Moment, Resource, Verdict};

impl<K, F> Lock<K, F> {
    /// The caller [ends](AcquireSpan::end) the span: what [`Got::TakenHere`] means, the nodes may have to say.
    pub(super) async fn acquire_within(&self, wait: Wait) -> (AcquireSpan, Result<Got, AcquireError>) {
        let since = self.engine.now();
        let asking = AcquireSpan::begin(
            &self.name,
            &self.options.meter,
            (since, || self.engine.nodes.clock.wall()),
            || self.engine.context(&self.options.label),
        );
        // A statement of its own: what is matched on would live for the whole wait.
        let (acquisition, owner) = match self
            .acquisition(wait, since, asking.span())
            .and_then(|acquisition| Ok((acquisition, self.owner_now()?)))
        {
            Ok(prepared) => prepared,
            Err(error) => return (asking, Err(error.into())),
        };
        let got = match owner {
            None => self.acquire_anew(acquisition).await,
            Some(owner) => Box::pin(self.acquire_as(owner, acquisition)).await,
        };
        (asking, got)
    }

    /// The owner that may hold the lock already, if it can be acquired again.
    fn owner_now(&self) -> Result<Option<Owner>, ConfigError> {
        Ok(match &self.options.reentry {
            Reentry::None => None,
            Reentry::Of(owner) => Some(owner.clone()),
            Reentry::OfScope => Some(Owner::current().ok_or(ConfigError::NoOwner)?),
        })
    }

    async fn acquire_as(&self, owner: Owner, acquisition: Arc<AcquireRequest>) -> Result<Got, AcquireError> {
        let wait = acquisition.wait;
        let slot = owner.slot(self.engine.number, &self.keys)?;
        if let Some(again) = Self::again(&slot, &acquisition)? {
            return Ok(Got::Hold(again));
        }
        // Another task of the same owner may be acquiring it right now.
        let _acquiring = match wait {
            Wait::Never => match slot.acquiring.try_lock() {
                Ok(acquiring) => acquiring,
                Err(_) => return Ok(Got::TakenHere),
            },
            Wait::UpTo(_) | Wait::Forever => tokio::select! {
                biased;
                acquiring = slot.acquiring.lock() => acquiring,
                () = self.deadline(&acquisition) => {
                    return Err(self.taken_here(self.engine.now().since(acquisition.since)).await);
                }
            },
        };
        // It may have done so meanwhile.
        if let Some(again) = Self::again(&slot, &acquisition)? {
            return Ok(Got::Hold(again));
        }
        let got = self.acquire_anew(acquisition).await?;
        if let Got::Hold(hold) = &got {
            *slot.held.lock() = WeakHold::of(&hold.state);
        }
        Ok(got)
    }

    /// Adds a hold to the lock that the owner of this slot holds, if it does.
    fn again(slot: &Slot, acquisition: &AcquireRequest) -> Result<Option<Hold>, ConfigError> {
        let Some(again) = slot.held.lock().again() else { return Ok(None) };
        let watch = LeaseWatch::<Fencing>::of(&again);
        if watch.check().is_err() {
            return Ok(None);
        }
        if watch.mode() == Mode::Shared && acquisition.mode == Mode::Exclusive {
            return Err(ConfigError::Upgrade);
        }
        if watch.fencing_token().is_none() && acquisition.fencing == Fencing::On {
            return Err(ConfigError::HeldUnfenced);
        }
        Ok(Some(again))
    }

    async fn acquire_anew(&self, acquisition: Arc<AcquireRequest>) -> Result<Got, AcquireError> {
        if self.engine.closing.is_cancelled() {
            return Err(AcquireError::Closed);
        }
        if let Some(registry) = self.registry.as_ref().filter(|registry| registry.has_orphans()) {
            Box::pin(self.catch_up(registry)).await;
        }
        let Some(mut coming) = self.line_up(&acquisition) else { return Ok(Got::TakenHere) };
        let came = tokio::select! {
            biased;
            came = coming.hold() => Some(came),
            () = self.deadline(&acquisition) => None,
        };
        if let Some(came) = came {
            return came.map(Got::Hold);
        }
        // A lease that is granted from here on is released.
        let news = self.engine.queues_of(acquisition.mode).news(acquisition.queue_key());
        drop(coming);
        let waited = self.engine.now().since(acquisition.since);
        // The news is not matched on: it would live for the whole wait.
        if let Some(news) = news
            && news.verdict != Verdict::Contended
        {
            return Err(acquisition.not_acquired(news, waited));
        }
        self.ask_at_the_end(acquisition, waited).await
    }

    /// The first waiter of this process contends for the lock in its own future, and serves the waiters behind
    /// it. `None` for a caller that does not wait, if there are others before it.
    fn line_up(&self, acquisition: &Arc<AcquireRequest>) -> Option<Coming> {
        let (engine, runtime) = (self.engine.clone(), Handle::current());
        if let Some(registry) = &self.registry {
            registry.see(&runtime);
        }
        // Another reader of this process, in whatever queue, says nothing about the nodes' answer.
        if acquisition.mode == Mode::Shared && acquisition.wait == Wait::Never {
            return Some(self.served_alone(acquisition, ServedBy::None));
        }
        let queues = self.engine.queues_of(acquisition.mode);
        Some(match (queues.join(acquisition, &runtime), acquisition.mode) {
            (Joined::Taken, _) => return None,
            (Joined::Behind(place, delivery), _) => {
                if acquisition.on_wait.is_some() {
                    queues.report_held(&place, engine.nodes.quorum.needed(), engine.now());
                }
                self.served(delivery, Some(place))
            }
            (Joined::First, Mode::Exclusive) => {
                let dispatcher = Dispatcher::begin(engine, acquisition, ServedBy::Holder);
                Coming::Led(dispatcher.lead(acquisition.clone()))
            }
            (Joined::First, Mode::Shared) => self.served_alone(acquisition, ServedBy::Task),
        })
    }

    /// A task contends for a reader.
    fn served_alone(&self, acquisition: &Arc<AcquireRequest>, by: ServedBy) -> Coming {
        let runtime = Handle::current();
        let (waiter, delivery) = Waiter::alone(acquisition.clone(), runtime.clone());
        let dispatcher = Dispatcher::begin(self.engine.clone(), acquisition, by);
        self.engine.tasks.spawn(serve(dispatcher, waiter), &runtime);
        self.served(delivery, None)
    }

    /// Waits for the tasks that an ended runtime has left behind, for as long as the nodes should need: one may be the
    /// release of the lock that is asked for here.
    async fn catch_up(&self, registry: &Registry) {
        let undone = registry.help(&Handle::current());
        let overdue = self.engine.nodes.all_overdue_after(self.engine.ttl);
        let late = self.engine.sleep_until(self.engine.now() + overdue);
        match select(join_all(undone), late).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    fn served(&self, delivery: HoldReceiver, place: Option<Place>) -> Coming {
        Coming::Served { delivery: Helped::new(self.engine.tasks.registry(), delivery), _place: place }
    }

    /// Ends with the caller's wait. Asking once has no time limit of its own.
    fn deadline(&self, acquisition: &AcquireRequest) -> Until {
        self.engine.nodes.timers.until(match acquisition.wait {
            Wait::UpTo(longest) => Some(acquisition.since + longest),
            Wait::Never | Wait::Forever => None,
        })
    }

    /// The error for a lock that this process holds, or that another of its callers waits for, with the nodes'
    /// votes. What that one waits for may be the nodes. Callers box the future, so that a waiter does not carry
    /// its size.
    pub(super) async fn taken_here(&self, waited: Duration) -> AcquireError {
        let (report, resource) = match (self.inspect().await, self.resource()) {
            (Ok(report), Ok(resource)) => (Box::new(report), resource),
            (Err(error), _) | (_, Err(error)) => return error.into(),
        };
        if report.misconfigured() {
            AcquireError::Misconfigured { resource, report }
        } else if report.verdict() == Verdict::Unavailable && !self.is_held_here() {
            AcquireError::Unavailable { resource, report, waited }
        } else {
            AcquireError::Contended { resource, report, waited }
        }
    }

    /// Whether this process holds the lock, by a lease that is not over.
    pub(super) fn is_held_here(&self) -> bool {
        self.engine.queues_of(self.options.mode).is_held(self.keys.queue_key(), self.engine.now())
    }

    /// What a caller gets whose wait is over. Others hold the lock if the nodes say so now: the last attempt may be
    /// long ago, have asked one node only, or none. Otherwise it asks once, as a caller that does not wait: the holder
    /// may just have released the lock, and on a busy machine a short wait is over before any node can answer, which
    /// is no outage.
    fn ask_at_the_end(
        &self,
        acquisition: Arc<AcquireRequest>,
        waited: Duration,
    ) -> BoxFuture<'_, Result<Got, AcquireError>> {
        Box::pin(async move {
            let refused = self.taken_here(waited).await;
            if !matches!(&refused, AcquireError::Contended { report, .. } if !report.is_taken()) {
                return Err(refused);
            }
            match self
                .acquire_anew(self.acquisition(Wait::Never, acquisition.since, &acquisition.span)?)
                .await?
            {
                Got::TakenHere => Err(refused),
                hold @ Got::Hold(_) => Ok(hold),
            }
        })
    }

    fn acquisition(
        &self,
        wait: Wait,
        since: Moment,
        span: &SpanHandle,
    ) -> Result<Arc<AcquireRequest>, ConfigError> {
        let resource = self.check()?;
        Resource::check_keys(self.keys.iter())?;
        debug_assert!(
            self.options.ttl <= self.engine.max_ttl,
            "a restarted node votes after `max_ttl`, so no key lives longer (rule I-13)"
        );
        Ok(Arc::new(AcquireRequest {
            resource,
            keys: self.keys.clone(),
            wait,
            transfers: self.passes_on(),
            since,
            span: span.clone(),
            options: self.options.clone(),
        }))
    }

    /// Whether a holder may pass the lock to another waiter of its process. That would pass a queue that is served in order,
    /// and to know that no client waits there would cost the trip that it saves.
    fn passes_on(&self) -> bool {
        let nodes = &self.engine.nodes.capabilities;
        nodes.has(Capability::Transfer) && nodes.grants == Grants::Any
    }

    /// The resource, if its name and the options can work.
    pub(super) fn check(&self) -> Result<Resource, ConfigError> {
        let resource = self.resource()?;
        self.engine.check_ttl(self.options.ttl)?;
        self.options.renewal.check(self.options.ttl)?;
        if self.options.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(ConfigError::Zero { setting: "max_hold" });
        }
        check_label(&self.options.label)?;
        self.check_capabilities()?;
        Ok(resource)
    }

    /// Refuses a lock that needs what one of the nodes cannot do.
    fn check_capabilities(&self) -> Result<(), ConfigError> {
        let needs = [
            (self.keys.are_several(), Capability::Several),
            (self.options.mode == Mode::Shared, Capability::Shared),
        ];
        let lacking = needs.into_iter().filter(|(needed, _)| *needed).map(|(_, capability)| capability);
        for capability in lacking {
            if let Some(node) = self.engine.nodes.without(capability) {
                return Err(ConfigError::Unsupported { node, capability });
            }
        }
        Ok(())
    }
}

/// The outcome of acquiring.
pub(super) enum Got {
    Hold(Hold),
    /// This process holds the lock or has a waiter for it already, and the caller does not wait.
    TakenHere,
}

/// How a caller gets its lease.
enum Coming {
    /// It contends for the lock itself.
    Led(BoxFuture<'static, Result<Hold, AcquireError>>),
    /// Another task delivers it; with the place in the queue, given up when this is dropped, where other waiters of
    /// the process came before.
    Served { delivery: Helped<HoldReceiver>, _place: Option<Place> },
}

impl Coming {
    async fn hold(&mut self) -> Result<Hold, AcquireError> {
        match self {
            Coming::Led(hold) => hold.await,
            Coming::Served { delivery, .. } => match delivery.await {
                Ok(came) => came.map_err(|error| *error),
                // No answer: the runtime is being shut down.
                Err(_) => Err(AcquireError::Closed),
            },
        }
    }
}
