//! Sends requests over one connection, in order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesOrdered, StreamExt as _, TryStreamExt as _};
use quorlock::protocol::Moment;
use quorlock::{
    node::shedlock::Plan,
    node::{Hint, Identity, NodeError, NodeErrorKind, Responder, Response, SharedRequest},
    runtime::{Clock, Sleep},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_postgres::{AsyncMessage, Client, Error, Row};

use crate::RULES;
use crate::connect::Carrier;
use crate::error::{of_statement, reason};
use crate::job::{Barrier, Job, Unanswered};
use crate::listeners::Listeners;
use crate::max_ttl::{MaxTtlRecord, says_max_ttl};
use crate::request::{Statements, response, statement};
use crate::shedlock;

/// The number of requests between two sweeps for expired rows.
const SWEEP_EVERY: u32 = 128;
/// The number of keys that a sweep examines.
const SWEPT: i32 = 256;
/// The maximum size of the keys that wait for an answer before they are reported, in bytes.
const MOST_UNTOLD: usize = 8 << 20;
/// What such a key costs beyond its bytes.
const CHANGE: usize = 64;
/// After this many messages without a request, requests and timeouts have their turn: a server that never
/// pauses must not keep the node from them.
const MOST_IN_A_ROW: u32 = 32;

/// The server's timeouts for a request whose client waits this long: shorter, so that the error arrives that says why, and
/// a row locked by another transaction does not block all later requests.
pub(crate) fn timeouts(limit: Duration) -> String {
    let [lock, statement] = [limit / 2, limit / 4 * 3].map(timeout);
    format!("SET statement_timeout = {statement}; SET lock_timeout = {lock}")
}

/// Returns a timeout of the server in milliseconds: zero would be none, and it takes at most 2147483647.
pub(crate) fn timeout(time: Duration) -> u128 {
    time.as_millis().clamp(1, u128::from(i32::MAX.unsigned_abs()))
}

/// A connection that is ready for requests.
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) carrier: Carrier,
    pub(crate) statements: Statements,
    /// The statements for `ShedLock`'s table, if locks are its rows.
    pub(crate) shedlock: Option<shedlock::Prepared>,
    /// The `max_ttl` of other clients, and whether it may have changed since it was read.
    pub(crate) max_ttl: Option<(MaxTtlRecord, bool)>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) round_trip: Duration,
    /// Whether the backend of the previous connection may still execute what it was sent.
    pub(crate) follows_unended: bool,
}

/// Why a session ended.
pub(crate) enum End {
    /// The node was dropped.
    Unused,
    /// The connection is unusable.
    Lost(NodeError),
}

/// A request in flight.
struct Pending {
    /// `None` for requests of the node itself.
    asked: Option<(SharedRequest, Responder)>,
    /// Dropping it lets the other connections continue.
    #[expect(dead_code, reason = "it works by being dropped")]
    leave: Option<Vec<oneshot::Sender<()>>>,
    #[expect(dead_code, reason = "it works by being dropped")]
    unanswered: Option<Unanswered>,
}

type Answer = BoxFuture<'static, Result<Vec<Row>, Error>>;

/// The state of a running session.
struct Run<'a> {
    client: Arc<Client>,
    statements: Statements,
    shedlock: Option<shedlock::Prepared>,
    identity: Arc<Identity>,
    listeners: &'a Listeners,
    /// The node timeout, and how long the client of the last request waits, for which the server's timeouts are set.
    limit: Duration,
    awaited: Duration,
    answers: FuturesOrdered<Answer>,
    pending: VecDeque<Pending>,
    /// The number of requests sent.
    sent: u64,
    answered: u64,
    /// Whether a client's request was.
    has_answered: bool,
    /// Changed keys, each with the number of answers after which it is reported: a refused client gets the
    /// refusal before the hint.
    changes: VecDeque<(u64, Vec<u8>)>,
    /// The size of these keys, in bytes.
    untold: usize,
    /// The number of messages without a request that have arrived one after the other.
    in_a_row: u32,
    until_sweep: u32,
    max_ttl: Option<MaxTtlRecord>,
    /// Whether that has changed since it was last requested.
    max_ttl_changed: bool,
    /// The number of requests sent when it was.
    max_ttl_asked: u64,
}

/// The next event.
enum Event {
    Notified(Vec<u8>),
    MaxTtlChanged,
    Ended(Option<Error>),
    Answered(Result<Vec<Row>, Error>),
    Asked(Option<Job>),
    Through,
    Stalled,
}

