//! The possible steps and their effects.

use quorlock_protocol::Standing;

use super::{Claim, Late, Phase, Request, Scheme, Server, State, Step, Who};

const BOTH: [Who; 2] = [Who::First, Who::Next];

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
        if state.key.is_some() {
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
                let standing = self.stands(next.claim(who));
                give_back(&mut next, who, standing);
            }
            Step::Arrive => {
                let request = next.line.as_mut()?.remove(0);
                let standing = self.carry_out(&mut next, request);
                self.learn(&mut next, request, standing);
            }
            Step::Break { carried_out } => {
                let mut line = next.line.take()?;
                let asked = line.clone();
                for request in line.drain(..carried_out) {
                    self.carry_out(&mut next, request);
                }
                next.breaks += 1;
                next.late.append(&mut line);
                next.late.sort_unstable();
                for request in asked {
                    self.learn(&mut next, request, Standing::Unknown);
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
                self.carry_out(&mut next, request);
            }
            Step::Expire => next.key = None,
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
        (claim.latest, claim.phase) = (Standing::InFlight, Phase::Open);
    }

    /// Like `Keeper::settle`.
    fn stands(&self, claim: Claim) -> Standing {
        if claim.phase == Phase::Idle {
            return Standing::Without;
        }
        match (self.scheme, claim.latest) {
            (Scheme::Forgotten, Standing::Holds | Standing::Without) => claim.latest,
            (_, latest) => claim.before.then(latest),
        }
    }

    /// Executes the request in one step, and returns the node's state of the claim after it.
    fn carry_out(&self, state: &mut State, request: Request) -> Standing {
        let stopped = |who: Who| state.claim(who).tomb;
        let looks = self.scheme != Scheme::NoLook;
        let (who, stores) = match request {
            Request::Vote => (Who::First, state.key.is_none() && !(looks && stopped(Who::First))),
            Request::Renew => (Who::First, state.key.is_none() && !stopped(Who::First)),
            Request::Transfer => (Who::Next, state.key != Some(Who::Next) && !stopped(Who::Next)),
            Request::Release(who) | Request::Cancel(who) => {
                state.key.take_if(|holder| *holder == who);
                state.claim_mut(who).tomb |= matches!(request, Request::Cancel(_));
                return Standing::Without;
            }
        };
        if stores {
            state.key = Some(who);
        }
        if state.key == Some(who) { Standing::Holds } else { Standing::Without }
    }

    /// The client learns the answer to a request, or that the connection has ended.
    fn learn(&self, state: &mut State, request: Request, standing: Standing) {
        match request {
            Request::Vote | Request::Renew => {
                // The answer to an earlier round does not matter any more.
                if !state.line.iter().flatten().any(|other| *other == Request::Renew) {
                    state.claim_mut(Who::First).latest = standing;
                }
            }
            Request::Transfer => {
                state.claim_mut(Who::Next).latest = standing;
                let before = self.stands(state.claim(Who::First));
                let settles = self.scheme == Scheme::TransferSettles && standing == Standing::Holds;
                let left = if settles { Standing::Without } else { before.left_behind(standing) };
                give_back(state, Who::First, left);
            }
            Request::Release(who) | Request::Cancel(who) => {
                let answered = standing != Standing::Unknown;
                state.claim_mut(who).phase = if answered { Phase::Done } else { Phase::ToCancel };
            }
        }
    }
}

/// Like `Sweep::start`.
fn give_back(state: &mut State, who: Who, standing: Standing) {
    let phase = match (standing, &mut state.line) {
        (Standing::Without, _) => Phase::Done,
        (Standing::Holds | Standing::InFlight, Some(line)) => {
            line.push(Request::Release(who));
            Phase::Clearing
        }
        (Standing::Holds | Standing::InFlight | Standing::Unknown, _) => Phase::ToCancel,
    };
    state.claim_mut(who).phase = phase;
}

impl State {
    fn claim_mut(&mut self, who: Who) -> &mut Claim {
        &mut self.claims[who as usize]
    }
}
