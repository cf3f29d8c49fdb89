//! Places in the queues of nodes for those who cannot wait there alone: readers, which share the lock with others, and
//! callers of several locks, each of which has a queue of its own.
//!
//! A lock that is offered from holder to holder is never free, so they have a place in the queue of each lock, which
//! accepts no offer: when it is first, the lock is released openly, and they are notified (rule W-9).
//!
//! That is enough for a reader. It may also join other readers out of its turn, so it looks at one node whenever the lock
//! changes, and asks all if that has readers. If it asked for a lock that is free, its share would stand on a few nodes for
//! a moment; a writer that meets it there waits for readers, and refuses new ones (rule S-5).
//!
//! A caller of several locks looks at its places instead. When they are confirmed, and for how long a turn is kept,
//! [`OpenPlace`] decides.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::Contender;
use crate::engine::context::EngineContext;
use crate::engine::node_queue::{Accepts, NodeQueue};
use crate::engine::options::AcquireRequest;
use crate::engine::subscription::Subscription;
use crate::node::{Request, SharedRequest, Vote};
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::machine::wait::{OTHER_NODE_EVERY, OpenPlace, Pause, PlaceAnswer, PlaceDue};
use quorlock_protocol::{Mode, Moment, WaiterId};

/// After which time all nodes are asked even if the lock changes all the time: one node may say so of a lock that is free.
const ALL_ASKED_EVERY: Duration = Duration::from_secs(8);

/// A place in the queue of one lock.
pub(super) struct KeptPlace {
    key: Arc<str>,
    queue: NodeQueue,
    open: OpenPlace,
}

impl Contender {
    /// Keeps the places, and returns whether to ask for the lock immediately, because it is our turn at one of them. Otherwise
    /// the `pause` is over, or enough nodes have hinted at a change.
    pub(super) async fn wait_in_places(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        pause: &mut Pause,
        subscription: &Subscription,
    ) -> bool {
        let latest = self.engine.now() + ALL_ASKED_EVERY;
        loop {
            if self.confirm_places(acquisition, pause, subscription).await {
                // A place that rests keeps no turn, and its home may report one again and again (rule W-10).
                if !self.places.iter().any(|place| place.open.is_kept()) {
                    self.keep_pace(subscription).await;
                }
                return true;
            }
            let due =
                self.places.iter().filter(|place| !place.queue.closed).map(|place| place.open.next()).min();
            let until = due.map_or(pause.until, |due| due.min(pause.until));
            self.sleep(pause, until, subscription, || subscription.has_turn()).await;
            if subscription.has_turn() {
                return true;
            }
            let is_over = self.engine.now() >= until;
            if is_over && until == pause.until {
                return false;
            }
            if is_over {
                continue;
            }
            // A hint ended it.
            self.keep_pace(subscription).await;
            if subscription.has_turn() || !self.is_still_excluded(acquisition, pause, subscription).await {
                return true;
            }
            pause.until = pause.until.min(latest);
        }
    }

    /// Confirms the places that are due. Returns whether it is our turn at one of them.
    async fn confirm_places(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        pause: &Pause,
        subscription: &Subscription,
    ) -> bool {
        let (engine, now) = (&self.engine, self.engine.now());
        if self.places.is_empty() {
            let waiter = self.queue.waiter();
            self.places = self.keys.iter().map(|key| KeptPlace::new(key, waiter, engine, now)).collect();
        }
        let name = self.queue.waiter();
        let is_one = self.places.iter().all(|place| place.queue.waiter() == name);
        debug_assert!(is_one, "a waiter has another name in one of its queues");
        for place in &mut self.places {
            let turns = subscription.turns(&place.key, place.queue.waiter());
            place.queue.places.note_turns(turns);
            if !turns.is_empty() {
                place.open.note_turn(now);
            }
        }
        let is_kept = self.places.iter().any(|place| place.open.is_kept());
        let outliers = self.contest.outliers();
        let are_several = self.keys.are_several();
        let turns = self.places.iter_mut().map(|place| {
            let blocks = !are_several || pause.in_the_way.contains(&place.key);
            confirm(place, engine, acquisition, outliers, (blocks, is_kept))
        });
        let turns = join_all(turns).await;
        let now = self.engine.now();
        let report = |place: &mut KeptPlace| Some((place.key.clone(), place.open.take_first_behind()?));
        let reports: Vec<_> = self.places.iter_mut().filter_map(report).collect();
        let is_passed =
            |place: &KeptPlace| !place.open.is_first() && self.intent.is_announced_for(&place.key);
        if self.places.iter().any(is_passed) {
            self.withdraw_intent(acquisition);
        }
        for (key, report) in reports {
            self.announce_intent(acquisition, (&key, &report), now);
        }
        turns.contains(&true)
    }

