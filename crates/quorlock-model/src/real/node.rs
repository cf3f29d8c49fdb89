//! A store: the record that ships, and what a restart leaves of it.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::machine::Deployment;
use quorlock_protocol::node::record::{Change, Record, Records};
use quorlock_protocol::node::{Identity, Request, Response, Vote};
use quorlock_protocol::{Claim, FenceHint, FencingToken, Quarantine, Quorum, Token, WaiterId, fence_counter};

use super::{Real, Scheme, TICK, moment};

pub(super) const KEY: &str = "a";
const OLD: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) record: Record,
    pub(super) counter: u64,
    identity: Arc<Identity>,
    /// When it lost its data last.
    pub(super) born: Option<u16>,
}

impl Node {
    pub(super) fn new(index: usize) -> Node {
        let identity = Arc::new(Identity::new(index.to_string(), moment(0), OLD));
        Node { record: Record::default(), counter: 0, identity, born: None }
    }

    pub(super) fn restart(&mut self, now: u16) {
        let identity = Identity::new(format!("{}.{now}", self.identity.id), moment(now), Duration::ZERO);
        *self = Node { record: Record::default(), counter: 0, identity: Arc::new(identity), born: Some(now) };
    }

    /// Whether it has never lost data.
    pub(super) fn is_first(&self) -> bool {
        self.born.is_none()
    }

    /// Returns the claim whose key it has.
    pub(super) fn holder(&self, now: u16) -> Option<u8> {
        let held = self.record.held.as_ref()?;
        held.ends.is_none_or(|ends| ends > micros_at(now)).then(|| name_of(held.token.random_part()))
    }

    /// Whether a client that comes to a lock which no one holds or waits for has to wait.
    pub(super) fn is_reserved(&self, model: &Real, now: u16) -> bool {
        let waits = self.record.queue.first(micros_at(now)).is_some();
        let comes = Request::enqueue(KEY.into(), WaiterId::new(u64::MAX), Duration::ZERO, TICK, TICK);
        !waits && self.holder(now).is_none() && self.clone().execute(model, &comes, now).vote != Vote::Free
    }

    /// Carries out a request as a store does.
    pub(super) fn execute(&mut self, model: &Real, request: &Request, now: u16) -> Response {
        let counter = fence_counter("", KEY);
        let mut records = Records::at(micros_at(now)).with_wall(model.wall(now));
        let mut before = self.record.clone();
        let looks = model.scheme != Scheme::NoLook || !matches!(request, Request::Acquire { .. });
        let unseen = if looks { None } else { Some(std::mem::take(&mut before.tombstones)) };
        records.add(KEY.into(), None, Ok(before));
        let number = Record { counter: self.counter, ..Record::default() };
        records.add(counter.as_str().into(), None, Ok(number));
        let any = any_key(model, request, &self.record);
        let decision = records.apply(any.as_ref().unwrap_or(request));
        let (vote, number) = decision.unwrap_or_else(|error| unreachable!("{request:?}: {error}"));
        for Change { key, record, .. } in records.changes() {
            if key == KEY { self.record.clone_from(record) } else { self.counter = record.counter }
        }
        if let Some(unseen) = unseen {
            self.record.tombstones = unseen;
        }
        Response::new(vote, self.identity.clone()).with_fencing_token(number)
    }
}

/// The transfer from whatever token the node has, where that rule is broken.
fn any_key(model: &Real, request: &Request, record: &Record) -> Option<Request> {
    let Request::Transfer { to, ttl, fence_hint, .. } = request else { return None };
    let held = record.held.as_ref().filter(|_| model.scheme == Scheme::AnyKey)?;
    let from = Arc::new(to.with(held.token.clone()));
    Some(Request::Transfer { from, to: to.clone(), ttl: *ttl, fence_hint: *fence_hint })
}

/// By a node's clock. Zero would mean "never" in a record.
pub(super) fn micros_at(tick: u16) -> u64 {
    1_000_000_000 + u64::from(tick) * 1_000_000
}

/// Returns the token of a claim.
pub(super) fn token(name: u8) -> Token {
    Token::new(name.into(), "")
}

/// Returns the claim of a token, by its random part.
pub(super) fn name_of(random: &[u8]) -> u8 {
    let number = str::from_utf8(random).ok().and_then(|text| u128::from_str_radix(text, 16).ok());
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

pub(super) fn name(claim: &Claim) -> u8 {
    name_of(claim.token().random_part())
}

/// A request in a few words. Equal requests are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct What {
    pub(super) kind: &'static str,
    pub(super) claim: u8,
    /// The claim that is replaced.
    pub(super) from: u8,
    pub(super) number: Option<FencingToken>,
    /// Whether it may store the claim.
    pub(super) stores: bool,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other request is sent")]
pub(super) fn what(request: &Request) -> What {
    let of_waiter = |kind, waiter| {
        let claim = u8::try_from(client_of(waiter) * 16).unwrap_or(u8::MAX);
        What { kind, claim, from: 0, number: None, stores: false }
    };
    let drawing = |hint: &Option<FenceHint>| hint.map(|hint| hint.hint);
    let (kind, claim, number) = match request {
        Request::Acquire { claim, fence_hint, .. } => ("request for a vote", claim, drawing(fence_hint)),
        Request::Transfer { to, fence_hint, .. } => ("transfer", to, drawing(fence_hint)),
        Request::Renew { claim, fencing_token, .. } => ("renewal", claim, *fencing_token),
        Request::WriteBack { claim, fencing_token } => ("number", claim, Some(*fencing_token)),
        Request::Release { claim } => ("release", claim, None),
        Request::Cancel { claim, linger } if linger.is_zero() => {
            ("cancellation without a tombstone", claim, None)
        }
        Request::Cancel { claim, .. } => ("cancellation", claim, None),
        Request::Enqueue { waiter, .. } => return of_waiter("request for a place", *waiter),
        Request::LeaveQueue { waiter, .. } => return of_waiter("departure", *waiter),
        Request::Inspect { .. } => {
            return What { kind: "look at the lock", claim: 0, from: 0, number: None, stores: false };
        }
        _ => unreachable!("{request:?}"),
    };
    let from = if let Request::Transfer { from, .. } = request { name(from) } else { 0 };
    let stores =
        matches!(request, Request::Acquire { .. } | Request::Transfer { .. } | Request::Renew { .. });
    What { kind, claim: name(claim), from, number, stores }
}

impl Deployment for Real {
    fn quorum(&self) -> Quorum {
        Quorum::majority(self.nodes)
    }

    fn quarantine(&self) -> Quarantine {
        let young = self.scheme == Scheme::NoQuarantine;
        if young { Quarantine::none() } else { Quarantine::new(self.max_ttl(), Real::drift()) }
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn is_on_one_host(&self) -> bool {
        false
    }

    fn timeout(&self, _: usize, _: Duration) -> Duration {
        TICK
    }

    fn overdue_after(&self, _: usize, _: Duration, _: Duration) -> Duration {
        TICK
    }

    fn grant_age(&self, _: Duration) -> Duration {
        Duration::ZERO
    }

    /// The longest pauses: each lasts until the next tick.
    fn random(&self) -> u64 {
        u64::MAX
    }

    fn name(&self, node: usize) -> Arc<str> {
        node.to_string().into()
    }
}

/// Returns the client that waits by this name.
pub(super) fn client_of(waiter: WaiterId) -> usize {
    let digits = u64::from_str_radix(&waiter.to_string(), 16).unwrap_or_default();
    usize::from(digits.to_le_bytes()[0])
}
