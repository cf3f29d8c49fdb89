//! When two states are the same: with moments counted from now, and whatever the nodes are called.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use quorlock_protocol::machine::wait::Place;
use quorlock_protocol::machine::{Address, Deployment, KeyStates, Machine, NodeSet, Round};
use quorlock_protocol::node::{Request, Response};
use quorlock_protocol::{FencingToken, Moment, WaiterId};

use super::client::wait::{Stage, Wait};
use super::client::{Behind, Client, Phase, To};
use super::node::{Node, micros_at, name, name_of, what};
use super::steps::Link;
use super::{LONG_AGO, Real, State, moment};

const LONG_AGO_MICROS: u64 = LONG_AGO as u64 * 1_000_000;
/// Ends a list.
const END: u8 = 255;

/// What a state has of each node, and the rest.
struct Parts<'a> {
    model: &'a Real,
    now: u16,
    nodes: Vec<DefaultHasher>,
    rest: DefaultHasher,
}

impl Real {
    pub(super) fn digest(&self, state: &State) -> u64 {
        let nodes = vec![DefaultHasher::new(); self.nodes];
        let mut parts = Parts { model: self, now: state.now, nodes, rest: DefaultHasher::new() };
        (state.left, state.violated, parts.number(state.number)).hash(&mut parts.rest);
        for (node, kept) in state.nodes.iter().enumerate() {
            parts.node(node, kept);
        }
        for (index, client) in state.clients.iter().enumerate() {
            parts.client(client);
            for node in 0..self.nodes {
                parts.link(node, client, &state.links[index * self.nodes + node]);
            }
        }
        let stray = |stray: &super::Stray| {
            let (age, request) = (state.now - stray.sent.at, parts.request(&stray.sent.request));
            (stray.node, stray.client, age, request)
        };
        let mut strays: Vec<_> = state.strays.iter().map(stray).collect();
        strays.sort_unstable();
        for (node, client, age, request) in strays {
            (client, age, request).hash(&mut parts.nodes[node]);
        }
        state.idle.hash(&mut parts.rest);
        let mut turns: Vec<_> =
            state.notes.iter().map(|note| (note.waiter, note.node, state.now - note.at)).collect();
        turns.sort_unstable();
        turns.hash(&mut parts.rest);
        let mut nodes: Vec<u64> = parts.nodes.iter().map(Hasher::finish).collect();
        if !self.waits {
            nodes.sort_unstable();
        }
        nodes.hash(&mut parts.rest);
        parts.rest.finish()
    }
}

