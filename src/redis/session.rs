//! One connection, from its first vote to its end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::admission::{Ask, Stage, State, cleans_up};
use super::command::reply::{CommandOutcome, DONE, STORED, decode, decode_plain};
use super::command::transaction::{
    Deletion, PRELUDE, PRELUDE_ANSWERS, SupportedCommands, acquisition, decode_acquisition, decode_deletion,
    encode_acquisition, encode_deletion, release, with_mark,
};
use super::command::{
    ByHash, Form, encode, encode_draw, encode_once, encode_plain, encode_tell_next, plainly, write_once,
};
use super::connection::{Connection, ConnectionError, Message, READS, go_on_later};
use super::error::unexpected;
use super::handshake::{Connector, ReadyConnection};
use super::push::{Listeners, is_change_of};
use super::replicas::{ReplicaAck, copies_in, must_last};
use super::scripts::Library;
use super::sentinel::Watch;
use crate::node::{Identity, NodeError, ReceivedAt, Request, Response, Vote};
use crate::reason::Reason;
use crate::runtime::clock::{Clock, Sleep};
use quorlock_protocol::{Moment, turn_key};

/// The most requests taken in a row: replies are handled between two such batches.
const BATCH: usize = 128;
/// A node counts as stalled after this time without a reply, or after four of its round trips if that is
/// longer.
const STALL: Duration = Duration::from_secs(1);
/// The connection is given up after this time without a reply, for platforms and networks in which the
/// operating system does not notice.
const GIVE_UP: Duration = Duration::from_secs(30);
/// How long only scripts are used after the server has refused a transaction: it may be out of memory for a
/// while, or the user may lack a permission.
const SCRIPTS_FOR: Duration = Duration::from_secs(10);
/// How long the clean-up may continue after the node's last handle was dropped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The reply to a command within a transaction. None of our requests expects it: the replies within an
/// acquisition are skipped.
const QUEUED: &[u8] = b"+QUEUED\r\n";

/// How a connection ended.
pub(crate) enum End {
    /// It was lost, for this reason.
    Lost(Reason),
    /// The node was dropped, and everything was answered that could be.
    Closed,
}

/// Sends the requests in `queue` over the connection, and delivers the replies, until the connection ends.
/// Returns how it ended, and whether it has answered any request.
pub(crate) async fn carry(
    greeted: ReadyConnection,
    connector: &mut Connector,
    queue: &mut UnboundedReceiver<Ask>,
    state: &State,
    listeners: &Listeners,
    clock: &dyn Clock,
) -> (End, bool) {
    let mut link = Session {
        line: greeted.line,
        identity: greeted.identity,
        history: greeted.history,
        listeners: greeted.hints.then_some(listeners),
        tells_own: greeted.tells_own,
        connector,
        state,
        clock,
        gathering: false,
        in_flight: VecDeque::new(),
        supported: greeted.supported,
        transactions_from: Moment::ORIGIN,
        watch: greeted.watch,
        copies: greeted.copies,
        unconfirmed: Vec::new(),
        batch: Vec::new(),
        library: Library::default(),
        pace: Pace::Fluent,
        stall: STALL.max(greeted.round_trip.saturating_mul(4)),
        heard: clock.now(),
        has_answered: false,
        timer: None,
        farewell: None,
        reason: "its connection ended with its task".into(),
    };
    let end = poll_fn(|context| link.poll(context, queue)).await;
    link.reason = match &end {
        End::Lost(reason) => reason.clone(),
        End::Closed => "the node was dropped before it answered".into(),
    };
    (end, link.has_answered)
}

/// However the connection ends, the outcome of its requests is unknown, and stays so. Nothing is sent again
/// on a later connection: that may lead to another process, but the requests were for this one (rule I-14).
impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Recorded before the requests are answered, because the callers undo them then.
        self.state.connection_ended();
        let in_flight = mem::take(&mut self.in_flight).into_iter().filter_map(|sent| match sent.what {
            What::Ask { ask, .. } => Some(ask),
            What::Undo(undo) => Some(undo.ask),
            What::ReplicaAck => None,
        });
        let asked: Vec<_> = in_flight.collect();
        if asked.iter().any(|ask| ask.request.may_create()) {
            self.connector.leaves_behind(self.supported.client);
        }
        let unconfirmed = mem::take(&mut self.unconfirmed).into_iter().map(|(ask, _)| ask);
        for ask in asked.into_iter().chain(unconfirmed).chain(mem::take(&mut self.batch)) {
            ask.answer(Err(NodeError::Disconnected { reason: self.reason.clone() }));
        }
    }
}

