//! One independent lock server, as a few questions.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::examination::Facts;
use crate::protocol::{Claim, Draw, FencingToken, Moment, Quarantine, Ticket, Token};

mod asked;
pub(crate) mod redis;

pub use asked::Asked;

/// One independent lock server. It votes.
///
/// Nothing above this trait knows Redis. A node answers each [`Question`] once, through its
/// [`Reply`]; an error means *unknown*, never *no*.
///
/// Implementations keep two promises. Questions are carried out in the order in which they were
/// asked, as long as the node was not restarted: a release that was asked after an acquisition
/// never overtakes it. And [`ask`](Node::ask) does not block: what takes time happens elsewhere.
///
/// # Examples
///
/// A node of one's own is one method and a name:
///
/// ```
/// use quorlock::{Asked, Node, NodeError, Reply};
///
/// #[derive(Debug)]
/// struct Unplugged;
///
/// impl Node for Unplugged {
///     fn name(&self) -> &str {
///         "unplugged"
///     }
///
///     fn ask(&self, _question: Asked, reply: Reply) {
///         reply.send(Err(NodeError::Unreachable { reason: "it is not plugged in".into() }));
///     }
/// }
/// ```
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// What people call it: an address without its password.
    fn name(&self) -> &str;

    /// Asks one question. Must not block.
    fn ask(&self, question: Asked, reply: Reply);

    /// Ends when the first contact with the server has been made, or has failed. Until then
    /// questions may have to wait for the connection. Ready at once unless overridden.
    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether it understands a claim of [several](Claim::and) keys: does what is asked at all of them
    /// or at none. `false` unless overridden: a node that looked at the first key only would let others
    /// have the rest, so such a claim is not made where a node does not say that it can.
    fn takes_several(&self) -> bool {
        false
    }

    /// From now on tells `listener` what happens to keys that this node has refused, so that
    /// whoever waits for them need not ask again and again. A node that cannot know says nothing,
    /// and its waiters ask again after pauses.
    fn listen(&self, listener: Arc<dyn Listener>) {
        drop(listener);
    }

    /// What is known of the server from the last time it introduced itself, without asking it.
    fn facts(&self) -> Option<Arc<Facts>> {
        None
    }

    /// Asks the server what a check-up has to know, over a connection of its own. What is probed is
    /// probed on `key`, which is free, and on its siblings, and nothing is left there. Ends in
    /// seconds, whatever the server does. `None`, unless overridden: such a node is not examined.
    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        drop(key);
        Box::pin(std::future::ready(None))
    }

    /// Tells `observer` how this node stands to its server, and from now on whenever that changes.
    /// A node that does not know says nothing, and its [health](crate::Health) stays unknown.
    fn observe(&self, observer: Arc<dyn Watcher>) {
        drop(observer);
    }
}

/// Sees how a [`Node`] stands to its server.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Called from the node's own task: must not block, nor call that node.
    fn see(&self, contact: Contact);
}

/// How a [`Node`] stands to its server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contact {
    /// This process answers.
    Connected(Arc<Instance>),
    /// Some of the servers that it is made of answer, and others do not: a cluster that some of its
    /// masters are lost of.
    Partial(NodeError),
    /// There is a connection, and it has not been answered over for a while.
    Stalled(NodeError),
    /// There is no connection, and another one is being tried.
    Lost(NodeError),
    /// There is none, and nobody tries: the node was dropped, or the runtime has ended.
    Ended(NodeError),
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contact::Connected(instance) => write!(f, "connected to {}", instance.id),
            Contact::Partial(reason)
            | Contact::Stalled(reason)
            | Contact::Lost(reason)
            | Contact::Ended(reason) => reason.fmt(f),
        }
    }
}

/// Hears from a [`Node`] what may be worth asking again.
///
/// Hints are no answers: they may come late, twice, for no reason, or not at all. Whoever acts on
/// one asks the node, and whoever waits for one also waits for a time.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Called from the node's own task: must not block, nor ask that node.
    fn hear(&self, hint: Hint<'_>);
}

