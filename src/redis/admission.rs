//! The state of a node that its handle reads without asking the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use super::exchange::Step;
use super::observers::Observers;
use crate::node::catch_panic::catch_panic;
use crate::node::facts::Facts;
use crate::node::{
    ConnectionState, Identity, NodeError, ReceivedAt, Request, Responder, Response, SharedRequest,
    StatusListener,
};
use crate::runtime::Mutex;
use quorlock_protocol::most_in_flight;

/// The most unanswered requests of a node that may create a key; a distant node has [more](most_in_flight).
///
/// A hung server carries out its backlog when it resumes: without a bound, a thousand requests that timed out
/// became a thousand stored keys (measured). Far above the usual number of a healthy node: at 200 000 votes a
/// second, 512 are 3 ms.
const MAX_VOTES: u64 = 512;

/// The most unanswered requests of any kind. Larger than the bound on votes, so that the clean-up of every
/// vote has room: a release, a cancel and a dequeue for each.
pub(crate) const MAX_REQUESTS: usize = 2048;

/// A request to the node, which gets one response.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: SharedRequest,
    /// Dropped before the responder, because the receiver of the response may send another request.
    pub(crate) permit: AdmissionPermit,
    pub(crate) responder: Responder,
    /// What is sent next; `None` if nothing was sent yet.
    pub(crate) step: Option<Step>,
}

impl PendingRequest {
    pub(crate) fn answer(self, answer: Result<Response, NodeError>) {
        let PendingRequest { permit, responder, .. } = self;
        drop(permit);
        catch_panic(ROUND, || responder.send(answer));
    }

    /// Answers with a response that was just received.
    pub(crate) fn answer_with(self, answer: Response, came: ReceivedAt<'_>) {
        let PendingRequest { permit, responder, .. } = self;
        drop(permit);
        catch_panic(ROUND, || responder.send_received(Ok(answer), came));
    }
}

/// Receives a response. It runs in the task of the node, whichever round it belongs to.
const ROUND: &str = "the receiver of a response";

/// The state of a node, shared by its handle and its task.
#[derive(Debug)]
pub(crate) struct State {
    phase: AtomicU8,
    /// The error while the state is not [`OPEN`].
    error: Mutex<NodeError>,
    /// The server that answers, or answered last.
    identity: Mutex<Option<Arc<Identity>>>,
    observers: Observers,
    /// The number of unanswered requests, and how many of them are votes. Both in one counter, because all
    /// callers and the node's task write to it: one cache miss instead of two.
    unanswered: AtomicU64,
    /// The number of connections that have ended.
    ended: AtomicU64,
    /// How long the handshake took, in nanoseconds; 0 before the first.
    round_trip: AtomicU64,
    /// The facts from the last handshake.
    facts: Mutex<Option<Arc<Facts>>>,
}

/// One vote in the counter of unanswered requests. The lower half counts all requests.
const VOTE: u64 = 1 << 32;

/// Returns what a request adds to that counter.
fn weight(creates: bool) -> u64 {
    if creates { VOTE + 1 } else { 1 }
}

/// Requests are admitted: the node is connected, or connecting for the first time.
const OPEN: u8 = 0;
/// Connected, but the Sentinels do not confirm the master: the connection sends no request whose effect must last.
const UNCONFIRMED: u8 = 1;
/// Connected, but without a response for a while. Only clean-up requests are admitted, which must follow the
/// votes before them: so a hung node costs nothing, and its backlog does not grow.
const STALLED: u8 = 2;
/// Not connected. No request is admitted.
const DOWN: u8 = 3;
/// Not connected, and not reconnecting until the next call.
const ENDED: u8 = 4;

impl State {
    pub(crate) fn new() -> State {
        State {
            phase: AtomicU8::new(OPEN),
            error: Mutex::new(NodeError::NotAsked),
            identity: Mutex::new(None),
            observers: Observers::default(),
            unanswered: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            facts: Mutex::default(),
        }
    }

