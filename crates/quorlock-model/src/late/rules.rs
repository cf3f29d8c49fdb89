//! The possible steps and their effects.

use quorlock_protocol::KeyState;

use super::{BOTH, Claim, Late, Phase, Request, Scheme, Server, State, Step, Who};
use crate::record::{Ask, Reply, What};

/// A key expires with the next tick, which may come at any time.
const TTL: u8 = 1;

/// The possible steps.
impl Late {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        if let Some(line) = &state.line {
            let first = state.claim(Who::First);
            if first.phase == Phase::Idle {
                steps.push(Step::Send(Request::Vote));
            }
            if first.phase == Phase::Open && !line.contains(&Request::Vote) {
                if state.renewals < self.renewals {
                    steps.push(Step::Send(Request::Renew));
                }
                steps.push(Step::Send(Request::Transfer));
            }
            let to_cancel = BOTH.into_iter().filter(|who| state.claim(*who).phase == Phase::ToCancel);
            steps.extend(to_cancel.map(|who| {
                let released = self.scheme == Scheme::OnlyReleased;
                Step::Send(if released { Request::Release(who) } else { Request::Cancel(who) })
            }));
            if !line.is_empty() {
                steps.push(Step::Arrive);
            }
            if state.breaks < self.breaks {
                steps.extend((0..=line.len().min(1)).map(|carried_out| Step::Break { carried_out }));
            }
        } else {
            steps.push(Step::Connect);
        }
        let open = |who: &Who| state.claim(*who).phase == Phase::Open;
        steps.extend(BOTH.into_iter().filter(open).map(Step::GiveBack));
        steps.extend(state.late.iter().copied().map(Step::ArriveLate));
        if !state.kept.is_free() {
            steps.push(Step::Expire);
        }
    }
}

/// The effects.
impl Late {
    pub(super) fn after(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Send(request) => self.send(&mut next, request),
            Step::GiveBack(who) => {
                let key_state = self.stands(next.claim(who));
                give_back(&mut next, who, key_state);
            }
            Step::Arrive => {
                let request = next.line.as_mut()?.remove(0);
                let key_state = self.execute(&mut next, request);
                self.learn(&mut next, request, key_state);
            }
            Step::Break { carried_out } => {
                let mut line = next.line.take()?;
                let asked = line.clone();
                for request in line.drain(..carried_out) {
                    self.execute(&mut next, request);
                }
                next.breaks += 1;
                next.late.append(&mut line);
                next.late.sort_unstable();
                for request in asked {
                    self.learn(&mut next, request, KeyState::Unknown);
                }
            }
            Step::Connect => {
                next.line = Some(Vec::new());
                if self.server == Server::EndsEarlier {
                    next.late.clear();
                }
            }
            Step::ArriveLate(request) => {
                let at = next.late.iter().position(|late| *late == request)?;
                next.late.remove(at);
                self.execute(&mut next, request);
            }
            Step::Expire => next.kept = next.kept.ticked(),
        }
        Some(next)
    }

    fn send(&self, state: &mut State, request: Request) {
        match request {
            Request::Vote | Request::Renew => {
                state.renewals += u8::from(request == Request::Renew);
                self.ask(state.claim_mut(Who::First));
            }
            Request::Transfer => {
                state.claim_mut(Who::First).phase = Phase::Replaced;
                self.ask(state.claim_mut(Who::Next));
            }
            Request::Release(who) | Request::Cancel(who) => state.claim_mut(who).phase = Phase::Clearing,
        }
        state.line.get_or_insert_default().push(request);
    }

    /// A new round begins.
    fn ask(&self, claim: &mut Claim) {
        claim.before = self.stands(*claim);
        (claim.latest, claim.phase) = (KeyState::InFlight, Phase::Open);
    }

    /// Like `Keeper::settle`.
    fn stands(&self, claim: Claim) -> KeyState {
        if claim.phase == Phase::Idle {
            return KeyState::Without;
        }
        match (self.scheme, claim.latest) {
            (Scheme::Forgotten, KeyState::Holds | KeyState::Without) => claim.latest,
            (_, latest) => claim.before.then(latest),
        }
    }

    /// Executes the request in one step, and returns the node's state of the claim after it.
    fn execute(&self, state: &mut State, request: Request) -> KeyState {
        let before = state.kept;
        let ask = match request {
            Request::Vote => Ask::acquire(Who::First as usize, TTL),
            Request::Renew => Ask::renew(Who::First as usize, TTL),
            Request::Transfer => Ask::transfer(Who::First as usize, Who::Next as usize, TTL),
            Request::Release(who) => Ask::release(who as usize),
            Request::Cancel(who) => Ask::of(What::Cancel, who as usize),
        };
        let looks = request != Request::Vote || self.scheme != Scheme::NoLook;
        if !looks {
            state.kept = before.with(|record| record.tombstones.clear());
        }
        let (reply, _) = state.kept.ask(ask);
        if !looks {
            let stones = &before.record().tombstones;
            state.kept = state.kept.with(|record| record.tombstones.clone_from(stones));
        }
        let stores = matches!(request, Request::Vote | Request::Renew | Request::Transfer);
        let holds = stores && matches!(reply, Reply::Granted | Reply::Restored);
        if holds { KeyState::Holds } else { KeyState::Without }
    }

    /// The client learns the answer to a request, or that the connection has ended.
    fn learn(&self, state: &mut State, request: Request, key_state: KeyState) {
        match request {
            Request::Vote | Request::Renew => {
                // The answer to an earlier round does not matter any more.
                if !state.line.iter().flatten().any(|other| *other == Request::Renew) {
                    state.claim_mut(Who::First).latest = key_state;
                }
            }
            Request::Transfer => {
                state.claim_mut(Who::Next).latest = key_state;
                let before = self.stands(state.claim(Who::First));
                let settles = self.scheme == Scheme::TransferSettles && key_state == KeyState::Holds;
                let left = if settles { KeyState::Without } else { before.left_behind(key_state) };
                give_back(state, Who::First, left);
            }
            Request::Release(who) | Request::Cancel(who) => {
                let answered = key_state != KeyState::Unknown;
                state.claim_mut(who).phase = if answered { Phase::Done } else { Phase::ToCancel };
            }
        }
    }
}

/// Like `Sweep::start`.
fn give_back(state: &mut State, who: Who, key_state: KeyState) {
    let phase = match (key_state, &mut state.line) {
        (KeyState::Without, _) => Phase::Done,
        (KeyState::Holds | KeyState::InFlight, Some(line)) => {
            line.push(Request::Release(who));
            Phase::Clearing
        }
        (KeyState::Holds | KeyState::InFlight | KeyState::Unknown, _) => Phase::ToCancel,
    };
    state.claim_mut(who).phase = phase;
}

impl State {
    fn claim_mut(&mut self, who: Who) -> &mut Claim {
        &mut self.claims[who as usize]
    }
}