/// What a [`Listener`] hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: something is known of one key, of all, or of none")]
pub enum Hint<'a> {
    /// From now on changes are told: of every key for which the node answers [`Vote::Held`], the
    /// next change after that answer, be it a release, an expiry or anything else. The same of a key
    /// of which an [inspection](Question::Inspect) has found that it is free.
    Hearing,
    /// This key has changed or ended.
    Changed(&'a [u8]),
    /// Any key may have changed without a word, such as when all keys were deleted.
    AllChanged,
    /// From now on nothing is told, and what was asked for before is forgotten: the connection
    /// ended.
    Deaf,
}

/// What a node is asked.
///
/// A claim that [shares](Claim::shared) the lock is asked for with the same questions. While anybody
/// holds such a claim, the key holds [`SHARED_MARKER`](crate::protocol::SHARED_MARKER), and ends no
/// sooner than the last of them; each has an end of its own. To *acquire* it is refused where the key
/// holds a token, and to those who are new where a writer [intends](Question::Intend) to have the
/// lock. To *renew* it makes a reader of whoever holds the key alone, as a downgrade does. To
/// *release* or *cancel* it takes out this claim, and the last one the key.
///
/// A claim of [several](Claim::and) keys is asked for with the same questions, too, by *acquire*,
/// *write back*, *renew*, *release* and *cancel*. What a question wants of the key it wants of all of
/// them, and what hinders it at one hinders it at all: then nothing is changed at any, and the answer
/// names the first key that stands in the way. Only a release or a cancellation does at each key what
/// it can.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Question {
    /// Store the claim's token under its key for `ttl`, if the key is free:
    /// `SET key token NX PX ttl`. Granted too if the token stands there already.
    Acquire {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The number to draw in the same step, if granted. `None` where fencing is off: then it is
        /// that plain command, which refuses its own token.
        draw: Option<Draw>,
    },
    /// As `Acquire`, but only if nobody with an earlier ticket waits at this node; else join those
    /// who wait, or say that one is still there, for the time of `patience`. Best effort: nodes
    /// need not know the same waiters.
    AcquireInTurn {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The place in the line.
        ticket: Ticket,
        /// Who has not asked again for this long is no longer waited for.
        patience: Duration,
        /// The number to draw in the same step, if granted; `None` where fencing is off.
        draw: Option<Draw>,
    },
    /// Raise the lock's counter to `fencing_token`, if the key holds the claim's token and the counter is
    /// not [ahead](FencingToken::may_follow) already.
    WriteBack {
        /// Key and token.
        claim: Arc<Claim>,
        /// The attempt's fencing token.
        fencing_token: FencingToken,
    },
    /// For the time of `patience`, refuse whoever wants to share the key and does not do so yet: a
    /// writer waits for those who do.
    Intend {
        /// The key.
        key: Arc<str>,
        /// Who waits.
        ticket: Ticket,
        /// Who has not asked again for this long is no longer waited for.
        patience: Duration,
    },
    /// Take an [`Intend`](Question::Intend) back.
    Desist {
        /// The key.
        key: Arc<str>,
        /// Who waits no longer.
        ticket: Ticket,
    },
    /// Leave the line of those who wait for the key.
    LeaveLine {
        /// The key.
        key: Arc<str>,
        /// The place that is given up.
        ticket: Ticket,
    },
    /// Store the token of `to` for `ttl`, if the key holds the token of `from` or is free: the
    /// holder passes the lock on, without a moment in which it is free.
    Transfer {
        /// Key and token so far.
        from: Arc<Claim>,
        /// The same key and the next token.
        to: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The number to draw in the same step, if granted; `None` where fencing is off.
        draw: Option<Draw>,
    },
    /// Let the key live for at least `ttl` from now, if it holds the claim's token; store it anew
    /// if the key is gone. Never shortens the key's life (rule I-6).
    Renew {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The lease's fencing token: where the key is stored anew, the counter must not be
        /// behind it. `None` where fencing is off.
        fencing_token: Option<FencingToken>,
    },
    /// Delete the key, if it holds the claim's token.
    Release {
        /// Key and token.
        claim: Arc<Claim>,
    },
    /// As `Release`, and for the time of `linger` refuse requests of this claim that come late:
    /// for a node that may not yet have carried out an earlier question. An acquisition may go unrefused
    /// that has no [`contended`](Draw::contended) draw, if nothing can come late by which it was asked.
    Cancel {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long late requests are refused.
        linger: Duration,
    },
    /// Delete the counter of the lock's fencing tokens. Nobody is to use the key again: the next number
    /// would be too small.
    Forget {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Tell who holds the key. Changes nothing.
    Inspect {
        /// The key.
        key: Arc<str>,
    },
}