    /// Records the facts and the duration of a handshake.
    pub(crate) fn introduced(&self, facts: Facts, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
        *self.facts.lock() = Some(Arc::new(facts));
    }

    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.facts.lock().clone()
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then_some(Duration::from_nanos(nanos))
    }

    /// Admits a request to the unanswered ones, or returns why not.
    pub(crate) fn admit(self: &Arc<Self>, request: &Request) -> Result<AdmissionPermit, NodeError> {
        let creates = request.may_create();
        // Read before the state: if a connection ends in between, the permit belongs to that connection.
        let ended = self.ended.load(Ordering::Acquire);
        let phase = self.phase.load(Ordering::Acquire);
        if phase >= DOWN || (phase == STALLED && !cleans_up(request)) {
            return Err(self.error());
        }
        // Counted before the check, and given back if refused: two callers cannot both take the last place.
        let unanswered = self.unanswered.fetch_add(weight(creates), Ordering::Relaxed);
        let permit = AdmissionPermit { state: Arc::clone(self), creates, ended };
        debug_assert!(unanswered / VOTE <= unanswered % VOTE, "each vote is a request");
        let (waiting, votes) = (unanswered % VOTE, if creates { unanswered / VOTE } else { 0 });
        if waiting >= MAX_REQUESTS as u64 || votes >= MAX_VOTES {
            let most = |near| most_in_flight(near, self.round_trip().unwrap_or_default());
            if waiting >= most(MAX_REQUESTS as u64) || votes >= most(MAX_VOTES) {
                let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
                return Err(NodeError::Overloaded { waiting });
            }
        }
        Ok(permit)
    }

    /// Records that a connection has ended: requests that were sent over it may arrive late.
    pub(crate) fn connection_ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Returns whether this is the process of before, with another history.
    pub(crate) fn has_new_data(&self, identity: &Arc<Identity>) -> bool {
        let before = self.identity.lock();
        before.as_ref().is_some_and(|before| before.id == identity.id && !Arc::ptr_eq(before, identity))
    }

    /// Records a connection to this server process.
    pub(crate) fn connect(&self, identity: Arc<Identity>) {
        *self.identity.lock() = Some(identity);
        self.open();
    }

    pub(crate) fn open(&self) {
        self.phase.store(OPEN, Ordering::Release);
        self.notify();
    }

    /// Records that the server answers, and is not asked for votes.
    pub(crate) fn unconfirmed(&self, error: NodeError) {
        debug_assert_eq!(
            self.phase.load(Ordering::Acquire),
            OPEN,
            "only a node that is connected has a master"
        );
        self.enter(UNCONFIRMED, error);
    }

    pub(crate) fn stalled(&self, error: NodeError) {
        debug_assert!(self.phase.load(Ordering::Acquire) < STALLED, "only a node that is connected stalls");
        self.enter(STALLED, error);
    }

    pub(crate) fn down(&self, error: NodeError) {
        self.enter(DOWN, error);
    }

    /// Records that the task has ended. The next call starts another one.
    pub(crate) fn end(&self) {
        let reason = "its connection ended with the Tokio runtime that it was opened on, or with its handle";
        self.enter(ENDED, NodeError::Unreachable { reason: reason.into() });
    }

    /// Records that a task is connecting: requests wait for it, as at the first time.
    pub(crate) fn begin(&self) {
        *self.identity.lock() = None;
        self.phase.store(OPEN, Ordering::Release);
    }

    /// Notifies `observer` of the state of the connection, now and whenever it changes.
    pub(crate) fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.observers.add(observer, || self.contact());
    }

    fn notify(&self) {
        self.observers.notify(|| self.contact());
    }

    /// Returns the state of the connection, once it is known.
    fn contact(&self) -> Option<ConnectionState> {
        match self.phase.load(Ordering::Acquire) {
            OPEN => self.identity.lock().clone().map(ConnectionState::Connected),
            UNCONFIRMED | STALLED => Some(ConnectionState::Stalled(self.error())),
            DOWN => Some(ConnectionState::Lost(self.error())),
            _ => Some(ConnectionState::Ended(self.error())),
        }
    }

    /// Returns whether there is a connection that answers, or why there is none.
    pub(crate) fn connected(&self) -> Result<(), NodeError> {
        if self.phase.load(Ordering::Acquire) == OPEN { Ok(()) } else { Err(self.error()) }
    }

    fn error(&self) -> NodeError {
        self.error.lock().clone()
    }

    fn enter(&self, phase: u8, error: NodeError) {
        *self.error.lock() = error;
        self.phase.store(phase, Ordering::Release);
        self.notify();
    }
}

