//! The node: a thread with one child, which is started again when it has ended.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use quorlock::node::facts::{Concern, Facts, ProbeLock, Role};
use quorlock::node::{
    AddressError, Capabilities, ConnectionState, Hint, HintListener, Hints, Identity, Node, NodeError,
    NodeErrorKind, NodeLimits, Observers, Order, Reason, Request, Responder, Seams, SharedRequest,
    StatusListener, ask,
};
use quorlock::protocol::{Backoff, Moment};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::address::ExecAddress;
use crate::child::{Child, UNREAD};
use crate::wire::{self, Asked, Hello, Message, failed, parse};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// A child that has still not answered so long after that is ended.
const OVERDUE: Duration = Duration::from_secs(30);
/// The pauses before it is started again.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// For its first line.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How long requests wait for that; later ones are refused until it has come.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of the text of an error is kept.
const MOST_TEXT: usize = 500;

/// A node that is a program.
///
/// Clones are the same node, with one child, which ends with the last clone.
#[derive(Clone)]
pub struct ExecNode {
    address: ExecAddress,
    name: Arc<str>,
    able: Capabilities,
    jobs: UnboundedSender<Job>,
    announced: Arc<Announced>,
    seams: Seams,
}

/// What the child's first line says, in milliseconds.
struct Announced {
    least_ttl: AtomicU64,
    /// For how long a grant or a renewal proves a key at least.
    proven: AtomicU64,
}

enum Job {
    Ask(SharedRequest, Responder),
    Listen(Arc<dyn HintListener>),
    Observe(Arc<dyn StatusListener>),
    Ready(oneshot::Sender<Result<(), NodeError>>),
    Restart,
}

impl ExecNode {
    /// Creates the node of this URL, as [`ExecKind`](crate::ExecKind) does. The program is started by the first request.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<ExecNode, AddressError> {
        let address = ExecAddress::parse(url)?;
        let shown = address.to_string();
        ExecNode::of(address, seams).map_err(|_| {
            AddressError::malformed(
                shown,
                "needs a thread, and the system cannot start one",
                "end some threads",
            )
        })
    }

    /// Kills the program, which is started again, as after a crash: for tests of what it remembers then.
    pub fn restart(&self) {
        drop(self.jobs.send(Job::Restart));
    }

    /// Starts the program once more, as each client does, and says so if that has other data.
    async fn compare_another(&self, identity: &str, key: Arc<str>) -> Option<Concern> {
        let another = ExecNode::of(self.address.clone(), &self.seams).ok()?;
        let found = ask(&another, Request::inspect(key)).await.ok()?;
        (found.identity.voter() != identity).then(|| {
            Concern::unsafely(
                "has another identity when it is started again: each process that locks has data of its own, and \
                 excludes no other",
                "keep locks, counters and the identity in a store that all processes share",
            )
        })
    }

    pub(crate) fn of(address: ExecAddress, seams: &Seams) -> Result<ExecNode, Reason> {
        let (jobs, asked) = unbounded_channel();
        let (name, able) = (address.to_string().into(), capabilities(&address));
        let announced = Announced { least_ttl: AtomicU64::new(0), proven: AtomicU64::new(u64::MAX) };
        let announced = Arc::new(announced);
        let mut worker = Worker {
            address: address.clone(),
            seams: seams.clone(),
            jobs: asked,
            announced: Arc::clone(&announced),
            observers: Observers::default(),
            listeners: Vec::new(),
            hearing: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A panic costs the child and its requests (rule I-31).
        seams.start_thread("quorlock-exec", Arc::clone(&name), move || runtime.block_on(worker.work()))?;
        Ok(ExecNode { address, name, able, jobs, announced, seams: seams.clone() })
    }
}

/// One key at a time: a child may carry out requests in any order.
fn capabilities(address: &ExecAddress) -> Capabilities {
    let hints = if address.hints { Hints::Removal } else { Hints::None };
    let able = Capabilities::default().in_order(Order::Unordered).hinting(hints);
    if address.is_cluster { able.durable().by_consensus().shared_with_others() } else { able }
}

