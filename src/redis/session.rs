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

/// The most requests taken at once: between two such handfuls the answers have their turn.
const BATCH: usize = 128;
/// After how long without an answer a node counts as stalled, or after four of its round trips.
const STALL: Duration = Duration::from_secs(1);
/// After how long without an answer the connection is given up, for platforms and networks in
/// which the operating system does not notice.
const GIVE_UP: Duration = Duration::from_secs(30);
/// For how long only scripts are used after the server has refused to do without: as long as it is out of
/// memory, or for ever, if the user lacks a right.
const SCRIPTS_FOR: Duration = Duration::from_secs(10);
/// How long the clean-up may go on when the node's last handle is gone.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// What a server says that has put a request off until the end of a transaction. None of ours is answered so:
/// those of an acquisition are not looked at.
const QUEUED: &[u8] = b"+QUEUED\r\n";

/// How a connection ended.
pub(crate) enum End {
    /// It broke, for this reason.
    Lost(Reason),
    /// Nobody can ask any more, and all has been answered that could be.
    Closed,
}

/// Sends what is in `queue` over the line, and hands out the answers, until the connection ends. Says how it did, and
/// whether it has answered any request.
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
        reason: "its connection ended with the task that had it".into(),
    };
    let end = poll_fn(|context| link.poll(context, queue)).await;
    link.reason = match &end {
        End::Lost(reason) => reason.clone(),
        End::Closed => "the node was dropped before it answered".into(),
    };
    (end, link.has_answered)
}

/// However the connection ends, the rest is unknown, and stays so. Nothing is sent again on a later one:
/// there may be another process at its other end, and the requests were put to this one (rule I-14).
impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Before its requests are answered, which are taken back then.
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

/// Something that was sent, and has an answer to come.
struct Sent {
    what: What,
    at: Moment,
    /// So many answers come first that say nothing.
    prelude: u8,
}

impl Sent {
    /// Whether a push tells that the place of a waiter has changed because this asks for it again. Redis 6.0 tells that,
    /// just before it answers; it is not the waiter's turn then.
    fn changes_own_place(&self, push: &[u8]) -> bool {
        let What::Ask { ask, .. } = &self.what else { return false };
        let Request::Enqueue { key, waiter, .. } = &*ask.request else { return false };
        is_change_of(push, turn_key(key, *waiter).as_bytes())
    }

    /// What nearly always answers it. If that comes, to the last byte, it is passed over at once.
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
    /// How many replicas have all votes that were sent before.
    ReplicaAck,
}

/// What the request may have stored is taken back, before it is told of the error.
struct Undo {
    ask: Ask,
    error: NodeError,
}

/// How a request was sent.
enum Way {
    /// By a script.
    Scripted(ByHash),
    /// By a plain command.
    Plain,
    /// An acquisition without a script: see ADR 16.
    Transaction,
    /// A release without one, and what its first answer has said.
    Deletion(Option<Deletion>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Fluent,
    Stalled,
}

/// The connection and what is on its way. Line and queue are polled in one task, so that a request
/// needs no task of its own and no wake-up between two.
struct Session<'a> {
    line: Connection,
    identity: Arc<Identity>,
    /// The history of a member of a cluster.
    history: Option<Arc<str>>,
    /// Who is told what the server pushes, if it agreed to.
    listeners: Option<&'a Listeners>,
    /// It also tells what our own scripts change.
    tells_own: bool,
    connector: &'a mut Connector,
    state: &'a State,
    clock: &'a dyn Clock,
    /// The others have been let go first, to add to the next write what they have to ask.
    gathering: bool,
    /// Requests that wait for their answers, oldest first: a connection answers in order.
    in_flight: VecDeque<Sent>,
    /// What the server can do without scripts.
    supported: SupportedCommands,
    /// From when on it is asked to acquire without one.
    transactions_from: Moment,
    /// What Sentinels say of it, if they have named it.
    watch: Option<Watch>,
    /// What replicas must have before it counts, if anything.
    copies: Option<ReplicaAck>,
    /// Votes that were granted and that no replica has confirmed yet.
    unconfirmed: Vec<(Ask, Response)>,
    /// Requests that are about to be sent.
    batch: Vec<Ask>,
    /// What the server has run.
    library: Library,
    pace: Pace,
    stall: Duration,
    /// When the last answer came.
    heard: Moment,
    has_answered: bool,
    /// Fires when it is time to look whether the node has stalled. Armed once a second at most,
    /// not for every request.
    timer: Option<Sleep>,
    farewell: Option<Sleep>,
    /// Why it has ended, once it has. Until then it may be dropped with its task.
    reason: Reason,
}

