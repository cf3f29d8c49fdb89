//! One connection, from its first vote to its end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use redis::{RedisError, Value};
use tokio::sync::mpsc::UnboundedReceiver;

use super::failure::{CLOSED, ended, unexpected};
use super::handshake::{Connector, Line};
use super::hints::{Listeners, Oldest};
use super::scripts::Library;
use super::state::{Ask, State, cleans_up};
use super::wire::{Encoded, Reading, decode, encode, who_holds};
use crate::clock::{Clock, Sleep};
use crate::node::{Answer, NodeError};
use crate::protocol::Moment;

/// The most questions sent as one write. It bounds how long the first answer of a write waits for
/// the last: some 0.6 ms at 5 µs a vote.
const BATCH: usize = 128;
/// After how long without an answer a node counts as stalled.
const STALL: Duration = Duration::from_secs(1);
/// After how long without an answer the connection is given up, for platforms and networks in
/// which the operating system does not notice.
const GIVE_UP: Duration = Duration::from_secs(30);
/// How long the clean-up may go on when the node's last handle is gone.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a connection ended.
pub(crate) enum End {
    /// It broke, for this reason.
    Lost(Arc<str>),
    /// Nobody can ask any more, and all has been answered that could be.
    Closed,
}

/// Sends what is in `queue` over `line`, and hands out the answers, until the connection ends.
pub(crate) async fn carry(
    line: Line,
    connector: &mut Connector,
    queue: &mut UnboundedReceiver<Ask>,
    state: &State,
    listeners: &Listeners,
    clock: &dyn Clock,
) -> End {
    let mut traffic = Link {
        line,
        broken: false,
        state,
        listeners,
        clock,
        sent: 0,
        fresh: None,
        gathering: false,
        flight: VecDeque::new(),
        batch: Vec::new(),
        library: Library::default(),
        pace: Pace::Fluent,
        heard: clock.now(),
        timer: None,
        farewell: None,
    };
    let end = loop {
        match poll_fn(|context| traffic.poll(context, queue)).await {
            Event::Asked => traffic.send(),
            Event::Answered(sent, Ok(values)) => {
                let now = clock.now();
                connector.answered(now);
                traffic.answered(sent, values, connector.user(), now);
            }
            Event::Answered(sent, Err(error)) => {
                let reason = Arc::from(ended(&error));
                sent.lost(&reason);
                break End::Lost(reason);
            }
            Event::Broken => break End::Lost(CLOSED.into()),
            Event::Late => {
                if let Some(end) = traffic.late() {
                    break end;
                }
            }
            Event::Forsaken => {
                let until = clock.now() + FAREWELL;
                traffic.farewell = Some(clock.sleep_until(until));
            }
            Event::Finished => break End::Closed,
        }
    };
    let reason: Arc<str> = match &end {
        End::Lost(reason) => Arc::clone(reason),
        End::Closed => "the node was dropped before it answered".into(),
    };
    // The rest is unknown, and stays so. Nothing is sent again on a later connection: there may be
    // another process at its other end, and the questions were put to this one (rule I-14).
    for sent in traffic.flight {
        sent.lost(&reason);
    }
    end
}

enum Event {
    /// There are questions in the batch.
    Asked,
    /// The oldest questions in flight have their answers, or the connection broke.
    Answered(Sent, Result<Vec<Value>, RedisError>),
    /// The connection ended.
    Broken,
    /// The timer fired.
    Late,
    /// The last handle of the node was dropped.
    Forsaken,
    /// Nothing is left to do for a node without handles.
    Finished,
}

/// Questions that were sent in one write.
struct Sent {
    /// Counts the batches of this connection.
    batch: u64,
    asks: Vec<Asked>,
    at: Moment,
    answers: BoxFuture<'static, Result<Vec<Value>, RedisError>>,
}

/// A question that was sent.
struct Asked {
    ask: Ask,
    /// Whether the server had to know the script already.
    by_hash: bool,
}

