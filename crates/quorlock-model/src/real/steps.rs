//! What may happen, and its effects.

use std::collections::VecDeque;
use std::sync::Arc;

use quorlock_protocol::WaiterId;
use quorlock_protocol::machine::{Address, Of};
use quorlock_protocol::node::record::{Queue, Record};
use quorlock_protocol::node::{NodeError, Request, Response, SharedRequest, Vote};

use super::client::{Client, Cx, Phase, To, Undoing};
use super::node::{client_of, micros_at, what};
use super::{IN_ORDER, OPEN, Real, Scheme, Server, State};

/// A step of a client, a node or the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Tick,
    Acquire(usize),
    GiveUp(usize),
    Release(usize),
    Renew(usize),
    PassOn(usize),
    /// A client leaves the lock taken.
    Retain(usize),
    /// The timer of a client fires.
    Due(usize),
    /// The next request of a connection is carried out.
    Arrive(usize),
    /// The client receives its next answer.
    Answer(usize),
    /// It is lost, after the next request was carried out or before.
    Lose(usize, bool),
    /// A request of a lost connection is carried out.
    ArriveLate(usize),
    /// A client hears of its turn.
    Hear(usize),
    /// The message is lost.
    Miss(usize),
    Crash(usize),
    /// A node restarts without its data.
    Restart(usize),
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// In flight, in order.
    pub(super) requests: VecDeque<Sent>,
    pub(super) answers: VecDeque<(To, Response)>,
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) to: To,
    pub(super) request: SharedRequest,
    pub(super) at: u16,
}

/// A request whose connection is lost.
#[derive(Clone, Debug)]
pub(crate) struct Stray {
    pub(super) client: usize,
    pub(super) node: usize,
    pub(super) sent: Sent,
}

/// A message that it is a client's turn.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(super) waiter: WaiterId,
    pub(super) node: usize,
    pub(super) at: u16,
}

/// The possible steps.
impl Real {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        let left = state.left;
        for (client, one) in state.clients.iter().enumerate() {
            match &one.phase {
                Phase::Idle if one.goals > 0 => steps.push(Step::Acquire(client)),
                Phase::Asking(asking) if left.give_ups > 0 && asking.is_wanted => {
                    steps.push(Step::GiveUp(client));
                }
                Phase::Holding(held) => {
                    steps.push(Step::Release(client));
                    if left.renewals > 0 && held.renewing.is_none() {
                        steps.push(Step::Renew(client));
                    }
                    if left.passes > 0 && one.goals > 0 {
                        steps.push(Step::PassOn(client));
                    }
                    if left.retains > 0 && client == 0 {
                        steps.push(Step::Retain(client));
                    }
                }
                Phase::Waiting if left.give_ups > 0 => steps.push(Step::GiveUp(client)),
                Phase::Idle | Phase::Asking(_) | Phase::Waiting | Phase::Retaining(_) | Phase::Crashed => {}
            }
            if one.is_due(state.now) {
                steps.push(Step::Due(client));
            }
            if left.crashes > 0 && !one.is_idle() {
                steps.push(Step::Crash(client));
            }
        }
        for (at, link) in state.links.iter().enumerate() {
            if !link.requests.is_empty() {
                steps.push(Step::Arrive(at));
            }
            if !link.answers.is_empty() {
                steps.push(Step::Answer(at));
            }
            if left.losses > 0 && !(link.requests.is_empty() && link.answers.is_empty()) {
                steps.push(Step::Lose(at, false));
                if !self.slow && !link.requests.is_empty() {
                    steps.push(Step::Lose(at, true));
                }
            }
        }
        steps.extend((0..state.strays.len()).map(Step::ArriveLate));
        for note in 0..state.notes.len() {
            steps.push(Step::Hear(note));
            if left.unheard > 0 {
                steps.push(Step::Miss(note));
            }
        }
        if left.restarts > 0 {
            let has_key = |node: &usize| state.nodes[*node].holder(state.now).is_some();
            steps.extend((0..self.nodes).filter(has_key).map(Step::Restart));
        }
        if self.may_tick(state) {
            steps.push(Step::Tick);
        }
    }

    fn may_tick(&self, state: &State) -> bool {
        let in_time = |sent: &Sent| state.now - sent.at < self.delay;
        let waits = !state.links.iter().all(|link| link.requests.iter().all(in_time))
            || !state.notes.iter().all(|note| state.now - note.at < self.delay)
            || (state.left.pauses == 0 && state.clients.iter().any(|client| client.is_due(state.now)));
        // Where clients wait, who has the lock releases it in time: otherwise it is free before the first of them asks.
        let ends =
            |client: &Arc<Client>| client.lease(state.now).is_some() && client.lease(state.now + 1).is_none();
        let waits = waits || (self.waits && state.clients.iter().any(ends));
        let is_at_rest = || {
            let is_wanted = state.clients.iter().any(|client| client.goals > 0);
            let young = |born| u64::from(state.now - born) <= self.max_ttl().as_secs();
            state.clients.iter().all(|client| client.is_idle())
                && state.strays.is_empty()
                && state.nodes.iter().all(|node| {
                    // A turn is remembered for a minute.
                    let record = node.record.clone().at(micros_at(state.now));
                    Record { queue: Queue::default(), ..record } == Record::default()
                        && !(is_wanted && node.born.is_some_and(young))
                })
        };
        !waits && !is_at_rest()
    }
}

