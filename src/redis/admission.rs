//! What an asker sees of a node without asking its task.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::contained::contained;
use super::observers::Observers;
use crate::node::facts::Facts;
use crate::node::{
    ConnectionState, Identity, NodeError, ReceivedAt, Request, Responder, Response, SharedRequest,
    StatusListener,
};
use quorlock_protocol::most_in_flight;

/// The most unanswered requests of a node that may create a key; of a far one [more](most_in_flight).
///
/// A hung server carries out its backlog when it goes on: without a bound, a thousand requests
/// that timed out became a thousand stored keys (measured). Far above what a healthy node has
/// waiting: at 200 000 votes a second, 512 are 3 ms.
const VOTES: u64 = 512;

/// The most unanswered requests of any kind. So many more than votes that the clean-up of every
/// vote has room: a release, a cancel and a leaving of the line for each.
pub(crate) const QUESTIONS: usize = 2048;

/// A request on its way to the node, which gets one answer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) request: SharedRequest,
    /// Before the reply: who hears the answer may ask again, also where both are dropped.
    pub(crate) place: AdmissionPermit,
    pub(crate) reply: Responder,
    pub(crate) stage: Stage,
}

/// How far a request has come. Acquisitions and releases may take more than one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// As it was put.
    Fresh,
    /// By its script, since it was refused without.
    Scripted,
    /// The token may be stored by now, and lacks its number.
    Unnumbered,
    /// Released by a command; the next who waits is to be told.
    Released,
}

impl Ask {
    pub(crate) fn answer(self, answer: Result<Response, NodeError>) {
        let Ask { place, reply, .. } = self;
        drop(place);
        contained(ROUND, || reply.send(answer));
    }

    /// The same, with an answer that came just now.
    pub(crate) fn answer_with(self, answer: Response, came: ReceivedAt<'_>) {
        let Ask { place, reply, .. } = self;
        drop(place);
        contained(ROUND, || reply.send_what_came(Ok(answer), came));
    }
}

/// Who takes an answer in. It runs in the task of the node, whichever round it belongs to.
const ROUND: &str = "whoever was answered";

/// How a node stands, shared by its handle and its task.
#[derive(Debug)]
pub(crate) struct State {
    standing: AtomicU8,
    /// What is wrong while the node does not stand [`OPEN`].
    trouble: Mutex<NodeError>,
    /// Who answers, or did.
    identity: Mutex<Option<Arc<Identity>>>,
    observers: Observers,
    /// How many requests are unanswered, and how many of them are votes. Both in one, since all who
    /// ask, and the node's task, write to it: one wait for the other processor's cache instead of two.
    unanswered: AtomicU64,
    /// How many connections have ended.
    ended: AtomicU64,
    /// How long the server took to introduce itself, in nanoseconds; 0 before it has.
    round_trip: AtomicU64,
    /// What the server said of itself at the last connection.
    facts: Mutex<Option<Arc<Facts>>>,
}

/// A vote, in the count of what is unanswered. The lower half counts requests.
const VOTE: u64 = 1 << 32;

/// What a request adds to that count.
fn weight(creates: bool) -> u64 {
    if creates { VOTE + 1 } else { 1 }
}

/// Requests are taken in: the node is connected, or is being connected for the first time.
const OPEN: u8 = 0;
/// Connected, but it has not answered for a while. Only the clean-up is taken in, which belongs
/// behind the votes before it: so a hung node costs nothing, and its backlog does not grow.
const STALLED: u8 = 1;
/// Not connected. Nothing is taken in.
const DOWN: u8 = 2;
/// Not connected, and nobody tries until the next call.
const ENDED: u8 = 3;

impl State {
    pub(crate) fn new() -> State {
        State {
            standing: AtomicU8::new(OPEN),
            trouble: Mutex::new(NodeError::NotAsked),
            identity: Mutex::new(None),
            observers: Observers::default(),
            unanswered: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            facts: Mutex::default(),
        }
    }