    /// After a change of a lock: whether this waiter has to wait for its turn, since no readers hold the lock that it could
    /// join. Its places are confirmed then, as the message of a turn may be lost.
    async fn is_still_excluded(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        pause: &mut Pause,
        subscription: &Subscription,
    ) -> bool {
        if self.places.iter().any(|place| place.open.is_kept() || place.queue.closed) {
            return false;
        }
        subscription.clear_hints();
        let now = self.engine.now();
        // The nodes may be wrong, as after a restart.
        pause.until = now + OTHER_NODE_EVERY;
        if let ([place], Mode::Shared) = (&mut self.places[..], self.mode) {
            match place.queue.look(&self.engine, &place.key, acquisition).await {
                None => return false,
                Some(Vote::Held(holding)) if holding.token.is_marker() => return false,
                Some(Vote::Free) => place.open.ask_at(now),
                Some(_) => {}
            }
            pause.wait_for(place.queue.home(&self.engine, &place.key));
        } else {
            self.places.iter_mut().for_each(|place| place.open.ask_at(now));
        }
        true
    }

    /// Leaves the queues: the waiter `won` or gave up.
    pub(super) fn leave_places(&mut self, acquisition: &AcquireRequest, won: bool) {
        for KeptPlace { key, mut queue, .. } in std::mem::take(&mut self.places) {
            let waiter = queue.waiter();
            let nodes = queue.end(won);
            leave(&self.engine, acquisition, (key, waiter), nodes);
        }
    }
}

impl KeptPlace {
    /// The name of the wait is the same in all queues, so that one attempt may take all these places.
    fn new(key: &Arc<str>, waiter: WaiterId, engine: &EngineContext, now: Moment) -> KeptPlace {
        let queue = NodeQueue::named(Accepts::OpenReleases, waiter, &engine.entropy);
        KeptPlace { key: key.clone(), queue, open: OpenPlace::new(now) }
    }
}

/// Confirms a place that is due, and returns whether its turn has come; that of a lock that was free, as it `blocks` no
/// attempt, is none. While `others_are_kept`, no place must be missing.
async fn confirm(
    place: &mut KeptPlace,
    engine: &Arc<EngineContext>,
    acquisition: &Arc<AcquireRequest>,
    outliers: NodeSet,
    (blocks, others_are_kept): (bool, bool),
) -> bool {
    if place.queue.closed {
        return false;
    }
    let now = engine.now();
    let is_missing = others_are_kept && place.queue.places.is_out();
    match place.open.due(now.since(acquisition.since), is_missing, now) {
        PlaceDue::Nothing => return false,
        PlaceDue::PassOn => {
            let nodes = place.queue.places.pass_on();
            leave(engine, acquisition, (place.key.clone(), place.queue.waiter()), nodes);
            return false;
        }
        PlaceDue::Ask => {}
    }
    let Some(asked) = place.queue.ask(engine, &place.key, acquisition, outliers).await else {
        place.open.is_unanswered(engine.now());
        return false;
    };
    match place.open.answered(asked, blocks, now) {
        PlaceAnswer::Waits => false,
        PlaceAnswer::HasTurn => true,
        PlaceAnswer::KeepsTurn => {
            place.queue.ask(engine, &place.key, acquisition, outliers).await;
            false
        }
    }
}

/// Tells these nodes that the waiter does not wait for the lock any more.
pub(super) fn leave(
    engine: &Arc<EngineContext>,
    acquisition: &AcquireRequest,
    (key, waiter): (Arc<str>, WaiterId),
    nodes: NodeSet,
) {
    if !nodes.is_empty() {
        let leave = SharedRequest::from(Request::LeaveQueue { key, waiter });
        engine.ask_in_background(acquisition.ttl, |node| nodes.contains(node).then(|| leave.clone()));
    }
}