impl Sent {
    fn lost(self, reason: &Arc<str>) {
        for Asked { ask, .. } in self.asks {
            ask.answer(Err(NodeError::Disconnected { reason: Arc::clone(reason) }));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Fluent,
    Stalled,
}

/// The connection and what is on its way. Driver, queue and answers are polled in one task, so
/// that a request needs no task of its own and no wake-up between two.
struct Link<'a> {
    line: Line,
    /// The driver has ended and must not be polled again.
    broken: bool,
    state: &'a State,
    listeners: &'a Listeners,
    clock: &'a dyn Clock,
    /// How many batches were sent.
    sent: u64,
    /// A request that has not entered the connection yet.
    fresh: Option<Sent>,
    /// The others have been let go first, to add to the next write what they have to ask.
    gathering: bool,
    /// Requests that wait for their answers, oldest first. A connection answers in order, so only
    /// the first can be ready.
    flight: VecDeque<Sent>,
    batch: Vec<Ask>,
    /// What the server has run.
    library: Library,
    pace: Pace,
    /// When the last answer came.
    heard: Moment,
    /// Fires when it is time to look whether the node has stalled. Armed once a second at most,
    /// not for every request.
    timer: Option<Sleep>,
    farewell: Option<Sleep>,
}

impl Link<'_> {
    fn poll(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) -> Poll<Event> {
        // First it enters the connection, then the connection writes it: in the same poll. There
        // is always room for it (see the handshake), so one poll is enough, and as requests enter
        // one by one in the order asked, that is the order in which the server sees them.
        if let Some(mut sent) = self.fresh.take() {
            match sent.answers.as_mut().poll(context) {
                Poll::Ready(answers) => return Poll::Ready(Event::Answered(sent, answers)),
                Poll::Pending => self.flight.push_back(sent),
            }
        }
        if !self.broken {
            self.broken = self.line.driver.as_mut().poll(context).is_ready();
        }
        // What arrived before the end is still handed out.
        if let Some(sent) = self.flight.front_mut()
            && let Poll::Ready(answers) = sent.answers.as_mut().poll(context)
            && let Some(sent) = self.flight.pop_front()
        {
            return Poll::Ready(Event::Answered(sent, answers));
        }
        // All that was ready has been handed out. As long as something is, no question is taken from
        // the queue, so this is reached before long.
        if let Some(pushes) = &mut self.line.pushes {
            let oldest = self.flight.front();
            let oldest = oldest.map(|sent| Oldest { batch: sent.batch, questions: sent.asks.len() });
            pushes.tell(oldest, self.listeners);
        }
        if self.broken {
            return Poll::Ready(Event::Broken);
        }
        if let Some(farewell) = &mut self.farewell {
            if self.flight.is_empty() || farewell.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Finished);
            }
        } else if !self.flight.is_empty() && !self.gathering && !queue.is_empty() {
            // While the server has something to do, whoever is ready to run may ask first: one write
            // for all of them costs both sides less than one for each. An idle server is asked at once.
            self.gathering = true;
            context.waker().wake_by_ref();
        } else if let Poll::Ready(count) = queue.poll_recv_many(context, &mut self.batch, BATCH) {
            self.gathering = false;
            return Poll::Ready(if count == 0 { Event::Forsaken } else { Event::Asked });
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(context).map(|()| Event::Late),
            None => Poll::Pending,
        }
    }

    /// Sends the batch as one write.
    fn send(&mut self) {
        let mut pipeline = redis::Pipeline::with_capacity(self.batch.len());
        let mut asks = Vec::with_capacity(self.batch.len());
        for ask in self.batch.drain(..) {
            if self.pace == Pace::Stalled && !cleans_up(&ask.question) {
                ask.answer(Err(stalled()));
            } else if ask.question.may_create() && !ask.reply.wanted() {
                ask.answer(Err(NodeError::NotAsked));
            } else {
                let Encoded { command, by_hash } = encode(&ask.question, &mut self.library);
                pipeline.add_command(command);
                asks.push(Asked { ask, by_hash });
            }
        }
        if asks.is_empty() {
            return;
        }
        let at = self.clock.now();
        let mut connection = self.line.connection.clone();
        let count = asks.len();
        let request = async move { connection.send_packed_commands(&pipeline, 0, count).await };
        // Without the runtime's budget, which could make a request wait at the entrance while a
        // later one goes in. The driver and the queue keep to the budget, so the task still yields.
        let answers = Box::pin(tokio::task::coop::unconstrained(request));
        self.sent += 1;
        self.fresh = Some(Sent { batch: self.sent, asks, at, answers });
        if self.timer.is_none() {
            self.timer = Some(self.clock.sleep_until(at + STALL));
        }
    }

    /// Hands out the answers to the questions in `sent`.
    fn answered(&mut self, sent: Sent, values: Vec<Value>, user: &str, now: Moment) {
        self.heard = now;
        if self.pace == Pace::Stalled {
            self.pace = Pace::Fluent;
            self.timer = Some(self.clock.sleep_until(now + STALL));
            self.state.open();
        }
        // There is one value for each question. Should the client crate ever have it otherwise,
        // the questions left over are dropped and so reported as unanswered.
        for (Asked { mut ask, by_hash }, value) in sent.asks.into_iter().zip(values) {
            match decode(value, &ask.question, user) {
                Ok(Reading::Said { vote, fence }) => {
                    let answer = Answer::new(vote, Arc::clone(&self.line.instance)).with_fence(fence);
                    ask.answer(Ok(answer));
                }
                // Nothing was done, and nothing that was asked later undoes it: an attempt that has
                // been given up since does not want it any more, and is not sent again.
                Ok(Reading::Forgotten) if by_hash => {
                    self.library.forget();
                    self.batch.push(ask);
                }
                Ok(Reading::Forgotten) => ask.answer(Err(no_script())),
                Ok(Reading::Refused) => {
                    ask.question = who_holds(&ask.question);
                    self.batch.push(ask);
                }
                Err(error) => ask.answer(Err(error)),
            }
        }
        if !self.batch.is_empty() {
            self.send();
        }
    }

    /// Looks whether the node has stalled, or has been stalled for too long.
    fn late(&mut self) -> Option<End> {
        let Some(oldest) = self.flight.front() else {
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
        if now >= since + STALL {
            if self.pace == Pace::Fluent {
                self.pace = Pace::Stalled;
                self.state.stalled(stalled());
            }
            self.timer = Some(self.clock.sleep_until(since + GIVE_UP));
        } else {
            self.timer = Some(self.clock.sleep_until(since + STALL));
        }
        None
    }
}

/// From a server that was sent the whole script.
fn no_script() -> NodeError {
    unexpected("it does not know a script that it was sent", "")
}

fn stalled() -> NodeError {
    let reason = format!("it has not answered for more than {}", humantime::format_duration(STALL));
    NodeError::Unreachable { reason: reason.into() }
}