/// Returns whether the request undoes an earlier one, and so is worth sending to a node that hangs.
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

/// A place among the unanswered requests of a node. Given back when it is dropped: with the response, or with
/// a request that is dropped when the node's task panics.
#[derive(Debug)]
#[must_use]
pub(crate) struct AdmissionPermit {
    state: Arc<State>,
    creates: bool,
    /// The number of connections that had ended when it was taken.
    ended: u64,
}

impl AdmissionPermit {
    /// Returns whether a connection has ended since it was taken.
    pub(crate) fn outlived_a_connection(&self) -> bool {
        self.ended != self.state.ended.load(Ordering::Acquire)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let unanswered = self.state.unanswered.fetch_sub(weight(self.creates), Ordering::Relaxed);
        let (all, votes) = (unanswered % VOTE, unanswered / VOTE);
        debug_assert!(all > 0 && (votes > 0 || !self.creates), "more permits were given back than taken");
    }
}

/// Returns whether the effect of the request must outlive a failover to count: votes, renewals, and fencing numbers
/// that are written back.
pub(crate) fn must_last(request: &Request) -> bool {
    request.may_create() || matches!(request, Request::WriteBack { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::tests::{any_claim, plain};

    fn acquire() -> Request {
        plain(&any_claim())
    }

    fn release() -> Request {
        crate::redis::tests::release(&any_claim())
    }

    #[test]
    fn a_backlog_of_votes_leaves_room_for_their_clean_up() {
        let state = Arc::new(State::new());
        let votes: Vec<_> = (0..MAX_VOTES).map(|_| state.admit(&acquire()).unwrap()).collect();
        assert!(matches!(state.admit(&acquire()), Err(NodeError::Overloaded { waiting: 512 })));
        let clean_up: Vec<_> = (512..MAX_REQUESTS).map(|_| state.admit(&release()).unwrap()).collect();
        assert!(matches!(state.admit(&release()), Err(NodeError::Overloaded { waiting: MAX_REQUESTS })));
        drop((votes, clean_up));
        assert!(state.admit(&acquire()).is_ok(), "answered requests give their places back");
    }

    #[test]
    fn a_distant_node_admits_as_many_votes_a_second() {
        let state = Arc::new(State::new());
        state.introduced(Facts::default(), Duration::from_millis(300));
        // Twenty thousand leases of 30 s are renewed two thousand times a second.
        let votes: Vec<_> = (0..12 * MAX_VOTES).map(|_| state.admit(&acquire()).unwrap()).collect();
        assert!(matches!(state.admit(&acquire()), Err(NodeError::Overloaded { waiting: 6_144 })));
        drop(votes);
    }

    #[test]
    fn a_stalled_node_admits_releases_and_a_down_node_none() {
        let state = Arc::new(State::new());
        let error = NodeError::Unreachable { reason: "it is unplugged".into() };
        state.stalled(error.clone());
        assert_eq!(state.admit(&acquire()).unwrap_err(), error);
        assert!(state.admit(&release()).is_ok());
        state.down(error.clone());
        assert_eq!(state.admit(&release()).unwrap_err(), error);
        state.open();
        assert!(state.admit(&acquire()).is_ok());
    }
}