impl Node for ExecNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder)));
    }

    fn capabilities(&self) -> Capabilities {
        self.able
    }

    fn limits(&self) -> NodeLimits {
        let least = Duration::from_millis(self.announced.least_ttl.load(Ordering::Relaxed));
        NodeLimits::default().least_ttl(least).time_limit(LIMIT)
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(Duration::from_millis(self.announced.proven.load(Ordering::Relaxed)))
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (to, receiver) = oneshot::channel();
        drop(self.jobs.send(Job::Ready(to)));
        let ended = || NodeError::Unreachable { reason: "its thread has ended".into() };
        receiver.map(move |receiver| receiver.unwrap_or_else(|_| Err(ended()))).boxed()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(self.jobs.send(Job::Listen(listener)));
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(self.jobs.send(Job::Observe(observer)));
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let (node, seams) = (self.clone(), self.seams.clone());
        Box::pin(async move {
            let mut facts = Facts::default();
            // It votes by what it says; what its store is, no one can ask.
            facts.role = Some(Role::Master);
            facts.probe(&node, &seams, Arc::clone(&key), ProbeLock::Fenced, LIMIT).await;
            if let Some(identity) = facts.identity.clone() {
                facts.concerns.extend(node.compare_another(&identity, key).await);
            }
            Some(facts)
        })
    }
}

impl fmt::Debug for ExecNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecNode").field("name", &self.name).finish_non_exhaustive()
    }
}

struct Worker {
    address: ExecAddress,
    seams: Seams,
    jobs: UnboundedReceiver<Job>,
    announced: Arc<Announced>,
    observers: Observers,
    listeners: Vec<Arc<dyn HintListener>>,
    /// Whether the listeners were notified that hints are active.
    hearing: bool,
}

/// A child, and what it was asked.
struct Session {
    child: Child,
    identity: Arc<Identity>,
    last: u64,
    has_answered: bool,
    unanswered: HashMap<u64, Unanswered>,
    /// Until when each is waited for, the first first.
    until: VecDeque<(Moment, u64)>,
    /// Until when an answer may still come to each that is not waited for any more.
    overdue: VecDeque<(Moment, u64)>,
}

/// How a child has ended.
struct Ended {
    reason: Reason,
    /// Whether it has answered anything by the protocol before.
    has_answered: bool,
}

struct Unanswered {
    asked: Asked,
    sent: Moment,
    /// `None` once its time is over: an answer is still expected, and ignored.
    responder: Option<Responder>,
}