impl Parts<'_> {
    /// Counts ticks up to now.
    fn age(&self, tick: u16) -> u16 {
        (self.now - tick).min(LONG_AGO)
    }

    /// Counts a fencing token from the clock of a while ago: what is lower is as good as none.
    fn number(&self, number: u64) -> u64 {
        let wall = self.model.wall(self.now - LONG_AGO).as_micros();
        number.saturating_sub(u64::try_from(wall).unwrap_or(u64::MAX))
    }

    fn token(&self, number: Option<FencingToken>) -> u64 {
        number.map_or(0, |number| self.number(number.get()) + 1)
    }

    fn each(&mut self, value: impl Fn(usize) -> u8) {
        self.nodes.iter_mut().enumerate().for_each(|(node, to)| to.write_u8(value(node)));
    }

    fn states(&mut self, states: KeyStates) {
        self.each(|node| states.get(node) as u8);
    }

    fn set(&mut self, set: NodeSet) {
        self.each(|node| set.contains(node).into());
    }

    fn node(&mut self, node: usize, kept: &Node) {
        let (now, counter, age) =
            (micros_at(self.now), self.number(kept.counter), kept.born.map(|born| self.age(born)));
        let to = &mut self.nodes[node];
        (counter, age).hash(to);
        let (held, stones) = (&kept.record.held, &kept.record.tombstones);
        let held = held.iter().filter_map(|held| Some((0, held.token.random_part(), held.ends?)));
        let stones = stones.iter().map(|(random, entry)| (1, random.as_slice(), entry.ends));
        for (kind, random, ends) in held.chain(stones).filter(|(_, _, ends)| *ends > now) {
            (kind, name_of(random), ends - now).hash(to);
        }
        to.write_u8(END);
        let text = kept.record.queue.encode();
        text.lines().for_each(|line| self.queue_line(node, line));
    }

    /// A turn, or a waiter, in the notation of a queue.
    fn queue_line(&mut self, node: usize, line: &str) {
        let now = micros_at(self.now);
        let words: Vec<&str> = line.split(' ').collect();
        let micros = |at: usize| words[at].parse().unwrap_or(0_u64);
        let to = &mut self.nodes[node];
        match words[..] {
            ["turn", _, _, whose] => (whose, now.saturating_sub(micros(1)).min(LONG_AGO_MICROS)).hash(to),
            [_, waiter, ..] => (waiter, now - micros(2), micros(3).saturating_sub(now)).hash(to),
            _ => unreachable!("{line}"),
        }
    }

    /// A wait.
    fn wait(&mut self, wait: &Wait) {
        let now = moment(self.now);
        let left = |until: Moment| until.since(now).as_millis();
        let about = |place: &Place| (place.queued.is_some(), place.ahead(), place.is_held());
        match &wait.stage {
            Stage::Asking => 0.hash(&mut self.rest),
            Stage::Entering { home, tried, .. } => (1, home, tried).hash(&mut self.rest),
            Stage::Comparing { other, place, has_turn, .. } => {
                (2, other, about(place), has_turn, format!("{:?}", place.queued)).hash(&mut self.rest);
            }
            Stage::Queued { place, until } => (3, about(place), until.map(left)).hash(&mut self.rest),
            Stage::Pausing { until } => (4, left(*until)).hash(&mut self.rest),
        }
        (wait.name, self.now - wait.since, wait.has_place, wait.passed_over, format!("{:?}", wait.turns))
            .hash(&mut self.rest);
        self.aged(&format!("{:?} {:?}", wait.contest, wait.places)).hash(&mut self.rest);
    }

    /// The moments in a text, which are whole seconds, are counted from a while ago.
    fn aged(&self, text: &str) -> String {
        let long_ago = moment(self.now - LONG_AGO).since(Moment::ORIGIN).as_secs();
        let aged = |part: &str| {
            let (digits, rest) = part.split_once("s)")?;
            let second: u64 = digits.parse().ok()?;
            Some(format!("{} {rest}", second.saturating_sub(long_ago)))
        };
        text.split("Some(").map(|part| aged(part).unwrap_or_else(|| part.to_owned())).collect()
    }

    fn link(&mut self, node: usize, client: &Client, link: &Link) {
        // Whose it is: the place of the round or undo, as far as its answer matters.
        let owner = |(no, index): To| {
            let asking = if let Phase::Asking(asking) = &client.phase { Some(asking.no) } else { None };
            let rounds = asking.into_iter().chain(client.rounds.iter().map(|(other, _)| *other));
            let mut all = rounds.chain(client.undos.iter().map(|undoing| undoing.no));
            all.position(|other| other == no).map(|place| (place, Address::of(index, self.model.nodes).round))
        };
        for sent in &link.requests {
            let request = self.request(&sent.request);
            (owner(sent.to), self.now - sent.at, request).hash(&mut self.nodes[node]);
        }
        self.nodes[node].write_u8(END);
        for (to, answer) in &link.answers {
            let what = (owner(*to), discriminant(&answer.vote), self.token(answer.fencing_token));
            what.hash(&mut self.nodes[node]);
        }
        self.nodes[node].write_u8(END);
    }

    fn client(&mut self, client: &Client) {
        (client.goals, client.drawn, client.rounds.len(), client.undos.len()).hash(&mut self.rest);
        for (no, round) in &client.rounds {
            let is_open = client.awaits(*no);
            self.round(round, is_open);
        }
        match &client.phase {
            Phase::Idle => 0.hash(&mut self.rest),
            Phase::Crashed => 1.hash(&mut self.rest),
            Phase::Waiting => 5.hash(&mut self.rest),
            Phase::Asking(asking) => {
                let attempt = &asking.attempt;
                self.round(attempt.round(), true);
                attempt.write_back().into_iter().for_each(|round| self.round(round, true));
                let number = (attempt.rounds(), self.token(attempt.number()));
                let before = asking.before_until.since(moment(self.now)).as_millis();
                (2, number, asking.is_wanted, asking.from.is_some(), before).hash(&mut self.rest);
                if let Some((_, before)) = &asking.from {
                    self.behind(client, before);
                }
            }
            Phase::Holding(held) => {
                let left = held.deadline.since(moment(self.now)).as_millis();
                let what =
                    (3, left, self.token(Some(held.number)), held.latest.is_some(), held.renewing.is_some());
                let before = held.before_until.since(moment(self.now)).as_millis();
                (what, held.passed, held.renewed, held.interrupted, before).hash(&mut self.rest);
                self.states(held.keep.left(None));
            }
            Phase::Retaining(retaining) => {
                // A pause ends within a tick.
                let now = moment(self.now);
                let (end, pauses) = (retaining.end.since(now).as_millis(), retaining.again > now);
                (4, end, pauses, retaining.round.is_some()).hash(&mut self.rest);
                self.behind(client, &retaining.before);
            }
        }
        (client.waits, client.served).hash(&mut self.rest);
        if let Some(wait) = &client.wait {
            self.wait(wait);
        }
        client
            .slot
            .map(|slot| (slot.until.saturating_sub(self.now), slot.is_confirmed, slot.is_shared))
            .hash(&mut self.rest);
        for passed in &client.passed {
            (
                name(&passed.claim),
                passed.retained,
                client.rounds.iter().position(|(no, _)| *no == passed.round),
            )
                .hash(&mut self.rest);
            self.behind(client, &passed.before);
        }
        for undoing in &client.undos {
            (name(undoing.undo.claim()), self.age(undoing.since)).hash(&mut self.rest);
            self.set(undoing.gone);
            let first = undoing.undo.round();
            self.each(|node| match (first.response_of(node), first.asked_at(node)) {
                (Some(result), _) => result.is_ok().into(),
                (None, asked) => 2 + u8::from(asked.is_some()),
            });
            for (node, at) in &undoing.failed {
                let age = self.age(*at);
                (4, age).hash(&mut self.nodes[*node]);
            }
        }
        for ended in &client.ended {
            (5, ended.name, self.age(ended.since)).hash(&mut self.rest);
            self.set(ended.gone);
        }
    }

    fn behind(&mut self, client: &Client, Behind { states, without, last }: &Behind) {
        client.rounds.iter().position(|(no, _)| Some(*no) == *last).hash(&mut self.rest);
        self.states(*states);
        self.states(*without);
    }

    /// A round; once it is decided, only what it leaves on the nodes.
    fn round(&mut self, round: &Round, is_open: bool) {
        let states = round.key_states();
        if !is_open {
            return self.states(states);
        }
        let age = (moment(self.now).since(round.sent())).as_secs();
        age.hash(&mut self.rest);
        for node in 0..self.model.nodes {
            let vote = |response: &Response| {
                let left = response.identity.quarantine_left(self.model.quarantine(), round.sent());
                (discriminant(&response.vote), self.token(response.fencing_token), left.is_zero())
            };
            let what = round.response_of(node).map(|result| result.as_ref().ok().map(vote));
            what.hash(&mut self.nodes[node]);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other request has a waiter")]
    fn request(&self, request: &Request) -> (&'static str, u8, u8, u64, Option<(WaiterId, u64)>) {
        let what = what(request);
        let wait = match request {
            Request::Enqueue { waiter, elapsed, .. } => Some((*waiter, elapsed.as_secs())),
            Request::LeaveQueue { waiter, .. } => Some((*waiter, 0)),
            _ => None,
        };
        (what.kind, what.claim, what.from, self.token(what.number), wait)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use quorlock::runtime::{Entropy, SystemEntropy};
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use stateright::Model;

    use super::super::{Left, Step};
    use super::*;

    /// What may come of states with the same digest has the same digests as well.
    #[test]
    fn states_that_count_as_the_same_have_the_same_future() {
        let all = Left {
            losses: 1,
            crashes: 1,
            restarts: 1,
            give_ups: 1,
            renewals: 1,
            passes: 1,
            retains: 1,
            pauses: 1,
            ..Left::default()
        };
        let few = Real { goals: 2, ..Real::calm(1).with(all) };
        let waiting = Left { crashes: 1, give_ups: 1, unheard: 1, ..Left::default() };
        let waiting = Real { nodes: 1, delay: 1, waits: true, others: 2, ..Real::calm(3).with(waiting) };
        let worlds = [
            waiting.clone(),
            Real { nodes: 3, ..waiting },
            few.clone(),
            Real { slow: true, delay: 2, ..few },
            Real::calm(2).with(all),
        ];
        let seed = SystemEntropy::default().next_u64();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for world in worlds {
            let (mut known, mut again) = (HashMap::new(), 0);
            for _ in 0..1_000 {
                let mut state = world.init_states().remove(0);
                let mut path = Vec::new();
                loop {
                    let mut steps: Vec<Step> = Vec::new();
                    world.actions(&state, &mut steps);
                    let futures = steps.iter().filter_map(|step| world.next_state(&state, *step));
                    let mut digests: Vec<u64> = futures.map(|next| next.digest).collect();
                    digests.sort_unstable();
                    let Some(step) = steps.choose(&mut random) else { break };
                    path.push(*step);
                    if let Some((expected, other)) = known.get(&state.digest) {
                        again += 1;
                        assert_eq!(&digests, expected, "after {path:?} and {other:?}");
                    }
                    known.entry(state.digest).or_insert((digests, path.clone()));
                    state = world.next_state(&state, *step).unwrap();
                }
            }
            println!("{} states, {again} met again", known.len());
            assert!(again > 1_000);
        }
    }
}