/// A request that was sent and has a reply to come.
struct Sent {
    what: What,
    at: Moment,
    /// The number of replies to skip before the one that counts.
    prelude: u8,
}

impl Sent {
    /// Returns whether the push says that the place of a waiter has changed because this request enqueues it
    /// again. Redis 6.0 pushes that just before its reply; it is not the waiter's turn then.
    fn changes_own_place(&self, push: &[u8]) -> bool {
        let What::Ask { ask, .. } = &self.what else { return false };
        let Request::Enqueue { key, waiter, .. } = &*ask.request else { return false };
        is_change_of(push, turn_key(key, *waiter).as_bytes())
    }

    /// Returns the usual reply. If exactly that arrives, it is skipped without parsing.
    fn usual(&self) -> Option<&'static [u8]> {
        match &self.what {
            What::Ask { way: Way::Transaction, .. } if self.prelude == PRELUDE => Some(PRELUDE_ANSWERS),
            What::Ask { way: Way::Plain, .. } => Some(STORED),
            What::Ask { way: Way::Scripted(_), .. } => Some(DONE),
            What::Ask { .. } | What::Undo(_) | What::ReplicaAck => None,
        }
    }
}

enum What {
    Ask {
        ask: Ask,
        way: Way,
    },
    Undo(Box<Undo>),
    /// The number of replicas that have all votes sent before.
    ReplicaAck,
}

/// Releases what a failed request may have stored, before its error is reported.
struct Undo {
    ask: Ask,
    error: NodeError,
}

/// How a request was sent.
enum Way {
    /// As a script.
    Scripted(ByHash),
    /// As a plain command.
    Plain,
    /// As an acquisition without a script: see ADR 16.
    Transaction,
    /// As a release without a script, with the first of its two replies.
    Deletion(Option<Deletion>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Fluent,
    Stalled,
}

/// The connection and its requests in flight. Connection and queue are polled in one task, so that a request
/// needs neither a task of its own nor a wake-up between two.
struct Session<'a> {
    line: Connection,
    identity: Arc<Identity>,
    /// The history ID of a cluster member.
    history: Option<Arc<str>>,
    /// The listeners, if the server pushes changes.
    listeners: Option<&'a Listeners>,
    /// Whether the server also pushes changes by our own scripts.
    tells_own: bool,
    connector: &'a mut Connector,
    state: &'a State,
    clock: &'a dyn Clock,
    /// Whether other tasks were given their turn, to add requests to the next write.
    gathering: bool,
    /// The unanswered requests, oldest first: a connection answers in order.
    in_flight: VecDeque<Sent>,
    /// The commands that the server supports besides scripts.
    supported: SupportedCommands,
    /// When acquisitions may be sent as transactions again.
    transactions_from: Moment,
    /// The view of the Sentinels, if they reported the address.
    watch: Option<Watch>,
    /// The replicas that must confirm a vote.
    copies: Option<ReplicaAck>,
    /// Granted votes that are not confirmed by replicas yet.
    unconfirmed: Vec<(Ask, Response)>,
    /// Requests to be sent next.
    batch: Vec<Ask>,
    /// The scripts that the server knows.
    library: Library,
    pace: Pace,
    stall: Duration,
    /// When the last reply arrived.
    heard: Moment,
    has_answered: bool,
    /// Fires when it is time to check whether the node has stalled. Armed once a second at most, not for
    /// every request.
    timer: Option<Sleep>,
    farewell: Option<Sleep>,
    /// Why the connection has ended, once it has. Until then, it ends with its task.
    reason: Reason,
}

