//! Takes one claim back on every node that it may have reached: a released lease, or a failed attempt.
//!
//! | state of the key on a node | request | why |
//! |---|---|---|
//! | `Without` | none | nothing of the claim was written to the node, or it refused |
//! | `Holds`, `InFlight` | a release, or an offer to the next waiter | it is queued behind the request that it takes back |
//! | `Unknown` | a cancel | the connection ended with a request unanswered: the tombstone stops that if it arrives late |
//!
//! A failed attempt of a waiter in a queue ([`Of::Attempt`]) sends a cancel in place of a
//! release, because a release notifies the next waiter, and it may still be this waiter's turn (W-8).
//!
//! ```text
//!  start ─► each node is asked ─► all have confirmed ────────────────────────────► over
//!                                     │ a node fails
//!                                     └─► pause ─► cancel ─► confirmed, or again ─► over
//!                                                                `until` passes ──► over
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | a node confirms | Nothing is left to do there. |
//! | a node fails for now | It is asked again after a pause that grows, by a cancel. |
//! | a node fails for good | It cannot be asked: the key expires. [`Undo::poll_event`] says so. |
//! | a node is silent | Nothing: the request may still be carried out, and another would only queue behind it. |
//! | `until` passes | Over: the keys of the claim have expired. |
//!
//! # Order of the nodes
//!
//! If other clients want the lock, the preferred node gets its release last. It notifies the next
//! client, which then finds the other nodes free.
//!
//! # Invariants
//!
//! - The lease has ended before its undo starts (I-15, O-4), and offers to the claim's token are refused
//!   (O-6). The owner ensures both.
//! - A release follows the request that it takes back over the same connection. Where that cannot be
//!   ensured, a tombstone takes its place, and outlives every request that may still arrive (I-5).
//! - A node that fails is asked again by a cancel, never by a release: the order of the requests was
//!   lost with the connection.
//! - `until` is when the last key of the claim has expired, by the slowest clock that the drift
//!   allowance covers. Nothing is sent later.

use std::sync::Arc;
use std::time::Duration;

use super::{Asked, Deployment, Expect, Heard, KeyStates, Machine, NodeSet, Question, Round};
use crate::node::{NodeError, Request, Response, SharedRequest};
use crate::{Backoff, Claim, Drift, KeyState, Moment, Quorum};

/// The longest pause before a node is asked again.
const HIGHEST_PAUSE: Duration = Duration::from_secs(1);

/// What is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Of {
    /// A lease, or what may have become one.
    Lease,
    /// An attempt at a lock that has a queue. It may still be this waiter's turn, so no other
    /// waiter is notified.
    Attempt,
}

/// How a claim is taken back.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Terms {
    /// What is taken back.
    pub of: Of,
    /// The TTL of its keys.
    pub ttl: Duration,
    /// How long a tombstone lasts: it outlives every request of the claim that may still arrive.
    pub linger: Duration,
    /// The allowance for clocks that run at different rates.
    pub drift: Drift,
    /// Whether other clients want the lock, and the preferred node notifies one of them: it is asked last.
    pub is_wanted: bool,
    /// The offer of the lock to the first waiter in its queue, if one is known.
    pub offer: Option<Offer>,
}

/// The offer of a released lock to the first waiter in its queue.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Offer {
    /// The node that keeps the queue.
    pub home: usize,
    /// Its request.
    pub at_home: SharedRequest,
    /// The request for the other nodes.
    pub elsewhere: SharedRequest,
    /// The nodes that support offers.
    pub able: NodeSet,
}

/// What became of a node that is not asked again.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine reports it")]
pub struct GivenUp {
    /// The node.
    pub node: usize,
    /// Its last error.
    pub error: NodeError,
}

/// Takes one claim back.
#[derive(Clone, Debug)]
pub struct Undo {
    claim: Arc<Claim>,
    /// How long a tombstone lasts.
    linger: Duration,
    /// Where the key was before.
    before: KeyStates,
    round: Round,
    /// The nodes to which the first request was not sent yet.
    unsent: NodeSet,
    /// The node that is asked first; the others follow in a ring.
    first: usize,
    release: SharedRequest,
    offer: Option<Box<Offer>>,
    /// Nearly always there is none.
    failing: Option<Box<Failing>>,
    until: Moment,
}

/// The nodes that have failed.
#[derive(Clone, Debug, Default)]
struct Failing {
    retries: Vec<Retry>,
    given_up: Vec<GivenUp>,
}

/// A node that has failed.
#[derive(Clone, Debug)]
struct Retry {
    node: usize,
    /// When it is asked again; `None` while it has not answered.
    at: Option<Moment>,
    pauses: Backoff,
}

impl Undo {
    /// Starts to take `claim` back, from the `states` of its key on the nodes. Returns `None` if no node can hold it.
    pub fn start(
        nodes: &impl Deployment,
        now: Moment,
        claim: &Arc<Claim>,
        states: KeyStates,
        terms: Terms,
    ) -> Option<Undo> {
        if states.all_without() {
            return None;
        }
        let count = nodes.quorum().nodes();
        let release = SharedRequest::from(match terms.of {
            Of::Lease => Request::Release { claim: claim.clone() },
            // No request of the attempt can arrive later over the same connection, so none needs a
            // tombstone. Where the connection has ended meanwhile, the node does not send this.
            Of::Attempt => Request::Cancel { claim: claim.clone(), linger: Duration::ZERO },
        });
        let has = |node: &usize| states.get(*node) != KeyState::Without;
        let unsent: NodeSet = (0..count).filter(has).collect();
        let question = Question { expect: Expect::Released, takes_free: false, ttl: terms.ttl };
        let asked = |node| if unsent.contains(node) { Asked::Now } else { Asked::Never };
        let round = Round::new(nodes, question, now, asked);
        let is_everywhere =
            (0..count).all(|node| matches!(states.get(node), KeyState::Holds | KeyState::InFlight));
        // The preferred node comes last: the next client is notified by it, and then finds the others free.
        let preferred_last = terms.is_wanted && is_everywhere;
        let first = if preferred_last { (claim.preferred_node(count) + 1) % count } else { 0 };
        let until = now + terms.drift.stretch(terms.ttl);
        Some(Undo {
            claim: claim.clone(),
            linger: terms.linger,
            before: states,
            round,
            unsent,
            first,
            release,
            offer: terms.offer.map(Box::new),
            failing: None,
            until,
        })
    }

