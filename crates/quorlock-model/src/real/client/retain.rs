//! A lock that its holder leaves taken until a moment, its slot, as `Keeper::retain` does.

use std::sync::Arc;

use quorlock_protocol::machine::{KeyStates, NodeSet, Of, Replaced, Retained, Retention};
use quorlock_protocol::node::{Request, SharedRequest};
use quorlock_protocol::{Claim, KeyState, Moment, Token};
use stateright::Property;

use super::{Behind, Client, Cx, Passed, Phase};
use crate::real::{CONFIRMED, FOLLOWED, Real, Scheme, TICK, moment};

/// A lock that is being left taken.
#[derive(Clone, Debug)]
pub(in crate::real) struct Retaining {
    claim: Arc<Claim>,
    /// The claim of no process.
    to: Arc<Claim>,
    /// Where the old token was.
    pub(in crate::real) before: Behind,
    retention: Retention,
    /// When the lease would have ended.
    pub(in crate::real) end: Moment,
    /// The round in flight; without one, the next one is due.
    pub(in crate::real) round: Option<u16>,
    pub(in crate::real) again: Moment,
}

/// The time for which no other client is to run.
#[derive(Clone, Copy, Debug)]
pub(in crate::real) struct Slot {
    pub(in crate::real) until: u16,
    pub(in crate::real) is_confirmed: bool,
    /// Whether another client has been granted the lock meanwhile.
    pub(in crate::real) is_shared: bool,
}

impl Client {
    pub(in crate::real) fn retain(&mut self, cx: &mut Cx<'_>) {
        let Some(held) = self.take_lease() else { return };
        let (model, now) = (cx.model, cx.moment());
        let until = cx.now + u16::from(model.slot);
        // As if the lease went on.
        let late = model.scheme == Scheme::RetainsLate;
        let end = if late { now + TICK * 100 } else { held.deadline };
        let Some(retention) = Retention::new(moment(until), (now, end)) else {
            return self.release_lease(cx, &held);
        };
        let before = self.settle(model, &held);
        if model.scheme == Scheme::StopsFirst {
            let unknown =
                Replaced::new(before.states).may_come_back(KeyStates::of(vec![KeyState::Holds; model.nodes]));
            self.take_back_from(cx, &held.claim, (unknown, NodeSet::default()), Of::Lease);
        }
        if model.scheme == Scheme::ReleaseFirst {
            let (no, release) =
                (self.next_no(), SharedRequest::from(Request::Release { claim: held.claim.clone() }));
            (0..model.nodes).for_each(|node| self.send(cx, (no, node), release.clone()));
        }
        let token = Token::retained(self.next_name().into(), "");
        let to = Arc::new(held.claim.with(token));
        self.slot = Some(Slot { until, is_confirmed: false, is_shared: false });
        let retaining = Retaining { claim: held.claim, to, before, retention, end, round: None, again: now };
        self.phase = Phase::Retaining(Box::new(retaining));
    }

    /// Like `Keeper::leave_token`.
    pub(in crate::real) fn decide_retention(&mut self, cx: &mut Cx<'_>) -> bool {
        let Phase::Retaining(retaining) = &self.phase else { return false };
        let (mut retaining, now) = (retaining.clone(), cx.moment());
        let Some(no) = retaining.round else {
            let is_due = retaining.again <= now;
            if is_due {
                retaining.round = Some(self.ask_to_retain(cx, &retaining));
                self.phase = Phase::Retaining(retaining);
            }
            return is_due;
        };
        let found = self.rounds.iter_mut().find(|(other, _)| *other == no);
        let decided = found.and_then(|(_, round)| Some((round.decide(cx.model, now)?, round)));
        let Some((verdict, round)) = decided else { return false };
        let verdict = cx.verdict(verdict, round, true);
        match retaining.retention.count(verdict, false, now, || u64::MAX) {
            Retained::Again(again) => {
                (retaining.round, retaining.again) = (None, again);
                self.phase = Phase::Retaining(retaining);
                return true;
            }
            Retained::Confirmed => self.slot.iter_mut().for_each(|slot| slot.is_confirmed = true),
            Retained::Unconfirmed => {}
        }
        let Retaining { claim, before, .. } = *retaining;
        self.passed.push(Passed { claim, before, round: no, retained: true });
        self.phase = Phase::Idle;
        true
    }

    fn ask_to_retain(&mut self, cx: &mut Cx<'_>, retaining: &Retaining) -> u16 {
        let Retaining { claim, to, retention, .. } = retaining;
        let (from, to) = (claim.clone(), to.clone());
        let is_short = cx.model.scheme == Scheme::OneTtl;
        let ttl = if is_short { cx.model.ttl() } else { retention.ttl(cx.moment()) };
        let asks_again = cx.model.scheme == Scheme::ReleaseFirst;
        let request = if asks_again {
            Request::Acquire { claim: to, ttl, fence_hint: None }
        } else {
            Request::Transfer { from, to, ttl, fence_hint: None }
        };
        self.begin(cx, request)
    }

    /// Like `Keeper::stop_renewals`.
    pub(in crate::real) fn stop_renewals(
        &mut self,
        cx: &mut Cx<'_>,
        claim: &Arc<Claim>,
        before: Replaced,
        replaced: KeyStates,
    ) {
        let mut back = before.may_come_back(replaced);
        if cx.model.scheme == Scheme::NotStopped {
            back = KeyStates::default();
        }
        // Elsewhere the old token still keeps others out.
        let is_gone =
            |node: &usize| replaced.get(*node) == KeyState::Holds && back.get(*node) == KeyState::Without;
        let gone = (0..cx.model.nodes).filter(is_gone).collect();
        self.take_back_from(cx, claim, (back, gone), Of::Lease);
    }
}

fn confirmed(client: &Arc<Client>) -> Option<Slot> {
    client.slot.filter(|slot| slot.is_confirmed)
}

/// What should be possible.
pub(in crate::real) fn examples() -> [Property<Real>; 2] {
    [
        Property::<Real>::sometimes(CONFIRMED, |_, state| {
            state.clients.iter().any(|one| confirmed(one).is_some())
        }),
        Property::<Real>::sometimes(FOLLOWED, |_, state| {
            let is_over = state.clients.iter().filter_map(confirmed).any(|slot| slot.until <= state.now);
            is_over && state.clients.iter().any(|client| client.lease(state.now).is_some())
        }),
    ]
}
