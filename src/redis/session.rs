//! One connection to one server process, from its first vote to its end.
//!
//! The handshake makes the connection and decides that the process may vote; then `run` owns the
//! connection. It takes requests from the node's queue, writes them, and gives each its response. One
//! session never reconnects: when it ends, the supervisor makes another connection and another session.
//!
//! ```text
//!          take           write                               the server
//!  queue ───────► batch ─────────► outbox ──────────────────────►
//!                   ▲       │ one Sent for each request
//!         next step │       ▼
//!                   │   in_flight, oldest first    inbox ◄───────
//!                   │       │                        │
//!                   └───────┴───────── reply ────────┤
//!                           │                        └── push ──► listeners
//!                vote, error│
//!                           ▼
//!                       Responder
//! ```
//!
//! # States
//!
//! A request is in exactly one of these places: `queue`, `batch` or `in_flight`. It leaves the last of them with
//! one response. A request of several steps (see `exchange`) goes back from `in_flight` to `batch` between two of
//! them. Besides requests, `in_flight` has the session's own commands: the notes (see `notes`), the list of nodes,
//! and the release of a token whose number could not be drawn.
//!
//! The connection is *fluent*; *unconfirmed* while the Sentinels do not confirm the master; *stalled* after a
//! second without a reply (four round trips, if that is longer); *closing* once the node's last handle was
//! dropped; and then ended, either *lost* or *closed*.
//!
//! # Events, in the order in which a poll handles them
//!
//! | event | what it does |
//! |---|---|
//! | a reply | belongs to the oldest entry of `in_flight`: a vote, an error, or the next step. A stalled connection is fluent again |
//! | a push | goes to the listeners, in its place between the replies. If it concerns a note, that is read again |
//! | a push that all keys are invalid | the connection is lost, and no later reply is read |
//! | the Sentinels name another master | the connection is lost |
//! | the Sentinels have not confirmed the master for three seconds | the node is reported as stalled, and not asked for votes, until they do |
//! | requests in the queue | are written, after one turn for other tasks to add theirs to the same write. A request that would store a token for an attempt that has ended is not sent |
//! | the queue is closed | no more requests; the connection closes when `in_flight` is empty, or after a second |
//! | the timer | the oldest entry has waited too long: the connection is stalled, and lost after 30 s |
//!
//! # Invariants
//!
//! - Replies come in the order of the requests, and a reply without a request ends the connection (I-22).
//! - A vote comes from data that were not replaced since the handshake (I-51): a server pushes that before its
//!   next reply.
//! - Nothing is sent on another connection (I-14). When this one ends, what is in flight is *unknown*.
//! - A release does not overtake the request that it takes back. It is on the same connection and so behind
//!   it. If that connection has ended and the server did not close it for us, the release is not sent; its
//!   caller then leaves a tombstone (I-5). For the same reason `SET` without a look for a tombstone is used
//!   only where the server closes old connections (I-41).
//! - A vote is requested only while the Sentinels confirm the master (T-1). A cluster member votes only in the
//!   history of its handshake (C-3).
//! - While stalled, only clean-up is sent, and the next step of what was sent before: a hung server carries
//!   out its backlog when it resumes.
//! - What a server sends is untrusted: it may end this connection, and harms nothing else.
//!
//! # When it is dropped
//!
//! One task owns the session, and it may be dropped between any two polls: with its runtime, when another
//! runtime takes the work over (see `home`), or by a panic. `Drop` covers all of these and the usual end:
//! first it records that a connection has ended, then it answers each request that is left with
//! `NodeError::Disconnected`, which is an unknown outcome. Requests still in the queue were not sent; they
//! stay there for the next session.
//!
//! What was rejected: docs/adr/0005-redis.md.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use self::notes::Notes;
use self::sent::{Expected, Sent};
use super::admission::{PendingRequest, State};
use super::command::plain::SupportedCommands;
use super::connection::{Connection, ConnectionError};
use super::handshake::{Connector, ReadyConnection};
use super::node_lists::NodeListsNote;
use super::push::Listeners;
use super::scripts::Library;
use super::sentinel::Watch;
use crate::node::Reason;
use crate::node::{Identity, NodeError};
use crate::runtime::clock::{Clock, Sleep};
use quorlock_protocol::Moment;

mod notes;
mod receive;
mod send;
mod sent;
mod stall;

/// A node counts as stalled after this time without a reply, or after four of its round trips if that is
/// longer.
const STALL: Duration = Duration::from_secs(1);

/// How a connection ended.
pub(crate) enum End {
    /// It was lost, for this reason.
    Lost(Reason),
    /// The server has invalidated all keys, and answers as before.
    Invalidated,
    /// The node was dropped, and everything was answered that could be.
    Closed,
}