impl Question {
    /// Whether the question may create the key, and so must not be sent once the attempt is given
    /// up.
    #[must_use]
    pub fn may_create(&self) -> bool {
        match self {
            Question::Acquire { .. }
            | Question::AcquireInTurn { .. }
            | Question::Transfer { .. }
            | Question::Renew { .. } => true,
            Question::Release { .. }
            | Question::Cancel { .. }
            | Question::WriteBack { .. }
            | Question::Inspect { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. }
            | Question::LeaveLine { .. } => false,
        }
    }

    /// The claim that it is about, if it is about one.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Question::Acquire { claim, .. }
            | Question::AcquireInTurn { claim, .. }
            | Question::Transfer { to: claim, .. }
            | Question::Renew { claim, .. }
            | Question::WriteBack { claim, .. }
            | Question::Release { claim }
            | Question::Cancel { claim, .. } => Some(claim),
            Question::LeaveLine { .. }
            | Question::Inspect { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. } => None,
        }
    }
}

/// What a node says to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Vote {
    /// Done as asked: the key holds the token now, or, after a release, did until now.
    Granted,
    /// As `Granted`, to a release; and somebody was refused meanwhile, and may still want the lock. A
    /// hint: a node may forget that somebody does, when somebody else releases what is not theirs.
    Wanted,
    /// The key was gone, and a renewal has stored the token again. The node does not count for
    /// this renewal: somebody else may have held it in between.
    Restored,
    /// Not done: the key holds something else. In a box, so that an answer is small: nearly none is this.
    Held(Box<Holding>),
    /// Not done: the key is free, but somebody with an earlier ticket waits for it; or it is shared or
    /// free, and a writer waits, who goes first.
    Behind,
    /// Not done: the counter has gone beyond the number that was to be written back.
    Ahead,
    /// Not done, or nothing to do: the key is free.
    Free,
}

impl From<Holding> for Vote {
    /// Not done: the key holds this.
    fn from(holding: Holding) -> Vote {
        Vote::Held(Box::new(holding))
    }
}

/// What stands under the key of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// The token of whoever holds it.
    pub token: Token,
    /// When the node will forget it.
    pub expiry: Expiry,
    /// Those who share it, where the token [says](Token::is_marker) that readers hold it and the node
    /// was asked who: the first hundred.
    pub readers: Vec<Token>,
    /// Which key it is, where several were asked for.
    pub key: Option<Arc<str>>,
    /// The attempt that was refused first since the key was last given back, where the node was asked to
    /// [acquire](Question::Acquire) and knows it: whoever made it goes first the next time. A hint.
    pub first: Option<Token>,
}

impl Holding {
    /// Somebody's `token` with its `expiry`.
    #[must_use]
    pub fn new(token: Token, expiry: Expiry) -> Holding {
        Holding { token, expiry, readers: Vec::new(), key: None, first: None }
    }

    /// The same, shared by these `readers`.
    #[must_use]
    pub fn with_readers(self, readers: Vec<Token>) -> Holding {
        Holding { readers, ..self }
    }

    /// The same, at this one of several keys.
    #[must_use]
    pub fn at(self, key: Arc<str>) -> Holding {
        Holding { key: Some(key), ..self }
    }
}

/// When a key ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a key has an expiry or has none")]
pub enum Expiry {
    /// So much time after the node answered.
    In(Duration),
    /// Never: this is no lock. Somebody keeps data under that name.
    Never,
}

/// A vote, with the witness of the process that gave it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// What it said.
    pub vote: Vote,
    /// Where the lock's counter of fencing tokens stands at this node: for a granted acquisition,
    /// the number that was drawn for it. `None` where fencing is off, and when nothing was drawn
    /// yet.
    pub fencing_token: Option<FencingToken>,
    /// Which process said it.
    pub instance: Arc<Instance>,
}