impl Session<'_> {
    fn poll(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) -> Poll<End> {
        // First the answers: they give their askers something to do, which may be another request
        // for the same write.
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

    /// Hands out what has come, and what comes with it.
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

    /// Hands out what was read, in the order in which the server said it: whoever hears of a change
    /// before the answer that came before it would wait for the next.
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
                    // The next answers would be taken for those of other requests.
                    let Some(sent) = self.in_flight.front_mut() else { return Err(ConnectionError::Stray) };
                    if !heard {
                        // The first of those that have come together.
                        heard = true;
                        self.heard = self.clock.now();
                    }
                    if sent.prelude > 0 {
                        // What is usual here is all of the prelude.
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

    /// Takes the requests that are asked, and writes them, behind those that have to be asked again.
    fn take(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) {
        if !self.batch.is_empty() {
            self.write();
        }
        if self.farewell.is_some() {
            return;
        }
        if !self.gathering && !queue.is_empty() {
            // Whoever is ready to run may ask first, also of an idle server: one write for all of them
            // costs both sides less than one for each, and whoever is alone waits for nobody.
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

    /// Writes the batch to the line.
    fn write(&mut self) {
        let at = self.clock.now();
        let mut votes = false;
        let allowed = self.watch.as_ref().map_or(Ok(()), |watch| watch.allows(at));
        let wall = self.supported.clock.filter(|_| self.transactions_from <= at).map(|clock| clock.at(at));
        // Taken one by one: should one of them panic, the others are answered all the same.
        self.batch.reverse();
        while let Some(ask) = self.batch.pop() {
            let (prelude, way) = if ask.stage == Stage::Unnumbered {
                // Whatever has become of the attempt: its token stands there, and what takes it back may
                // be behind this.
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
                let reason = "the connection that it was asked for has ended".into();
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
            // Once for all of them: nothing behind it is answered before.
            copies.ask(self.line.outbox());
            self.in_flight.push_back(Sent { what: What::ReplicaAck, at, prelude: 0 });
        }
        if self.timer.is_none() && !self.in_flight.is_empty() {
            self.timer = Some(self.clock.sleep_until(at + self.stall));
        }
    }

    /// Whether it is a release that was to follow, over a connection that has ended, what it takes back: that
    /// may still come, where the server was not told to end that connection. It leaves no tombstone; the
    /// clean-up does, which follows where the outcome is unknown (rule I-5).
    fn may_overtake(&self, ask: &Ask) -> bool {
        let releases = matches!(*ask.request, Request::Release { .. } | Request::Offer { .. });
        releases && self.supported.client.is_none() && ask.place.outlived_a_connection()
    }

    /// Hands out what the server has said to a request.
    fn answered(&mut self, mut ask: Ask, by_hash: ByHash, reading: Result<CommandOutcome, NodeError>) {
        let unnumbered = ask.stage == Stage::Unnumbered;
        match reading {
            // It was not stored, or has gone since.
            Ok(CommandOutcome::Voted { vote: Vote::Free, .. }) if unnumbered => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            // The command that has released it tells nobody.
            Ok(CommandOutcome::Voted { vote: Vote::ReleasedContended, .. })
                if self.supported.deleting.is_some() && ask.stage == Stage::Fresh =>
            {
                ask.stage = Stage::Released;
                self.batch.push(ask);
            }
            reading if ask.stage == Stage::Released && !matches!(reading, Ok(CommandOutcome::Forgotten)) => {
                let told = matches!(reading, Ok(CommandOutcome::Voted { vote: Vote::Notified, .. }));
                let vote = if told { Vote::Notified } else { Vote::ReleasedContended };
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
            // Nothing was done, and nothing that was asked later undoes it: an attempt that has
            // been given up since does not want it any more, and is not sent again.
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
                // Perhaps it cannot do it, or may not: scripts tell more of what is wrong.
                self.transactions_from = self.clock.now() + SCRIPTS_FOR;
                ask.stage = Stage::Unnumbered;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Demoted) => ask.answer(Err(demoted())),
            Err(error) if unnumbered => self.undo(ask, error),
            Err(error) => ask.answer(Err(error)),
        }
    }

    /// Takes back what the request may have stored, and then tells of the error: which says that
    /// nothing was done.
    fn undo(&mut self, ask: Ask, error: NodeError) {
        let Some(claim) = ask.request.claim() else { return ask.answer(Err(error)) };
        let release = Request::Release { claim: Arc::new(claim.clone()) };
        // In full: whatever has failed, this is not to fail for a script that was forgotten.
        encode(&release, None, &mut Library::default(), self.line.outbox());
        self.in_flight.push_back(Sent {
            what: What::Undo(Box::new(Undo { ask, error })),
            at: self.clock.now(),
            prelude: 0,
        });
    }

    /// So many replicas have what was granted.
    fn copied(&mut self, copies: u64) {
        let needed = self.copies.map_or(0, |copies| u64::from(copies.needed));
        for (ask, answer) in self.unconfirmed.drain(..) {
            let enough = copies >= needed;
            ask.answer(if enough { Ok(answer) } else { Err(NodeError::Unconfirmed { copies, needed }) });
        }
    }

    /// The server has answered.
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

    /// Looks whether the node has stalled, or has been stalled for too long.
    fn late(&mut self) -> Option<End> {
        let Some(oldest) = self.in_flight.front() else {
            self.timer = None;
            return None;
        };
        // Requests are answered one after the other: time counts from the last answer, if that
        // came after the oldest was sent.
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

/// From a server that was sent the whole script.
fn no_script() -> NodeError {
    unexpected("it does not know a script that it was sent")
}

/// It was a master when it introduced itself. Whether it can be mended, the next introduction tells.
fn demoted() -> NodeError {
    NodeError::Unreachable { reason: "it has become a replica, or was one meanwhile".into() }
}

fn stalled(after: Duration) -> NodeError {
    let reason = format!("it has not answered for more than {}", humantime::format_duration(after));
    NodeError::Unreachable { reason: reason.into() }
}