/// What blocks the queue of jobs.
enum Held {
    /// A request that must wait until the other connections have answered all earlier requests.
    Spanning { before: BoxFuture<'static, ()>, job: Option<Box<Job>> },
    /// A request of several keys is in flight on another connection.
    Elsewhere { turnstile: Option<Barrier>, left: Option<oneshot::Receiver<()>> },
}

impl Session {
    /// Runs until the connection ends, is silent for twice the `limit`, or the node is dropped. Returns how it ended, and
    /// whether it has answered any request.
    pub(crate) async fn run(
        self,
        first: &mut Option<Job>,
        jobs: &mut UnboundedReceiver<Job>,
        clock: &Arc<dyn Clock>,
        listeners: &Listeners,
        limit: Duration,
    ) -> (End, bool) {
        let Session { client, mut carrier, statements, shedlock, max_ttl, identity, .. } = self;
        let (max_ttl, max_ttl_changed) =
            max_ttl.map_or((None, false), |(record, changed)| (Some(record), changed));
        let mut run = Run {
            client,
            statements,
            shedlock,
            identity,
            listeners,
            limit,
            awaited: limit,
            answers: FuturesOrdered::new(),
            pending: VecDeque::new(),
            sent: 0,
            answered: 0,
            has_answered: false,
            changes: VecDeque::new(),
            untold: 0,
            in_a_row: 0,
            until_sweep: SWEEP_EVERY,
            max_ttl,
            max_ttl_changed,
            max_ttl_asked: 0,
        };
        let patience = limit.saturating_mul(2);
        let mut progress: Moment = clock.now();
        let mut alarm: Option<Sleep> = None;
        let mut held: Option<Held> = first.take().and_then(|job| run.take(job));
        let end = loop {
            run.ask_for_max_ttl();
            if alarm.is_none() && !run.pending.is_empty() {
                alarm = Some(clock.sleep_until(progress + patience));
            }
            let event = std::future::poll_fn(|context| {
                next(context, &mut carrier, &mut run, jobs, &mut alarm, &mut held)
            })
            .await;
            match event {
                Event::Notified(key) => {
                    run.untold += key.len() + CHANGE;
                    run.changes.push_back((run.sent, key));
                    run.notify();
                    if run.untold > MOST_UNTOLD {
                        let reason = "it sent notifications without end, and no answer".into();
                        break End::Lost(NodeError::Disconnected { reason });
                    }
                }
                Event::MaxTtlChanged => {
                    if run.pending.is_empty() {
                        (progress, alarm) = (clock.now(), None);
                    }
                    run.max_ttl_changed = true;
                }
                Event::Answered(answer) => {
                    progress = clock.now();
                    alarm = None;
                    let over = run.answer(answer);
                    run.notify();
                    if let Some(error) = over {
                        break End::Lost(error);
                    }
                }
                Event::Asked(Some(job)) => {
                    if run.pending.is_empty() {
                        (progress, alarm) = (clock.now(), None);
                    }
                    held = run.take(job);
                }
                Event::Through => {
                    if let Some(Held::Spanning { job: Some(job), .. }) = held.take() {
                        if run.pending.is_empty() {
                            (progress, alarm) = (clock.now(), None);
                        }
                        run.send(*job);
                    }
                }
                Event::Asked(None) => break End::Unused,
                Event::Ended(error) => {
                    let words = "the server closed the connection";
                    let reason = error.map_or_else(|| words.into(), |error| reason(words, &error));
                    break End::Lost(NodeError::Disconnected { reason });
                }
                Event::Stalled => {
                    alarm = None;
                    let waited = clock.now().since(progress);
                    if waited >= patience {
                        break End::Lost(NodeError::Unanswered { waited });
                    }
                }
            }
        };
        let has_answered = run.finish(&end);
        if let Some(Held::Spanning { job: Some(job), .. }) = held
            && let Job::Ask { responder, .. } = *job
        {
            responder.send(Err(NodeError::Unreachable { reason: "the connection ended before that".into() }));
        }
        (end, has_answered)
    }
}

/// Returns the next event. Polls the connection first: it brings the answers and the notifications.
fn next(
    context: &mut Context<'_>,
    carrier: &mut Carrier,
    run: &mut Run<'_>,
    jobs: &mut UnboundedReceiver<Job>,
    alarm: &mut Option<Sleep>,
    held: &mut Option<Held>,
) -> Poll<Event> {
    let mut pauses = run.in_a_row >= MOST_IN_A_ROW;
    while !pauses {
        run.in_a_row += 1;
        match carrier.poll_message(context) {
            Poll::Ready(Some(Ok(message))) if says_max_ttl(&message) => {
                return Poll::Ready(Event::MaxTtlChanged);
            }
            Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                if let Some(key) = unhex(notification.payload()) {
                    return Poll::Ready(Event::Notified(key));
                }
            }
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Event::Ended(Some(error))),
            Poll::Ready(None) => return Poll::Ready(Event::Ended(None)),
            Poll::Pending => {
                run.in_a_row = 0;
                break;
            }
        }
        pauses = run.in_a_row >= MOST_IN_A_ROW;
    }
    if pauses {
        run.in_a_row = 0;
    }
    if !run.pending.is_empty()
        && let Poll::Ready(Some(answer)) = run.answers.poll_next_unpin(context)
    {
        return Poll::Ready(Event::Answered(answer));
    }
    match held {
        None => {
            if let Poll::Ready(job) = jobs.poll_recv(context) {
                return Poll::Ready(Event::Asked(job));
            }
        }
        Some(Held::Spanning { before, .. }) => {
            if before.poll_unpin(context).is_ready() {
                return Poll::Ready(Event::Through);
            }
        }
        Some(Held::Elsewhere { turnstile, left }) => {
            if run.pending.is_empty()
                && let Some(Barrier { arrived, left: until }) = turnstile.take()
            {
                let _ = arrived.send(());
                *left = Some(until);
            }
            if left.as_mut().is_some_and(|left| left.poll_unpin(context).is_ready()) {
                return Poll::Ready(Event::Through);
            }
        }
    }
    if let Some(sleep) = alarm
        && Pin::new(sleep).poll(context).is_ready()
    {
        return Poll::Ready(Event::Stalled);
    }
    if pauses {
        context.waker().wake_by_ref();
    }
    Poll::Pending
}