impl Session<'_> {
    fn poll(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) -> Poll<End> {
        // Replies first: their receivers may send further requests, which join the same write.
        if let Err(reason) = self.hear(context) {
            return Poll::Ready(End::Lost(reason.into()));
        }
        if let Some(watch) = &mut self.watch
            && let Poll::Ready(reason) = watch.poll_replaced(context)
        {
            return Poll::Ready(End::Lost(reason));
        }
        self.take(context, queue);
        if let Poll::Ready(Err(reason)) = self.line.poll_send(context) {
            return Poll::Ready(End::Lost(reason.into()));
        }
        if let Some(farewell) = &mut self.farewell
            && (self.in_flight.is_empty() || farewell.as_mut().poll(context).is_ready())
        {
            return Poll::Ready(End::Closed);
        }
        while let Some(timer) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            if let Some(end) = self.late() {
                return Poll::Ready(end);
            }
        }
        Poll::Pending
    }

    /// Reads and delivers replies and pushes.
    fn hear(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        for _ in 0..READS {
            self.hand_out()?;
            match self.line.poll_read(context) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Ok(()),
            }
        }
        go_on_later(context);
        Ok(())
    }

    /// Delivers what was read, in the order in which the server sent it: a waiter that received a change
    /// before the earlier reply would wait for the next change.
    fn hand_out(&mut self) -> Result<(), ConnectionError> {
        let mut heard = false;
        loop {
            let usual = self.in_flight.front().and_then(Sent::usual).filter(|usual| self.line.passes(usual));
            let message = usual.map_or_else(|| self.line.message(), |usual| Ok(Some(Message::Answer(usual))));
            let Some(message) = message? else { break };
            match message {
                Message::Push(push) => {
                    if let Some(listeners) = self.listeners
                        && !(self.tells_own
                            && self.in_flight.front().is_some_and(|sent| sent.changes_own_place(push)))
                    {
                        listeners.pushed(push, &self.identity);
                    }
                }
                Message::Answer(answer) => {
                    // Without a request, later replies would be taken for those of other requests.
                    let Some(sent) = self.in_flight.front_mut() else { return Err(ConnectionError::Stray) };
                    if !heard {
                        // The first of those that arrived together.
                        heard = true;
                        self.heard = self.clock.now();
                    }
                    if sent.prelude > 0 {
                        // The usual reply includes the whole prelude.
                        sent.prelude = if usual.is_some() { 0 } else { sent.prelude - 1 };
                        if let What::Ask { ask, way: Way::Deletion(said) } = &mut sent.what
                            && let Some(claim) = ask.request.claim()
                        {
                            *said = Some(decode_deletion(answer, claim, self.connector.user()));
                        }
                        continue;
                    }
                    if answer == QUEUED {
                        return Err(ConnectionError::Queued);
                    }
                    let Some(sent) = self.in_flight.pop_front() else { return Err(ConnectionError::Stray) };
                    let (ask, way) = match sent.what {
                        What::Ask { ask, way } => (ask, way),
                        What::Undo(undo) => {
                            undo.ask.answer(Err(undo.error));
                            continue;
                        }
                        What::ReplicaAck => {
                            let copies = copies_in(answer);
                            self.copied(copies);
                            continue;
                        }
                    };
                    let (reading, by_hash) = match way {
                        Way::Transaction => (Ok(decode_acquisition(answer, &ask.request)), ByHash::No),
                        Way::Deletion(said) => {
                            (with_mark(said.unwrap_or(Deletion::NotOurs), answer), ByHash::No)
                        }
                        Way::Scripted(by_hash) => {
                            (decode(answer, &ask.request, self.connector.user()), by_hash)
                        }
                        Way::Plain => (decode_plain(answer, &ask.request, self.connector.user()), ByHash::No),
                    };
                    if let Ok(CommandOutcome::Demoted) = reading {
                        ask.answer(Err(demoted()));
                        return Err(ConnectionError::Demoted);
                    }
                    self.answered(ask, by_hash, reading);
                }
            }
        }
        if heard {
            self.alive();
        }
        Ok(())
    }

    /// Takes requests from the queue, and writes them after those that have to be sent again.
    fn take(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) {
        if !self.batch.is_empty() {
            self.write();
        }
        if self.farewell.is_some() {
            return;
        }
        if !self.gathering && !queue.is_empty() {
            // Lets other ready tasks send their requests first, even to an idle server: one write for all is
            // cheaper for both sides than one for each, and a single caller is not delayed.
            self.gathering = true;
            context.waker().wake_by_ref();
            return;
        }
        while let Poll::Ready(count) = queue.poll_recv_many(context, &mut self.batch, BATCH) {
            self.gathering = false;
            if count == 0 {
                let until = self.clock.now() + SHUTDOWN_GRACE;
                self.farewell = Some(self.clock.sleep_until(until));
                return;
            }
            self.write();
        }
    }

    /// Writes the batch to the connection.
    fn write(&mut self) {
        let at = self.clock.now();
        let mut votes = false;
        let allowed = self.watch.as_ref().map_or(Ok(()), |watch| watch.allows(at));
        let wall = self.supported.clock.filter(|_| self.transactions_from <= at).map(|clock| clock.at(at));
        // Taken one by one: if one panics, the others are still answered.
        self.batch.reverse();
        while let Some(ask) = self.batch.pop() {
            let (prelude, way) = if ask.stage == Stage::Unnumbered {
                // Sent even if the attempt has ended: its token is stored, and the request that undoes it may
                // follow.
                let Request::Acquire { claim, fence_hint: Some(fence_hint), .. } = &*ask.request else {
                    continue;
                };
                let by_hash = encode_draw(claim, *fence_hint, &mut self.library, self.line.outbox());
                (0, Way::Scripted(by_hash))
            } else if ask.stage == Stage::Released {
                let by_hash = encode_tell_next(ask.request.key(), &mut self.library, self.line.outbox());
                (0, Way::Scripted(by_hash))
            } else if self.pace == Pace::Stalled && !cleans_up(&ask.request) {
                ask.answer(Err(stalled(self.stall)));
                continue;
            } else if let (Err(doubt), true) = (&allowed, must_last(&ask.request)) {
                ask.answer(Err(doubt.clone()));
                continue;
            } else if self.may_overtake(&ask) {
                let reason = "the connection that it was meant for has ended".into();
                ask.answer(Err(NodeError::Disconnected { reason }));
                continue;
            } else if ask.request.may_create() && !ask.reply.wanted() {
                ask.answer(Err(NodeError::NotAsked));
                continue;
            } else if let Some((claim, ttl, fence_hint)) = acquisition(&ask, wall) {
                write_once(&ask.request, Form::Transaction, self.line.outbox(), |buffer| {
                    encode_acquisition(claim, ttl, fence_hint, buffer);
                });
                (PRELUDE, Way::Transaction)
            } else if let (Some((claim, ttl)), Some(_)) = (plainly(&ask), self.supported.client) {
                write_once(&ask.request, Form::Plain, self.line.outbox(), |buffer| {
                    encode_plain(claim, ttl, buffer);
                });
                (0, Way::Plain)
            } else if let Some((claim, deleting)) = release(&ask.request, self.supported.deleting) {
                write_once(&ask.request, deleting.form(), self.line.outbox(), |buffer| {
                    encode_deletion(claim, deleting, buffer);
                });
                (1, Way::Deletion(None))
            } else {
                let history = self.history.as_deref();
                let by_hash = encode_once(&ask.request, history, &mut self.library, self.line.outbox());
                (0, Way::Scripted(by_hash))
            };
            votes |= must_last(&ask.request);
            self.in_flight.push_back(Sent { what: What::Ask { ask, way }, at, prelude });
        }
        if let (Some(copies), true) = (self.copies, votes) {
            // Once for all of them: nothing after it is answered before.
            copies.ask(self.line.outbox());
            self.in_flight.push_back(Sent { what: What::ReplicaAck, at, prelude: 0 });
        }
        if self.timer.is_none() && !self.in_flight.is_empty() {
            self.timer = Some(self.clock.sleep_until(at + self.stall));
        }
    }

    /// Returns whether the request is a release of a request that was sent over a connection that has ended:
    /// that may still arrive, if the server did not end the connection for us. A release leaves no tombstone;
    /// the clean-up after an unknown outcome does (rule I-5).
    fn may_overtake(&self, ask: &Ask) -> bool {
        let releases = matches!(*ask.request, Request::Release { .. } | Request::Offer { .. });
        releases && self.supported.client.is_none() && ask.place.outlived_a_connection()
    }

    /// Delivers the outcome of a request.
    fn answered(&mut self, mut ask: Ask, by_hash: ByHash, reading: Result<CommandOutcome, NodeError>) {
        let unnumbered = ask.stage == Stage::Unnumbered;
        match reading {
            // It was not stored, or has gone since.
            Ok(CommandOutcome::Voted { vote: Vote::Free, .. }) if unnumbered => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            // The command that has released it notifies no waiter.
            Ok(CommandOutcome::Voted { vote: Vote::Wanted, .. })
                if self.supported.deleting.is_some() && ask.stage == Stage::Fresh =>
            {
                ask.stage = Stage::Released;
                self.batch.push(ask);
            }
            reading if ask.stage == Stage::Released && !matches!(reading, Ok(CommandOutcome::Forgotten)) => {
                let told = matches!(reading, Ok(CommandOutcome::Voted { vote: Vote::Notified, .. }));
                let vote = if told { Vote::Notified } else { Vote::Wanted };
                ask.answer(Ok(Response::new(vote, Arc::clone(&self.identity))));
            }
            Ok(CommandOutcome::Voted { vote, fence }) => {
                let unconfirmed = self.copies.is_some() && vote == Vote::Granted && must_last(&ask.request);
                let answer = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(fence);
                if unconfirmed {
                    self.unconfirmed.push((ask, answer));
                } else {
                    ask.answer_with(answer, ReceivedAt { at: self.heard, clock: self.clock });
                }
            }
            // The script was not run, and no later request undoes it: an attempt that was given up since then
            // is not sent again.
            Ok(CommandOutcome::Forgotten) if by_hash == ByHash::Yes => {
                self.library.forget();
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Forgotten) if unnumbered => self.undo(ask, no_script()),
            Ok(CommandOutcome::Forgotten) => ask.answer(Err(no_script())),
            Ok(CommandOutcome::Refused) => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Unnumbered) => {
                ask.stage = Stage::Unnumbered;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Unclear) => {
                // The server may not support it, or the user may lack a permission: scripts report more about
                // the cause.
                self.transactions_from = self.clock.now() + SCRIPTS_FOR;
                ask.stage = Stage::Unnumbered;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Demoted) => ask.answer(Err(demoted())),
            Err(error) if unnumbered => self.undo(ask, error),
            Err(error) => ask.answer(Err(error)),
        }
    }

    /// Releases what the request may have stored, and then reports the error, which says that nothing was
    /// done.
    fn undo(&mut self, ask: Ask, error: NodeError) {
        let Some(claim) = ask.request.claim() else { return ask.answer(Err(error)) };
        let release = Request::Release { claim: Arc::new(claim.clone()) };
        // In full: this must not fail for a lost script, whatever else has failed.
        encode(&release, None, &mut Library::default(), self.line.outbox());
        self.in_flight.push_back(Sent {
            what: What::Undo(Box::new(Undo { ask, error })),
            at: self.clock.now(),
            prelude: 0,
        });
    }

    /// Records that `copies` replicas have the granted votes.
    fn copied(&mut self, copies: u64) {
        let needed = self.copies.map_or(0, |copies| u64::from(copies.needed));
        for (ask, answer) in self.unconfirmed.drain(..) {
            let enough = copies >= needed;
            ask.answer(if enough { Ok(answer) } else { Err(NodeError::Unconfirmed { copies, needed }) });
        }
    }

    /// Records that the server has replied.
    fn alive(&mut self) {
        let now = self.heard;
        self.has_answered = true;
        self.connector.answered(now);
        if self.pace == Pace::Stalled {
            self.pace = Pace::Fluent;
            self.timer = Some(self.clock.sleep_until(now + self.stall));
            self.state.open();
        }
    }

    /// Checks whether the node has stalled, or has been stalled for too long.
    fn late(&mut self) -> Option<End> {
        let Some(oldest) = self.in_flight.front() else {
            self.timer = None;
            return None;
        };
        // Requests are answered in order: time counts from the last reply, if that arrived after the oldest
        // request was sent.
        let since = oldest.at.max(self.heard);
        let now = self.clock.now();
        if now >= since + GIVE_UP {
            let waited = humantime::format_duration(GIVE_UP);
            return Some(End::Lost(format!("no answer for {waited}").into()));
        }
        if now >= since + self.stall {
            if self.pace == Pace::Fluent {
                self.pace = Pace::Stalled;
                self.state.stalled(stalled(self.stall));
            }
            self.timer = Some(self.clock.sleep_until(since + GIVE_UP));
        } else {
            self.timer = Some(self.clock.sleep_until(since + self.stall));
        }
        None
    }
}

/// The error of a server that does not know a script that was sent in full.
fn no_script() -> NodeError {
    unexpected("it does not know a script that was sent in full")
}

/// It was a master at the handshake. The next handshake shows whether the problem is permanent.
fn demoted() -> NodeError {
    NodeError::Unreachable { reason: "it is a replica now, or was one since the handshake".into() }
}

fn stalled(after: Duration) -> NodeError {
    let reason = format!("it has not answered for more than {}", humantime::format_duration(after));
    NodeError::Unreachable { reason: reason.into() }
}