impl Worker {
    /// Runs until the last handle of the node is dropped.
    async fn work(&mut self) {
        // After a panic.
        self.deafen();
        let clock = Arc::clone(self.seams.clock());
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        // Nothing is started before the first request.
        let mut waiting = loop {
            match self.jobs.recv().await {
                Some(Job::Listen(listener)) => self.listeners.push(listener),
                Some(first) => break vec![first],
                None => return,
            }
        };
        loop {
            let failure = match Child::start(&self.address, &clock) {
                Ok(mut child) => match self.greet(&mut child, &mut waiting).await {
                    Some(Ok((identity, hello))) => {
                        self.announced.least_ttl.store(hello.least_ttl_ms, Ordering::Relaxed);
                        self.announced.proven.store(hello.proven_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
                        match self.serve(child, identity, mem::take(&mut waiting)).await {
                            Some(Ended { reason, has_answered }) => {
                                if has_answered {
                                    backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                                }
                                NodeError::Unreachable { reason }
                            }
                            None => return,
                        }
                    }
                    Some(Err(failure)) => failure,
                    None => return child.finish(&*clock).await,
                },
                Err(error) => error,
            };
            self.fail(&mut waiting, &failure);
            let until = clock.now() + backoff.next(self.seams.entropy().next_u64());
            while clock.now() < until {
                tokio::select! {
                    job = self.jobs.recv() => match job {
                        Some(job) => self.refuse(job, &failure),
                        None => return,
                    },
                    () = clock.sleep_until(until) => {}
                }
            }
        }
    }

    /// Waits for the first line, and returns it with the history of the data, or `None` if no handle is left.
    /// Requests wait for that, but not long.
    async fn greet(
        &mut self,
        child: &mut Child,
        waiting: &mut Vec<Job>,
    ) -> Option<Result<(Identity, Hello), NodeError>> {
        let clock = Arc::clone(self.seams.clock());
        let (began, mut silent) = (clock.now(), None);
        loop {
            let limit = if silent.is_none() { PATIENCE } else { STARTS_WITHIN };
            tokio::select! {
                biased;
                line = child.lines.recv() => {
                    let hello = match line {
                        Some(line) => line.and_then(|line| parse::<Hello>(&line)),
                        None => Err(child.ended(&*clock).await),
                    };
                    let hello = hello.map_err(|reason| NodeError::Unreachable { reason });
                    return Some(hello.and_then(|hello| {
                        let identity = hello.identity(clock.now());
                        let unfit = |reason| NodeError::Failed { kind: NodeErrorKind::Unsupported, reason };
                        Ok((identity.map_err(unfit)?, hello))
                    }));
                }
                job = self.jobs.recv() => match (job?, &silent) {
                    (job, Some(failure)) => self.refuse(job, failure),
                    (job @ Job::Ask(..), None) if waiting.len() >= UNREAD => {
                        self.refuse(job, &NodeError::Overloaded { waiting: waiting.len() });
                    }
                    (job, None) => waiting.push(job),
                },
                () = clock.sleep_until(began + limit) => {
                    let passed = clock.now().since(began);
                    if passed >= limit {
                        let reason = format!("it has not said a line within {limit:?}").into();
                        let failure = NodeError::Unreachable { reason };
                        if limit == STARTS_WITHIN {
                            return Some(Err(failure));
                        }
                        self.fail(waiting, &failure);
                        silent = Some(failure);
                    }
                }
            }
        }
    }

    /// Passes requests and answers on until the child ends or breaks the protocol. Returns why, or `None` if no handle is left.
    async fn serve(&mut self, child: Child, identity: Identity, waiting: Vec<Job>) -> Option<Ended> {
        let (clock, identity) = (Arc::clone(self.seams.clock()), Arc::new(identity));
        self.observers.notify(ConnectionState::Connected(Arc::clone(&identity)));
        self.hearing = true;
        self.notify(Hint::Subscribed);
        let (unanswered, until, overdue) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        let mut session =
            Session { child, identity, last: 0, has_answered: false, unanswered, until, overdue };
        for job in waiting {
            self.take(&mut session, job);
        }
        let reason = loop {
            let fronts = session.until.front().into_iter().chain(session.overdue.front());
            let due = fronts.map(|(until, _)| *until).min().unwrap_or(Moment::NEVER);
            tokio::select! {
                biased;
                line = session.child.lines.recv() => {
                    let message = match line {
                        Some(line) => line.and_then(|line| Message::parse(&line)),
                        None => break session.child.ended(&*clock).await,
                    };
                    if let Err(reason) = message.and_then(|message| self.hear(&mut session, message)) {
                        break reason;
                    }
                }
                job = self.jobs.recv() => {
                    let Some(job) = job else {
                        session.child.finish(&*clock).await;
                        return None;
                    };
                    if matches!(job, Job::Restart) {
                        break "it was killed, to be started again".into();
                    }
                    self.take(&mut session, job);
                }
                () = clock.sleep_until(due) => {
                    if let Some(id) = session.time_out(clock.now()) {
                        break format!("it has not answered request {id} for {:?}", LIMIT + OVERDUE).into();
                    }
                }
            }
        };
        self.deafen();
        let lost = NodeError::Disconnected { reason: reason.clone() };
        session
            .unanswered
            .into_values()
            .filter_map(|asked| asked.responder)
            .for_each(|to| to.send(Err(lost.clone())));
        Some(Ended { reason, has_answered: session.has_answered })
    }

    fn take(&mut self, session: &mut Session, job: Job) {
        match job {
            Job::Ask(request, responder) => {
                if request.may_create() && !responder.wanted() {
                    return responder.send(Err(NodeError::NotAsked));
                }
                session.ask(&request, responder, capabilities(&self.address), &self.seams);
            }
            Job::Listen(listener) => {
                if self.address.hints {
                    listener.on_hint(Hint::Subscribed);
                }
                self.listeners.push(listener);
            }
            Job::Observe(observer) => self.observers.add(observer),
            Job::Ready(to) => drop(to.send(Ok(()))),
            // It has just started.
            Job::Restart => {}
        }
    }

    /// Takes a line of the child. An error if it does not follow the protocol.
    fn hear(&mut self, session: &mut Session, message: Message) -> Result<(), Reason> {
        let unasked = |id: u64| Reason::from(format!("it answers request {id}, which it was not asked"));
        match message {
            Message::Answer(answer) => {
                let Unanswered { asked, sent, responder } =
                    session.unanswered.remove(&answer.id).ok_or_else(|| unasked(answer.id))?;
                let response = answer.response(&asked, sent, &session.identity);
                if let Some(responder) = responder {
                    responder.send(response);
                }
            }
            Message::Failed(wire::Failed { id, error, maybe }) => {
                let asked = session.unanswered.remove(&id).ok_or_else(|| unasked(id))?;
                let error: String = error.chars().take(MOST_TEXT).collect();
                if let Some(responder) = asked.responder {
                    responder.send(Err(failed(&error, maybe)));
                }
            }
            Message::Gone(wire::Gone { gone }) => {
                self.notify(Hint::Invalidated(gone.as_bytes()));
            }
        }
        session.has_answered = true;
        Ok(())
    }

    fn notify(&self, hint: Hint<'_>) {
        if self.address.hints {
            self.listeners.iter().for_each(|listener| listener.on_hint(hint));
        }
    }

    /// Notifies the listeners that hints are off.
    fn deafen(&mut self) {
        if mem::take(&mut self.hearing) {
            self.notify(Hint::Unsubscribed);
        }
    }

    /// Answers what has waited for the child, which is not there.
    fn fail(&mut self, waiting: &mut Vec<Job>, failure: &NodeError) {
        self.observers.notify(ConnectionState::Lost(failure.clone()));
        for job in waiting.drain(..) {
            self.refuse(job, failure);
        }
    }

    /// Answers without asking the child.
    fn refuse(&mut self, job: Job, failure: &NodeError) {
        match job {
            Job::Ask(_, responder) => responder.send(Err(failure.clone())),
            Job::Listen(listener) => self.listeners.push(listener),
            Job::Observe(observer) => self.observers.add(observer),
            Job::Ready(to) => drop(to.send(Err(failure.clone()))),
            Job::Restart => {}
        }
    }
}

impl Session {
    fn ask(&mut self, request: &SharedRequest, responder: Responder, able: Capabilities, seams: &Seams) {
        if let Err(error) = able.check(request) {
            return responder.send(Err(error));
        }
        let clock = seams.clock();
        let Some(asked) = Asked::of(self.last + 1, request, clock.wall()) else {
            let reason = "programs cannot be asked this".into();
            return responder.send(Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason }));
        };
        let (waiting, at) = (self.unanswered.len(), clock.now());
        let line = serde_json::to_string(&asked).map(|line| line + "\n");
        let sent = line.is_ok_and(|line| waiting < UNREAD && self.child.requests.try_send(line).is_ok());
        if !sent {
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        self.last += 1;
        self.until.push_back((at + LIMIT, self.last));
        self.unanswered.insert(self.last, Unanswered { asked, sent: at, responder: Some(responder) });
    }

    /// Stops waiting for answers that take too long. Returns the request that the child will not answer any more.
    fn time_out(&mut self, now: Moment) -> Option<u64> {
        while let Some((until, id)) = self.until.front().copied()
            && until <= now
        {
            self.until.pop_front();
            let Some(asked) = self.unanswered.get_mut(&id) else { continue };
            let Some(responder) = asked.responder.take() else { continue };
            responder.send(Err(NodeError::Unanswered { waited: LIMIT }));
            self.overdue.push_back((now + OVERDUE, id));
        }
        while let Some((until, id)) = self.overdue.front().copied()
            && until <= now
        {
            self.overdue.pop_front();
            if self.unanswered.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}