impl Run<'_> {
    /// Starts a job; returns what blocks it if it must wait.
    fn take(&mut self, mut job: Job) -> Option<Held> {
        match &mut job {
            Job::Ask { spanning: Some(spanning), .. } => {
                let arrivals = std::mem::take(&mut spanning.arrivals);
                let before = futures::future::join_all(arrivals).map(drop).boxed();
                Some(Held::Spanning { before, job: Some(Box::new(job)) })
            }
            Job::Ask { .. } | Job::Connect(_) => {
                self.send(job);
                None
            }
            Job::After(arrivals) => {
                let before = futures::future::join_all(std::mem::take(arrivals)).map(drop).boxed();
                Some(Held::Spanning { before, job: None })
            }
            Job::Pass(_) => {
                let Job::Pass(turnstile) = job else { return None };
                Some(Held::Elsewhere { turnstile: Some(turnstile), left: None })
            }
        }
    }

    /// Sends a request unless it has become pointless.
    fn send(&mut self, job: Job) {
        let (request, responder, spanning, order_lost, unanswered) = match job {
            Job::Ask { request, responder, spanning, order_lost, unanswered } => {
                (request, responder, spanning, order_lost, unanswered)
            }
            Job::Connect(ready) => {
                drop(ready.send(Ok(())));
                return;
            }
            Job::Pass(_) | Job::After(_) => return,
        };
        if request.may_create() && !responder.wanted() {
            responder.send(Err(NodeError::NotAsked));
            return;
        }
        if request.relies_on_order() && order_lost < self.listeners.order_lost() {
            let reason =
                "the previous connection ended, and may still execute what this would take back".into();
            responder.send(Err(NodeError::Disconnected { reason }));
            return;
        }
        if request.may_create() {
            self.set_timeouts(request.waits_for(self.limit));
        }
        if let Some(shedlock) = &self.shedlock {
            match shedlock.plan(&request) {
                Ok(Plan::Ask(ask)) => {
                    let asking = shedlock.ask(&self.client, ask);
                    let (asked, unanswered) = (Some((request, responder)), Some(unanswered));
                    self.push(asking, Pending { asked, leave: None, unanswered });
                }
                Ok(Plan::Cancelled(vote)) => {
                    responder.send(Ok(Response::new(vote, Arc::clone(&self.identity))));
                }
                Err(error) => responder.send(Err(error)),
            }
            return;
        }
        let (statement, parameters) = match statement(&request, &self.statements) {
            Ok(made) => made,
            Err(error) => {
                responder.send(Err(error));
                return;
            }
        };
        let (client, statement) = (Arc::clone(&self.client), statement.clone());
        let asking = async move { client.query_raw(&statement, parameters).await?.try_collect().await };
        let leave = spanning.map(|spanning| spanning.leave);
        self.push(
            asking.boxed(),
            Pending { asked: Some((request, responder)), leave, unanswered: Some(unanswered) },
        );
        self.until_sweep = self.until_sweep.saturating_sub(1);
        if self.until_sweep == 0 {
            self.until_sweep = SWEEP_EVERY;
            let client = Arc::clone(&self.client);
            let sweep = format!("SELECT quorlock.{RULES}sweep($1)");
            let sweeping = async move { client.query(&sweep, &[&SWEPT]).await };
            self.push(sweeping.boxed(), Pending { asked: None, leave: None, unanswered: None });
        }
    }

    /// Sets the server's timeouts for requests whose client waits this long.
    fn set_timeouts(&mut self, awaited: Duration) {
        if awaited == std::mem::replace(&mut self.awaited, awaited) {
            return;
        }
        let (client, set) = (Arc::clone(&self.client), timeouts(awaited));
        let setting = async move { client.batch_execute(&set).await.map(|()| Vec::new()) };
        self.push(setting.boxed(), Pending { asked: None, leave: None, unanswered: None });
    }

    /// Reads the `max_ttl` of other clients again, if it has changed and no such request is unanswered.
    fn ask_for_max_ttl(&mut self) {
        if !self.max_ttl_changed || self.answered < self.max_ttl_asked {
            return;
        }
        self.max_ttl_changed = false;
        let Some(record) = self.max_ttl.clone() else { return };
        let client = Arc::clone(&self.client);
        let asking = async move { record.compare(&client).await.map(|(rows, _)| rows) };
        self.push(asking.boxed(), Pending { asked: None, leave: None, unanswered: None });
        self.max_ttl_asked = self.sent;
    }

    /// Polls once, which sends the request, so that requests are executed in the order in which they were
    /// asked.
    fn push(&mut self, mut asking: Answer, pending: Pending) {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let polled = asking.poll_unpin(&mut context);
        self.answers.push_back(match polled {
            Poll::Ready(answer) => std::future::ready(answer).boxed(),
            Poll::Pending => asking,
        });
        self.pending.push_back(pending);
        self.sent += 1;
    }

    /// Delivers the answer to the oldest request. Returns why the connection must end, if it must: it was made for
    /// other data.
    fn answer(&mut self, answer: Result<Vec<Row>, Error>) -> Option<NodeError> {
        self.answered += 1;
        let Some(Pending { asked: Some((request, responder)), .. }) = self.pending.pop_front() else {
            return None;
        };
        let knows = |row: &Row| self.shedlock.is_some() || self.statements.know(row);
        if answer.as_ref().is_ok_and(|rows| rows.first().is_some_and(|row| !knows(row))) {
            let error = replaced();
            responder.send(Err(error.clone()));
            return Some(error);
        }
        let notification = answer.map_err(of_statement).and_then(|rows| {
            let row = rows
                .first()
                .ok_or_else(|| NodeError::UnexpectedReply { reason: "the response has no row".into() })?;
            response(&request, row, &self.identity)
        });
        self.has_answered |= notification.is_ok();
        // Only a new connection creates tables that are gone.
        let gone = notification.as_ref().is_err_and(|error| error.kind() == NodeErrorKind::Misconfigured);
        responder.send(notification);
        gone.then(replaced)
    }

    /// Reports changes, as far as earlier refusals have been answered.
    fn notify(&mut self) {
        while let Some((after, key)) = self.changes.pop_front() {
            if after > self.answered {
                self.changes.push_front((after, key));
                return;
            }
            self.untold = self.untold.saturating_sub(key.len() + CHANGE);
            self.listeners.say(Hint::Invalidated(&key));
        }
    }

    /// Delivers the answers that have arrived, and reports the other requests as unanswered. Returns whether any was answered.
    fn finish(mut self, end: &End) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(answer)) = self.answers.poll_next_unpin(&mut context) {
            let closed = answer.as_ref().is_err_and(|error| error.as_db_error().is_none());
            if closed {
                break;
            }
            drop(self.answer(answer));
        }
        let error = match end {
            End::Lost(error) => error.clone(),
            End::Unused => NodeError::Disconnected { reason: "the node was dropped".into() },
        };
        for pending in self.pending.drain(..) {
            if let Some((_, responder)) = pending.asked {
                responder.send(Err(error.clone()));
            }
        }
        self.has_answered
    }
}

/// The error of a connection whose data were replaced: its requests may have changed them.
fn replaced() -> NodeError {
    let words = "its lock tables were dropped, restored or moved while it was in use: the next connection looks at them anew";
    NodeError::Disconnected { reason: words.into() }
}

/// Decodes hexadecimal digits.
fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timeout_is_one_that_the_server_refuses() {
        assert_eq!(timeouts(Duration::from_secs(1)), "SET statement_timeout = 750; SET lock_timeout = 500");
        assert_eq!(timeouts(Duration::from_nanos(1)), "SET statement_timeout = 1; SET lock_timeout = 1");
        let longest = "SET statement_timeout = 2147483647; SET lock_timeout = 2147483647";
        assert_eq!(timeouts(Duration::MAX), longest);
        assert_eq!(timeouts(Duration::from_secs(60 * 24 * 3600)), longest);
    }

    #[test]
    fn a_key_is_read_from_its_digits_and_from_nothing_else() {
        assert_eq!(unhex("6100ff"), Some(b"a\0\xff".to_vec()));
        assert_eq!(unhex(""), Some(Vec::new()));
        for wrong in ["6", "6x", "é", "+1"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