    /// Keeps what a server has said of itself, and how long that took.
    pub(crate) fn introduced(&self, facts: Facts, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
        *lock(&self.facts) = Some(Arc::new(facts));
    }

    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        lock(&self.facts).clone()
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then_some(Duration::from_nanos(nanos))
    }

    /// A place among the unanswered requests, or why there is none.
    pub(crate) fn admit(self: &Arc<Self>, request: &Request) -> Result<AdmissionPermit, NodeError> {
        let creates = request.may_create();
        // Before the standing: should a connection end in between, the place is one of before.
        let ended = self.ended.load(Ordering::Acquire);
        let standing = self.standing.load(Ordering::Acquire);
        if standing >= DOWN || (standing == STALLED && !cleans_up(request)) {
            return Err(self.trouble());
        }
        // Counted before it is checked, and given back when refused: two askers cannot both take
        // the last place.
        let unanswered = self.unanswered.fetch_add(weight(creates), Ordering::Relaxed);
        let place = AdmissionPermit { state: Arc::clone(self), creates, ended };
        let (waiting, votes) = (unanswered % VOTE, if creates { unanswered / VOTE } else { 0 });
        if waiting >= QUESTIONS as u64 || votes >= VOTES {
            let most = |near| most_in_flight(near, self.round_trip().unwrap_or_default());
            if waiting >= most(QUESTIONS as u64) || votes >= most(VOTES) {
                let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
                return Err(NodeError::Overloaded { waiting });
            }
        }
        Ok(place)
    }

    /// A connection has ended: what was sent over it may come late.
    pub(crate) fn connection_ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// A connection to this process is there.
    pub(crate) fn connect(&self, identity: Arc<Identity>) {
        *lock(&self.identity) = Some(identity);
        self.open();
    }

    pub(crate) fn open(&self) {
        self.standing.store(OPEN, Ordering::Release);
        self.tell();
    }

    pub(crate) fn stalled(&self, trouble: NodeError) {
        self.stand(STALLED, trouble);
    }

    pub(crate) fn down(&self, trouble: NodeError) {
        self.stand(DOWN, trouble);
    }

    /// The task has ended. The next call begins another one.
    pub(crate) fn end(&self) {
        let reason =
            "its connection has ended with the Tokio runtime that it was made from, or with its handle";
        self.stand(ENDED, NodeError::Unreachable { reason: reason.into() });
    }

    /// There is a task that connects: requests wait for that, as the first time.
    pub(crate) fn begin(&self) {
        *lock(&self.identity) = None;
        self.standing.store(OPEN, Ordering::Release);
    }

    /// From now on tells `observer` how the node stands.
    pub(crate) fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.observers.add(observer, || self.contact());
    }

    fn tell(&self) {
        self.observers.notify(|| self.contact());
    }

    /// How the node stands, once that is known.
    fn contact(&self) -> Option<ConnectionState> {
        match self.standing.load(Ordering::Acquire) {
            OPEN => lock(&self.identity).clone().map(ConnectionState::Connected),
            STALLED => Some(ConnectionState::Stalled(self.trouble())),
            DOWN => Some(ConnectionState::Lost(self.trouble())),
            _ => Some(ConnectionState::Ended(self.trouble())),
        }
    }

    /// Whether there is a connection that answers, or why there is none.
    pub(crate) fn connected(&self) -> Result<(), NodeError> {
        if self.standing.load(Ordering::Acquire) == OPEN { Ok(()) } else { Err(self.trouble()) }
    }

    fn trouble(&self) -> NodeError {
        lock(&self.trouble).clone()
    }

    fn stand(&self, standing: u8, trouble: NodeError) {
        *lock(&self.trouble) = trouble;
        self.standing.store(standing, Ordering::Release);
        self.tell();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the request takes back an earlier one, and so is worth sending to a node that hangs.
pub(crate) fn cleans_up(request: &Request) -> bool {
    matches!(
        request,
        Request::Release { .. }
            | Request::Offer { .. }
            | Request::Cancel { .. }
            | Request::LeaveQueue { .. }
            | Request::WithdrawWriter { .. }
    )
}

/// A place among the unanswered requests of a node, given back when it is dropped: with the answer, or with
/// a request in hand when the node's task panics.
#[derive(Debug)]
#[must_use]
pub(crate) struct AdmissionPermit {
    state: Arc<State>,
    creates: bool,
    /// How many connections had ended when it was taken.
    ended: u64,
}

impl AdmissionPermit {
    /// Whether a connection has ended since it was taken.
    pub(crate) fn outlived_a_connection(&self) -> bool {
        self.ended != self.state.ended.load(Ordering::Acquire)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.state.unanswered.fetch_sub(weight(self.creates), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorlock_protocol::{Claim, Token};

    fn claim() -> Arc<Claim> {
        Arc::new(Claim::new("orders/42".into(), Token::new(7, "")))
    }

    fn acquire() -> Request {
        Request::Acquire { claim: claim(), ttl: Duration::from_secs(1), fence_hint: None }
    }

    fn release() -> Request {
        Request::Release { claim: claim() }
    }

    #[test]
    fn a_backlog_of_votes_leaves_room_for_their_clean_up() {
        let state = Arc::new(State::new());
        let votes: Vec<_> = (0..VOTES).map(|_| state.admit(&acquire()).unwrap()).collect();
        assert!(matches!(state.admit(&acquire()), Err(NodeError::Overloaded { waiting: 512 })));
        let clean_up: Vec<_> = (512..QUESTIONS).map(|_| state.admit(&release()).unwrap()).collect();
        assert!(matches!(state.admit(&release()), Err(NodeError::Overloaded { waiting: QUESTIONS })));
        drop((votes, clean_up));
        assert!(state.admit(&acquire()).is_ok(), "answered requests give their places back");
    }

    #[test]
    fn a_far_node_takes_as_many_votes_a_second_as_a_near_one() {
        let state = Arc::new(State::new());
        state.introduced(Facts::default(), Duration::from_millis(300));
        // Twenty thousand leases of half a minute are renewed two thousand times a second.
        let votes: Vec<_> = (0..12 * VOTES).map(|_| state.admit(&acquire()).unwrap()).collect();
        assert!(matches!(state.admit(&acquire()), Err(NodeError::Overloaded { waiting: 6_144 })));
        drop(votes);
    }

    #[test]
    fn a_stalled_node_takes_releases_and_a_node_that_is_down_takes_nothing() {
        let state = Arc::new(State::new());
        let trouble = NodeError::Unreachable { reason: "it is unplugged".into() };
        state.stalled(trouble.clone());
        assert_eq!(state.admit(&acquire()).unwrap_err(), trouble);
        assert!(state.admit(&release()).is_ok());
        state.down(trouble.clone());
        assert_eq!(state.admit(&release()).unwrap_err(), trouble);
        state.open();
        assert!(state.admit(&acquire()).is_ok());
    }
}