/// The effects.
impl Real {
    pub(super) fn take(&self, state: &mut State, step: Step) -> Option<()> {
        let (now, left) = (state.now, &mut state.left);
        match step {
            Step::Tick => {
                let is_due = state.clients.iter().any(|client| client.is_due(now));
                left.pauses -= u8::from(is_due);
                state.now += 1;
                let is_free = state.nodes.iter().all(|node| node.holder(state.now).is_none());
                let is_wanted = state.clients.iter().any(|client| client.wait.is_some());
                state.idle = if is_free && is_wanted { state.idle + 1 } else { 0 };
                state.strays.retain(|stray| now - stray.sent.at < self.delay);
            }
            Step::Acquire(client) => self.input(state, client, Client::acquire),
            Step::GiveUp(client) => {
                left.give_ups -= 1;
                self.input(state, client, Client::give_up);
            }
            Step::Release(client) => self.input(state, client, Client::release),
            Step::Renew(client) => {
                left.renewals -= 1;
                self.input(state, client, Client::renew);
            }
            Step::PassOn(client) => {
                left.passes -= 1;
                self.input(state, client, Client::pass_on);
            }
            Step::Retain(client) => {
                left.retains -= 1;
                self.input(state, client, Client::retain);
            }
            Step::Due(client) => self.input(state, client, |_, _| {}),
            Step::Arrive(link) => {
                self.execute(state, link)?;
                if !self.slow {
                    self.answer(state, link)?;
                }
            }
            Step::Answer(link) => self.answer(state, link)?,
            Step::Lose(link, was_executed) => {
                left.losses -= 1;
                if was_executed {
                    self.execute(state, link)?;
                }
                self.lose(state, link, true);
            }
            Step::ArriveLate(stray) => {
                let Stray { node, sent, .. } = state.strays.remove(stray);
                self.serve(state, node, &sent.request);
            }
            Step::Hear(note) => {
                let Note { waiter, node, .. } = state.notes.remove(note);
                self.input(state, client_of(waiter), |client, _| client.hear_turn(waiter, node));
            }
            Step::Miss(note) => {
                left.unheard -= 1;
                state.notes.remove(note);
            }
            Step::Crash(client) => {
                left.crashes -= 1;
                Arc::make_mut(&mut state.clients[client]).crash();
                state.notes.retain(|note| client_of(note.waiter) != client);
                (0..self.nodes).for_each(|node| self.lose(state, self.link(client, node), true));
            }
            Step::Restart(node) => {
                left.restarts -= 1;
                Arc::make_mut(&mut state.nodes[node]).restart(now);
                // With the process end its connections, and what it has not read.
                state.strays.retain(|stray| stray.node != node);
                (0..self.clients).for_each(|client| self.lose(state, self.link(client, node), false));
            }
        }
        Some(())
    }

    /// Returns the connection of a client to a node.
    fn link(&self, client: usize, node: usize) -> usize {
        client * self.nodes + node
    }