    fn first_request(&self, node: usize) -> SharedRequest {
        if self.before.get(node) == KeyState::Unknown {
            return self.cancel();
        }
        match &self.offer {
            Some(offer) if offer.able.contains(node) => {
                if node == offer.home {
                    offer.at_home.clone()
                } else {
                    offer.elsewhere.clone()
                }
            }
            _ => self.release.clone(),
        }
    }

    fn cancel(&self) -> SharedRequest {
        Request::Cancel { claim: self.claim.clone(), linger: self.linger }.into()
    }

    /// Returns when something is due: a node is asked again, or the keys have expired. `None` once it is over.
    #[must_use]
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        let retries = self.failing.iter().flat_map(|failing| &failing.retries);
        let due = retries.filter_map(|retry| retry.at);
        (!self.is_over(now)).then(|| due.chain([self.until]).min().unwrap_or(self.until))
    }

    /// Returns a node that was given up since the last call.
    pub fn poll_event(&mut self) -> Option<GivenUp> {
        self.failing.as_mut()?.given_up.pop()
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        now >= self.until || self.is_settled()
    }

    /// Returns the claim that is taken back.
    #[must_use]
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Whether a node had lost the key before, as far as the nodes have answered. `renewal` are those that say so in
    /// the renewal that was in flight when the lease ended: it stores the key again before the release arrives.
    #[must_use]
    pub fn has_lost(&self, renewal: NodeSet) -> bool {
        !self.lost(renewal).is_empty()
    }

    fn lost(&self, renewal: NodeSet) -> NodeSet {
        self.round.had_lost(self.before).union(renewal)
    }

    /// Whether the lock may have been [lost](was_lost) before its release.
    pub fn came_too_late(
        &self,
        nodes: &impl Deployment,
        renewal: NodeSet,
        (valid_until, now): (Moment, Moment),
    ) -> bool {
        was_lost(nodes.quorum(), self.before, self.lost(renewal).len(), (valid_until, now))
    }
}

/// Whether so many nodes had lost the key of a lease before it was released or passed on that another client may have held
/// the lock (rule I-11), where `lost` of the nodes that had it `before` say so. A key that is gone after `valid_until` may
/// have expired, and says nothing.
#[must_use]
pub fn was_lost(
    quorum: Quorum,
    before: KeyStates,
    lost: usize,
    (valid_until, now): (Moment, Moment),
) -> bool {
    // A single node without the key is no loss: the others decide.
    let never = (0..quorum.nodes()).filter(|node| before.get(*node) == KeyState::Without).count();
    lost > 0 && lost + never >= quorum.needed() && now < valid_until
}

impl Machine for Undo {
    /// The round in which the nodes were first asked: its verdict is that on the release.
    fn round(&self) -> &Round {
        &self.round
    }

    fn round_mut(&mut self) -> &mut Round {
        &mut self.round
    }

    fn handle_response(
        &mut self,
        nodes: &impl Deployment,
        node: usize,
        result: Result<Response, NodeError>,
        now: Moment,
    ) -> Heard {
        let error = result.as_ref().err().cloned();
        let ttl = self.round.ttl();
        let retries = self.failing.as_mut().map(|failing| &mut failing.retries);
        let retry = retries.and_then(|retries| {
            let place = retries.iter().position(|retry| retry.node == node)?;
            Some(retries.remove(place))
        });
        let heard = match retry {
            // What it answers now does not change the verdict on its first answer.
            Some(_) => Heard::default(),
            None => self.round.handle_response(nodes, node, result, now),
        };
        let has_failed = error.is_some();
        if let Some(error) = error {
            let first = || Retry { node, at: None, pauses: Backoff::new(ttl / 100, HIGHEST_PAUSE) };
            let mut retry = retry.unwrap_or_else(first);
            let at = now + retry.pauses.next(nodes.random());
            let failing = self.failing.get_or_insert_default();
            if error.is_permanent() || at >= self.until {
                // An unreachable node fails immediately, each time.
                failing.given_up.push(GivenUp { node, error });
            } else {
                retry.at = Some(at);
                failing.retries.push(retry);
            }
        }
        Heard { is_news: heard.is_news || has_failed || self.is_over(now), ..heard }
    }

    fn poll_request(&mut self, _: &impl Deployment, now: Moment) -> Option<(usize, SharedRequest)> {
        if !self.unsent.is_empty() {
            let count = self.round.nodes();
            let node = (0..count)
                .map(|step| (self.first + step) % count)
                .find(|node| self.unsent.contains(*node))?;
            self.unsent.remove(node);
            return Some((node, self.first_request(node)));
        }
        if now >= self.until {
            return None;
        }
        let retries = &mut self.failing.as_mut()?.retries;
        let due = retries.iter_mut().find(|retry| retry.at.is_some_and(|at| at <= now))?;
        due.at = None;
        let node = due.node;
        Some((node, self.cancel()))
    }

    fn is_settled(&self) -> bool {
        self.round.all_responded() && self.failing.as_ref().is_none_or(|failing| failing.retries.is_empty())
    }
}

#[cfg(test)]
mod tests;