impl Answer {
    /// `vote`, as given by `instance`.
    #[must_use]
    pub fn new(vote: Vote, instance: Arc<Instance>) -> Answer {
        Answer { vote, fencing_token: None, instance }
    }

    /// The number of whoever it speaks of. A refusal comes with the counter, which others may have raised
    /// since; then the holder's token knows better. Whoever was asked who it is has looked that up.
    pub(crate) fn number_told(&self, inspected: bool) -> Option<FencingToken> {
        let Vote::Held(holding) = &self.vote else { return self.fencing_token };
        if inspected { self.fencing_token } else { holding.token.number().or(self.fencing_token) }
    }

    /// The same, with the node's counter of fencing tokens.
    #[must_use]
    pub fn with_fencing_token(self, fencing_token: Option<FencingToken>) -> Answer {
        Answer { fencing_token, ..self }
    }
}

/// A server process: the same address may be served by another one after a restart, and two
/// addresses by the same one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// What it calls itself, new at each start: Redis' `run_id`.
    pub id: Box<str>,
    /// When this was learnt, on the client's clock; or a time to come, until which its age stays as it is.
    pub seen: Moment,
    /// Its least age at that moment.
    pub age: Duration,
}

impl Instance {
    /// A process called `id` that was at least of this `age` when it was `seen`.
    #[must_use]
    pub fn new(id: impl Into<Box<str>>, seen: Moment, age: Duration) -> Instance {
        Instance { id: id.into(), seen, age }
    }

    /// How much longer it has to wait at `now` until its vote counts.
    pub(crate) fn stands_aside(&self, quarantine: Quarantine, now: Moment) -> Duration {
        let left = quarantine.left(self.age_at(now));
        if left.is_zero() { left } else { left + self.seen.since(now) }
    }

    /// Its least age at `now`.
    #[must_use]
    pub fn age_at(&self, now: Moment) -> Duration {
        self.age + now.since(self.seen)
    }
}

/// Why a node gave no vote.
///
/// An error means that nobody knows what the node has done, unless
/// [`may_have_acted`](NodeError::may_have_acted) says that nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection, and the question was not sent.
    #[error("unreachable: {reason}")]
    Unreachable {
        /// Why there is none.
        reason: Arc<str>,
    },
    /// The question was sent and has not been answered.
    #[error("no answer within {}", humantime::format_duration(*.waited))]
    Unanswered {
        /// The time limit that has passed.
        waited: Duration,
    },
    /// The connection ended before the answer came.
    #[error("the connection ended before it answered: {reason}")]
    Disconnected {
        /// What ended it.
        reason: Arc<str>,
    },
    /// So many earlier questions wait for this node that this one was not sent.
    #[error("{waiting} earlier requests are unanswered, so this one was not sent")]
    Overloaded {
        /// How many.
        waiting: usize,
    },
    /// The server did as asked, and too few replicas confirmed it in time: a failover may forget it.
    #[error(
        "done, and confirmed in time by {copies} of the {needed} replicas that must have it, so it does not count"
    )]
    Unconfirmed {
        /// How many did.
        copies: u64,
        /// How many must: `wait` in the node's address.
        needed: u64,
    },
    /// The question became pointless before it was sent.
    #[error("not asked: the attempt was over before the connection was ready")]
    NotAsked,
    /// The server may not vote, whatever it would say.
    #[error("{reason}")]
    Unfit {
        /// What is wrong with it, and what would be right.
        reason: Arc<str>,
    },
    /// The semaphore has another number of permits there.
    #[error(
        "the semaphore has {found} permits there, and this program asks for {asked}: all must ask for the \
         same, and another number is possible when nobody has held a permit for one TTL"
    )]
    OtherLimit {
        /// As the node has it.
        found: Arc<str>,
        /// As it was asked for.
        asked: Arc<str>,
    },
    /// The server answered with an error.
    #[error("{message}")]
    Failed {
        /// The server's own words, and what they mean here.
        message: Arc<str>,
        /// Whether trying again can help without anybody mending something.
        lasting: Lasting,
    },
}