    fn execute(&self, state: &mut State, link: usize) -> Option<()> {
        let (client, node) = (link / self.nodes, link % self.nodes);
        let Sent { to, request, .. } = state.links[link].requests.pop_front()?;
        let held = state.nodes[node].holder(state.now);
        let response = self.serve(state, node, &request);
        let ends_lease = |undoing: &Undoing| undoing.no == to.0 && undoing.of == Of::Lease;
        let releases =
            held == Some(what(&request).claim) && state.clients[client].undos.iter().any(ends_lease);
        if releases && response.vote != Vote::Notified && state.nodes[node].is_reserved(self, state.now) {
            state.violated = Some(OPEN);
        }
        state.links[link].answers.push_back((to, response));
        Some(())
    }

    /// A node carries out a request, and notifies the waiter whose turn begins.
    fn serve(&self, state: &mut State, node: usize, request: &Request) -> Response {
        let first = state.nodes[node].record.queue.first(micros_at(state.now));
        let response = Arc::make_mut(&mut state.nodes[node]).execute(self, request, state.now);
        if let (Vote::Notified, Some(waiter)) = (&response.vote, first) {
            state.notes.push(Note { waiter, node, at: state.now });
        }
        response
    }

    fn answer(&self, state: &mut State, link: usize) -> Option<()> {
        let (to, response) = state.links[link].answers.pop_front()?;
        self.input(state, link / self.nodes, |client, cx| client.hear(cx, to, Ok(response)));
        Some(())
    }

    /// A connection is lost, with everything on it; requests `may_arrive` later.
    fn lose(&self, state: &mut State, link: usize, may_arrive: bool) {
        let (client, node) = (link / self.nodes, link % self.nodes);
        let Link { requests, answers } = std::mem::take(&mut state.links[link]);
        let unanswered = answers.iter().map(|(to, _)| *to).chain(requests.iter().map(|sent| sent.to));
        let unanswered: Vec<To> = unanswered.collect();
        if may_arrive {
            state.strays.extend(requests.into_iter().map(|sent| Stray { client, node, sent }));
        }
        let error = || Err(NodeError::Disconnected { reason: "it was reset".into() });
        if self.scheme == Scheme::OneByOne {
            for to in unanswered {
                self.input(state, client, |client, cx| client.hear(cx, to, error()));
            }
        } else if !unanswered.is_empty() {
            self.input(state, client, |client, cx| {
                for to in unanswered {
                    client.hear(cx, to, error());
                }
            });
        }
    }

    /// One input of a client, and what comes of it.
    fn input(&self, state: &mut State, client: usize, input: impl FnOnce(&mut Client, &mut Cx<'_>)) {
        let waits = state.clients.iter().map(|client| client.waits).sum();
        let mut cx = Cx {
            model: self,
            now: state.now,
            sent: Vec::new(),
            granted: None,
            violated: state.violated,
            waits,
        };
        let one = Arc::make_mut(&mut state.clients[client]);
        input(one, &mut cx);
        one.advance(&mut cx);
        let Cx { sent, granted, violated, .. } = cx;
        state.violated = violated;
        for (to, request) in sent {
            let node = Address::of(to.1, self.nodes).node;
            if self.server == Server::EndsEarlier {
                state.strays.retain(|stray| (stray.client, stray.node) != (client, node));
            }
            let sent = Sent { to, request, at: state.now };
            state.links[self.link(client, node)].requests.push_back(sent);
        }
        let Some(number) = granted.map(u64::from) else { return };
        if number <= state.number {
            state.violated = Some(IN_ORDER);
        }
        state.number = number;
        for (_, one) in state.clients.iter_mut().enumerate().filter(|(other, _)| *other != client) {
            let one = Arc::make_mut(one);
            if let Some(slot) = &mut one.slot {
                slot.is_shared |= state.now < slot.until;
            }
            if let Some(wait) = &mut one.wait {
                let is_passed = wait.has_place || self.scheme == Scheme::NoPlace;
                wait.passed_over += usize::from(is_passed);
            }
            let has_lease = one.lease(state.now).is_some();
            if let Phase::Holding(held) = &mut one.phase {
                held.interrupted |= has_lease && state.violated.is_none();
            }
        }
    }
}