/// Sends the requests in `queue` over the connection, and delivers the replies, until the connection ends.
/// Returns how it ended, and whether it has answered any request.
pub(crate) async fn run(
    ready: ReadyConnection,
    connector: &mut Connector,
    queue: &mut UnboundedReceiver<PendingRequest>,
    state: &State,
    (name, listeners): (&str, &Listeners),
    clock: &dyn Clock,
) -> (End, bool) {
    debug_assert!(
        ready.supported.client.is_none() || !connector.expects_late_requests(),
        "a request of an earlier connection may arrive behind one that looks for no tombstone (rules I-5 and I-41)"
    );
    let notes = Notes::new(
        ready.max_ttl.filter(|_| ready.hints),
        ready.inbox.as_ref().map(|_| connector.secret()),
        // A push that the handshake has ignored may have been about them.
        ready.connection.missed_push,
    );
    let lists = connector.node_lists();
    let mut session = Session {
        connection: ready.connection,
        name,
        identity: ready.identity,
        history: ready.history,
        listeners: ready.hints.then_some(listeners),
        pushes_own: ready.pushes_own,
        connector,
        state,
        clock,
        yielded: false,
        in_flight: VecDeque::new(),
        supported: ready.supported,
        pairs_from: Moment::ORIGIN,
        watch: ready.watch,
        notes,
        lists,
        lists_from: Moment::ORIGIN,
        batch: Vec::new(),
        library: Library::new(ready.redisson),
        pace: Pace::Fluent,
        stall: STALL.max(ready.round_trip.saturating_mul(4)),
        last_reply: clock.now(),
        has_answered: false,
        timer: None,
        shutdown: None,
        reason: "its connection ended with its task".into(),
    };
    let end = poll_fn(|context| session.poll(context, queue)).await;
    session.reason = match &end {
        End::Lost(reason) => reason.clone(),
        End::Invalidated => ConnectionError::Invalidated.into(),
        End::Closed => "the node was dropped before it answered".into(),
    };
    (end, session.has_answered)
}

/// A later connection may lead to another process, but the requests were for this one (rule I-14).
impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Recorded before the requests are answered, because the callers undo them then.
        self.state.connection_ended();
        let in_flight = mem::take(&mut self.in_flight).into_iter().filter_map(|sent| match sent.expected {
            Expected::Response { pending, .. } => Some(pending),
            Expected::Undo(undo) => Some(undo.pending),
            Expected::MaxTtl | Expected::SecretLeft | Expected::Secret | Expected::NodeLists => None,
        });
        let asked: Vec<_> = in_flight.collect();
        if asked.iter().any(|pending| pending.request.may_create()) {
            self.connector.abandon(self.supported.client);
        }
        for pending in asked.into_iter().chain(mem::take(&mut self.batch)) {
            pending.answer(Err(NodeError::Disconnected { reason: self.reason.clone() }));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Fluent,
    /// The Sentinels do not confirm the master.
    Unconfirmed,
    Stalled,
}

/// The connection and its requests in flight. Connection and queue are polled in one task, so that a request
/// needs neither a task of its own nor a wake-up between two.
struct Session<'a> {
    connection: Connection,
    /// The name of the node.
    name: &'a str,
    identity: Arc<Identity>,
    /// The history ID of a cluster member.
    history: Option<Arc<str>>,
    /// The listeners, if the server pushes changes.
    listeners: Option<&'a Listeners>,
    /// Whether the server also pushes changes by our own scripts.
    pushes_own: bool,
    connector: &'a mut Connector,
    state: &'a State,
    clock: &'a dyn Clock,
    /// Whether other tasks were given their turn, to add requests to the next write.
    yielded: bool,
    /// The unanswered requests, oldest first: a connection answers in order.
    in_flight: VecDeque<Sent>,
    /// The commands that the server supports besides scripts.
    supported: SupportedCommands,
    /// When acquisitions may be sent as two commands again.
    pairs_from: Moment,
    /// The view of the Sentinels, if they reported the address.
    watch: Option<Watch>,
    /// The notes that are read again when the server pushes that they have changed.
    notes: Notes,
    /// The lists of nodes of the clients.
    lists: Option<NodeListsNote>,
    /// When ours may be recorded again.
    lists_from: Moment,
    /// Requests to be sent next.
    batch: Vec<PendingRequest>,
    /// The scripts that the server knows.
    library: Library,
    pace: Pace,
    stall: Duration,
    /// When the last reply arrived.
    last_reply: Moment,
    has_answered: bool,
    /// Fires when it is time to check whether the node has stalled. Armed once a second at most, not for
    /// every request.
    timer: Option<Sleep>,
    shutdown: Option<Sleep>,
    /// Why the connection has ended, once it has. Until then, it ends with its task.
    reason: Reason,
}

impl Session<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut UnboundedReceiver<PendingRequest>,
    ) -> Poll<End> {
        // Replies first: their receivers may send further requests, which join the same write.
        match self.receive(context) {
            Ok(()) => {}
            Err(ConnectionError::Invalidated) => return Poll::Ready(End::Invalidated),
            Err(reason) => return Poll::Ready(End::Lost(reason.into())),
        }
        if let Some(watch) = &mut self.watch
            && let Poll::Ready(reason) = watch.poll_replaced(context)
        {
            return Poll::Ready(End::Lost(reason));
        }
        self.check_sentinels();
        self.take(context, queue);
        self.read_notes(context);
        if let Poll::Ready(Err(reason)) = self.connection.poll_send(context) {
            return Poll::Ready(End::Lost(reason.into()));
        }
        if let Some(shutdown) = &mut self.shutdown
            && (self.in_flight.is_empty() || shutdown.as_mut().poll(context).is_ready())
        {
            return Poll::Ready(End::Closed);
        }
        while let Some(timer) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            if let Some(end) = self.check_stall() {
                return Poll::Ready(end);
            }
        }
        debug_assert!(
            self.batch.is_empty(),
            "a request waits to be sent, and nothing wakes this task for it"
        );
        debug_assert!(
            self.in_flight.is_empty() || self.timer.is_some(),
            "nothing notices that the server does not reply"
        );
        Poll::Pending
    }
}