/// Whether an error ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: it ends by itself or it does not")]
pub enum Lasting {
    /// It may pass: the server is loading, busy or out of memory.
    Passing,
    /// Somebody has to mend it: missing rights, a wrong password, a key of the wrong type.
    UntilMended,
}

impl NodeError {
    /// Whether the node may have carried out the question, now or later.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        match self {
            NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::OtherLimit { .. } => true,
            NodeError::Unreachable { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::Unfit { .. }
            | NodeError::Failed { .. } => false,
        }
    }

    /// Whether somebody has to mend something before this node can grant.
    #[must_use]
    pub fn lasts(&self) -> bool {
        match self {
            NodeError::Unfit { .. }
            | NodeError::OtherLimit { .. }
            | NodeError::Failed { lasting: Lasting::UntilMended, .. } => true,
            NodeError::Failed { lasting: Lasting::Passing, .. }
            | NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::Unreachable { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked => false,
        }
    }
}

/// Where a node's answer goes.
///
/// Dropped without an answer, it reports that the node gave none.
#[derive(Debug)]
pub struct Reply {
    to: Option<Arc<dyn Collect>>,
    index: usize,
}

/// Collects the answers to one question put to several nodes.
pub(crate) trait Collect: fmt::Debug + Send + Sync {
    /// The node at `index` has answered.
    fn answer(&self, index: usize, answer: Result<Answer, NodeError>);

    /// The same, from a node that has looked at its clock since.
    fn answer_that_came(&self, index: usize, answer: Result<Answer, NodeError>, _: Came<'_>) {
        self.answer(index, answer);
    }

    /// Whether a question that may create a key is still worth sending.
    fn wanted(&self) -> bool;
}

impl Reply {
    pub(crate) fn new(to: Arc<dyn Collect>, index: usize) -> Reply {
        Reply { to: Some(to), index }
    }

    /// Gives the answer.
    pub fn send(mut self, answer: Result<Answer, NodeError>) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, answer);
        }
    }

    /// The same, for one of several answers that came together: one look at the clock is enough for all.
    pub(crate) fn send_what_came(mut self, answer: Result<Answer, NodeError>, came: Came<'_>) {
        if let Some(to) = self.to.take() {
            to.answer_that_came(self.index, answer, came);
        }
    }

    /// Whether the question is still worth sending. A node that had to keep a question back, for
    /// want of a connection, asks here before it sends one that [`may_create`](Question::may_create)
    /// a key, and answers [`NodeError::NotAsked`] instead when nobody wants it any more.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.wanted())
    }
}

/// When an answer came.
#[derive(Clone, Copy)]
pub(crate) struct Came<'a> {
    pub(crate) at: Moment,
    pub(crate) clock: &'a dyn Clock,
}

impl Came<'_> {
    /// The moment, if it is one of this `clock`: a node may have another one than who asks it, and moments
    /// of two clocks cannot be compared.
    pub(crate) fn on(self, clock: &dyn Clock) -> Option<Moment> {
        ptr::addr_eq(self.clock, clock).then_some(self.at)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, Err(NodeError::Disconnected { reason: "the node dropped it".into() }));
        }
    }
}

/// Asks one node one question and waits for the answer, for as long as it takes.
///
/// For tests of nodes and for tools. Locks ask all nodes at once and do not wait for the slowest.
///
/// # Errors
///
/// What the node says.
///
/// # Cancel safety
///
/// Dropping the future does not take the question back: the node may still carry it out.
pub async fn ask(node: &dyn Node, question: impl Into<Asked>) -> Result<Answer, NodeError> {
    let (sender, receiver) = oneshot::channel();
    let single = Arc::new(Single { sender: std::sync::Mutex::new(Some(sender)) });
    node.ask(question.into(), Reply::new(single, 0));
    receiver.await.unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped it".into() }))
}

#[derive(Debug)]
struct Single {
    sender: std::sync::Mutex<Option<oneshot::Sender<Result<Answer, NodeError>>>>,
}

impl Collect for Single {
    fn answer(&self, _index: usize, answer: Result<Answer, NodeError>) {
        let sender = self.sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Nobody waits any more: the asker has gone.
            drop(sender.send(answer));
        }
    }

    fn wanted(&self) -> bool {
        true
    }
}
