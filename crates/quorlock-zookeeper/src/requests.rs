//! Carries out requests: each is one transaction where what was read last is still so, and a look before it where it is not.
//!
//! A free lock is taken by a transaction that creates a place, and checks that its number is the next one after those that
//! were there: if another client has entered meanwhile, the number is another one, and nothing is done.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Owner, Role};
use quorlock::node::{
    Capabilities, Capability, Hints, NodeError, NodeErrorKind, Order, Request, Response, Vote,
};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, NoNumber, Token};

use crate::error::{Trouble, failed};
use crate::layout::{self, Counter, RESERVED, attempt, encode_counter, numbered, with_parents};
use crate::look::{First, Look};
use crate::memory::{Own, Stored};
use crate::session::{Session, list};
use crate::wire::{Call, Create, Done, code};

/// What a node of this kind can do. This layout has no place for readers and writers that exclude each other, since its other
/// clients would take a reader for a holder; nor for a lock that outlives the session of its holder.
pub(crate) fn capabilities() -> Capabilities {
    let able = Capabilities::default().with(Capability::Queue);
    let able = able.in_order(Order::Unordered).hinting(Hints::RemovalAndExpiry).durable();
    able.by_consensus().shared_with_others().first_come()
}

/// How often a request is decided again because other clients have changed what it depends on.
const ATTEMPTS: u32 = 50;
/// Renewals are answered from a list of what the session has that is at most this part of its timeout old.
const LISTED: u32 = 3;

/// The answer to a request.
pub(crate) struct Answer {
    vote: Vote,
    number: Option<FencingToken>,
    /// From when the TTL of a grant counts.
    from: Option<Moment>,
    /// The change that created the holder's place.
    czxid: i64,
}

/// Why a request has no answer.
pub(crate) enum Fault {
    Trouble(Trouble),
    Error(NodeError),
}

pub(crate) type Outcome = Result<Answer, Fault>;

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Fault {
        Fault::Trouble(trouble)
    }
}

impl From<NodeError> for Fault {
    fn from(error: NodeError) -> Fault {
        Fault::Error(error)
    }
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Answer {
        Answer { vote, number: None, from: None, czxid: 0 }
    }
}

impl Answer {
    fn numbered(self, number: Option<FencingToken>) -> Answer {
        Answer { number, ..self }
    }
}

/// A claim of one lock, and where it is stored.
struct Target<'a> {
    claim: &'a Claim,
    lock: &'a Arc<str>,
    dir: String,
    /// The counter; nothing without fencing.
    counter: Option<String>,
}

/// What a transaction found changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stale {
    Places,
    Counter,
}

/// What was stored.
struct Stood {
    path: Arc<str>,
    czxid: i64,
    /// When it was asked for.
    sent: Moment,
}

impl Session {
    /// Carries out a request.
    pub(crate) async fn carry_out(self: &Arc<Session>, request: &Request) -> Result<Response, NodeError> {
        capabilities().check(request)?;
        if let Some(key) = request.keys().find(|key| key.starts_with(RESERVED)) {
            let words =
                format!("names that begin with `{RESERVED}` are this library's own, and `{key}` is one");
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        if let Some(ended) = self.ended() {
            return Err(NodeError::Unreachable { reason: format!("{ended:#}").into() });
        }
        match self.apply(request).await {
            Ok(Answer { vote, number, from, czxid }) => {
                let revision = u64::try_from(czxid).ok().and_then(NonZeroU64::new);
                let response = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(number);
                let response = response.with_store_revision(revision);
                Ok(from.into_iter().fold(response, Response::counting_from))
            }
            Err(Fault::Error(error)) => Err(error),
            Err(Fault::Trouble(trouble)) => Err(self.note(trouble)),
        }
    }

    async fn apply(self: &Arc<Session>, request: &Request) -> Outcome {
        match request {
            Request::Acquire { claim, ttl, fence_hint } => {
                let fenced = fence_hint.is_some();
                self.acquire(&self.target(claim, fenced)?, *ttl, *fence_hint).await
            }
            Request::Renew { claim, ttl, fencing_token } => {
                let target = self.target(claim, fencing_token.is_some())?;
                self.renew(&target, *ttl, *fencing_token).await
            }
            Request::WriteBack { claim, fencing_token } => {
                self.write_back(&self.target(claim, true)?, *fencing_token).await
            }
            Request::Release { claim } => self.release(&self.target(claim, false)?).await,
            Request::Cancel { claim, linger } => self.cancel(&self.target(claim, false)?, *linger).await,
            Request::Enqueue { key, waiter, elapsed, patience, turn, context, .. } => {
                let since = self.memory.clock().wall().saturating_sub(*elapsed);
                self.enqueue(key, (*waiter, since, context), *patience, *turn).await
            }
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter).await,
            Request::ListWaiters { key } => self.list_waiters(key).await,
            Request::Inspect { key, prefix_len } => self.inspect(key, *prefix_len).await,
            Request::Transfer { .. }
            | Request::Offer { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | _ => {
                Err(failed(NodeErrorKind::Unsupported, "nodes of this kind do not know this request").into())
            }
        }
    }

    fn target<'a>(&self, claim: &'a Claim, fenced: bool) -> Result<Target<'a>, Fault> {
        let nothing = || failed(NodeErrorKind::Unsupported, "a claim of nothing");
        let lock = claim.keys().next().ok_or_else(nothing)?;
        let layout = &self.memory.layout;
        let counter = fenced.then(|| layout.counter(claim.key_prefix(), lock));
        Ok(Target { claim, lock, dir: layout.dir(lock), counter })
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), Fault> {
        let session = self.memory.address.session();
        if ttl >= session {
            return Ok(());
        }
        let words = format!(
            "the session of this node lasts {session:?}, and the TTL is {ttl:?}: use a longer one, or a shorter `?session=`"
        );
        Err(failed(NodeErrorKind::Unsupported, words).into())
    }

    fn is_buried(&self, token: &Token) -> bool {
        self.memory.tombs.lock().have(token, self.memory.now())
    }

    async fn acquire(&self, target: &Target<'_>, ttl: Duration, hint: Option<FenceHint>) -> Outcome {
        self.check_ttl(ttl)?;
        let Target { claim, lock, dir, counter: path } = target;
        let (mut looked, mut misses): (Option<Look>, u32) = (None, 0);
        for _ in 0..ATTEMPTS {
            if self.is_buried(claim.token()) {
                return Ok(Vote::Free.into());
            }
            self.watches.tell_refused(dir);
            let counter = match (path, &looked) {
                (None, _) => Some(None),
                (Some(path), Some(look)) => Some(look.counter(path)?),
                (Some(path), None) => self.memory.cache.lock().counters.get(path).copied(),
            };
            let place = claim.place().and_then(|waiter| self.memory.own.lock().waiter(lock, waiter).cloned());
            let found = match (&looked, &place) {
                (Some(look), _) => Some(find(claim, place.as_ref(), look)),
                (None, Some(own)) => is_turn(own).then_some(Found::Place(Arc::clone(&own.key))),
                (None, None) => self.memory.cache.lock().empty.get(dir).map(|made| Found::Free(Some(*made))),
            };
            let (Some(found), Some(counter)) = (found, counter) else {
                match (path, &place) {
                    (Some(path), Some(own)) if is_turn(own) && looked.is_none() => {
                        self.read_counter(path).await?;
                    }
                    // A refusal must not be old.
                    _ if self.watches.has(dir) => looked = Some(self.look(lock, path.as_deref()).await?),
                    _ => looked = Some(self.glance(lock, path.as_deref()).await?),
                }
                continue;
            };
            let next = self.drawn(hint, counter)?;
            let stood = match found {
                Found::Free(made) => {
                    let stood = self.create(target, (made, misses), next, (next, counter)).await?;
                    misses += 1;
                    stood
                }
                Found::Place(path) => self.take(target, path, (next, counter)).await?,
                Found::Own(first) if first.stat.owner == self.id => {
                    self.give_number(target, &first, (next, counter)).await?
                }
                Found::Own(first) => self.replace(target, &first, looked.as_ref(), (next, counter)).await?,
                Found::Hindered(first) => {
                    if !self.watches.has(dir) {
                        // From now on removals are reported; so what was read may be old.
                        self.watch(lock, dir);
                        looked = None;
                        self.forget(target);
                        continue;
                    }
                    let counter = counter.map(|(number, _)| number).filter(|at| *at > FencingToken::ZERO);
                    return Ok(Answer::from(self.refusal(lock, &first)).numbered(counter));
                }
            };
            if let Ok(stood) = stood {
                let (czxid, known) =
                    (stood.czxid, self.memory.own.lock().holder(lock, claim.token()).cloned());
                let until = known.map_or(self.memory.now() + ttl, |known| known.until);
                self.keep(target, stood, until)?;
                let from = Some(self.memory.counts_from(ttl)?);
                return Ok(Answer { vote: Vote::Granted, number: next, from, czxid });
            }
            looked = None;
            self.forget(target);
        }
        Err(contended().into())
    }

    /// Forgets what was read of the lock.
    fn forget(&self, target: &Target<'_>) {
        let mut cache = self.memory.cache.lock();
        cache.empty.remove(&target.dir);
        if let Some(counter) = &target.counter {
            cache.counters.remove(counter);
        }
    }

    /// Has all changes of the lock reported that come after the requests which were sent before.
    pub(crate) fn watch(&self, lock: &Arc<str>, dir: &str) {
        let changed = self.watches.begin(dir, lock, self.memory.now());
        for path in changed.end {
            drop(self.client.send(&Call::RemoveWatches { path }));
        }
        if changed.begin {
            drop(self.client.send(&Call::AddWatch { path: dir.to_owned() }));
        }
    }

    /// Reads a counter into the cache.
    async fn read_counter(&self, path: &str) -> Result<(), Fault> {
        let found = self.client.send(&Call::GetData { path: path.to_owned(), watch: false }).found().await?;
        let counter = match &found {
            Some(answer) => answer.data()?,
            None => (&[][..], crate::wire::Stat::default()),
        };
        let counter = crate::look::counter(path, found.is_some().then_some((counter.0, counter.1.version)))?;
        self.memory.cache.lock().remember_counter(path.to_owned(), counter);
        Ok(())
    }

    /// It is the turn of a waiter of this process: reads what its attempt will need. Another holder has raised the counter.
    pub(crate) fn prefetch(self: &Arc<Session>, lock: &str) {
        let path = self.memory.layout.counter(self.memory.seams.key_prefix(), lock);
        self.memory.cache.lock().counters.remove(&path);
        let session = Arc::clone(self);
        tokio::spawn(async move { drop(session.read_counter(&path).await) });
    }

    /// Returns the number that is drawn where the counter stands here.
    fn drawn(&self, hint: Option<FenceHint>, counter: Counter) -> Result<Option<FencingToken>, NodeError> {
        let stands = counter.map_or(FencingToken::ZERO, |(number, _)| number);
        let drawn = hint.map(|hint| hint.from(stands, self.memory.clock().wall())).transpose();
        drawn.map_err(|error| failed(NodeErrorKind::WrongData, error.to_string()))
    }

    /// Sets the counter to a number, if it is as it was read.
    fn count(target: &Target<'_>, (number, counter): (Option<FencingToken>, Counter)) -> Option<Call> {
        let (path, data) = (target.counter.clone()?, encode_counter(number?).to_vec());
        Some(match counter {
            Some((_, version)) => Call::SetData { path, data, version },
            None => Call::Create { path, data, how: Create::Persistent },
        })
    }

    /// Carries out a transaction, which ends with what was said of the counter. Returns what its first operations have done,
    /// or what was not as it was read.
    async fn transact(
        &self,
        target: &Target<'_>,
        mut calls: Vec<Call>,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<(Vec<Done>, Moment), Stale>, Fault> {
        let own = calls.len();
        calls.extend(Session::count(target, (number, counter)));
        let sent = self.client.send(&Call::Multi(calls));
        let at = sent.at;
        let (done, zxid) = sent.results().await?;
        // What has failed because of another operation says so.
        let is_cause = |done: &Done| matches!(done, Done::Failed(number) if !matches!(number, 0 | -2));
        if let Some(cause) = done.iter().position(is_cause) {
            return match done.get(cause) {
                Some(Done::Failed(code::NO_NODE | code::BAD_VERSION | code::NODE_EXISTS)) => {
                    Ok(Err(if cause < own { Stale::Places } else { Stale::Counter }))
                }
                Some(Done::Failed(other)) => Err(Trouble::of(*other).into()),
                Some(Done::Created(..) | Done::Set(_) | Done::Nothing) | None => Err(contended().into()),
            };
        }
        self.committed(at, zxid);
        if let (Some(number), Some(path)) = (number, &target.counter) {
            let version = match done.get(own) {
                Some(Done::Set(stat) | Done::Created(_, stat)) => stat.version,
                Some(Done::Nothing | Done::Failed(_)) | None => return Err(unexpected().into()),
            };
            self.memory.cache.lock().remember_counter(path.clone(), Some((number, version)));
            self.memory.seen.lock().counter = Some((path.clone(), number));
        }
        Ok(Ok((done, at)))
    }

    /// Creates the place of an attempt with this number, if there has been none since so many were there.
    async fn create(
        &self,
        target: &Target<'_>,
        (made, misses): (Option<i32>, u32),
        number: Option<FencingToken>,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        let Target { claim, dir, .. } = target;
        match (made, misses) {
            (Some(_), _) => {}
            // Those above it are there, most of the time.
            (None, 0) => drop(self.client.send(&Call::CreateContainer { path: dir.clone() })),
            (None, _) => self.make(dir),
        }
        let path = attempt(dir, claim.token());
        let check = Call::Check { path: numbered(&path, made.unwrap_or(0)), version: -1 };
        let data = Owner::attempt(claim.token(), number);
        let create = Call::Create { path, data, how: Create::EphemeralSequential };
        self.stored(target, vec![create, check], 0, counted).await
    }

    /// Asks for the node of a lock and those above it, which the server deletes when they have been empty for a while.
    pub(crate) fn make(&self, dir: &str) {
        let base = self.memory.layout.base().len();
        for path in with_parents(dir).into_iter().filter(|path| path.len() > base) {
            drop(self.client.send(&Call::CreateContainer { path }));
        }
    }

    /// Carries out a transaction of which the operation at `at` creates the place.
    async fn stored(
        &self,
        target: &Target<'_>,
        calls: Vec<Call>,
        at: usize,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        let (done, sent) = match self.transact(target, calls, counted).await? {
            Ok(done) => done,
            Err(stale) => return Ok(Err(stale)),
        };
        let Some(Done::Created(path, stat)) = done.into_iter().nth(at) else {
            return Err(unexpected().into());
        };
        self.memory.cache.lock().empty.remove(&target.dir);
        Ok(Ok(Stood { path: path.into(), czxid: stat.czxid, sent }))
    }

    /// Makes the place of a waiter that of the attempt: it is the first.
    async fn take(
        &self,
        target: &Target<'_>,
        path: Arc<str>,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        let taken = self.rewrite(target, Arc::clone(&path), -1, counted).await?;
        if let Err(Stale::Places) = taken {
            // It is lost.
            self.memory.own.lock().remove(target.lock, &*path);
        }
        Ok(taken)
    }

    /// Writes an attempt and its number into a place.
    async fn rewrite(
        &self,
        target: &Target<'_>,
        path: Arc<str>,
        version: i32,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        let data = Owner::attempt(target.claim.token(), number);
        let write = Call::SetData { path: path.to_string(), data, version };
        let (done, sent) = match self.transact(target, vec![write], (number, counter)).await? {
            Ok(done) => done,
            Err(stale) => return Ok(Err(stale)),
        };
        let Some(Done::Set(stat)) = done.first() else { return Err(unexpected().into()) };
        Ok(Ok(Stood { path, czxid: stat.czxid, sent }))
    }

    /// Gives another number to an attempt that holds the lock.
    async fn give_number(
        &self,
        target: &Target<'_>,
        first: &First,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        if counted.0.is_some() {
            return self.rewrite(target, Arc::clone(&first.path), first.stat.version, counted).await;
        }
        let sent = self.memory.now();
        Ok(Ok(Stood { path: Arc::clone(&first.path), czxid: first.stat.czxid, sent }))
    }

    /// Replaces the place of an attempt of ours that does not live with this session, if no other client waits behind it.
    async fn replace(
        &self,
        target: &Target<'_>,
        first: &First,
        look: Option<&Look>,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Fault> {
        let made = look.filter(|look| look.places.len() == 1).and_then(|look| look.created);
        let Some(made) = made else {
            let words = "an old place of this attempt, from a session that has ended, is still there, and others wait behind it";
            return Err(failed(NodeErrorKind::Busy, words).into());
        };
        let delete = Call::Delete { path: first.path.to_string() };
        let path = attempt(&target.dir, target.claim.token());
        let check = Call::Check { path: numbered(&path, made), version: -1 };
        let drawn = match &first.owner {
            Owner::Attempt(_, drawn) => *drawn,
            Owner::Waiter(..) => None,
        };
        let data = Owner::attempt(target.claim.token(), number.or(drawn));
        let create = Call::Create { path, data, how: Create::EphemeralSequential };
        self.stored(target, vec![delete, create, check], 1, (number, counter)).await
    }

    /// Remembers what was stored.
    fn keep(&self, target: &Target<'_>, stood: Stood, until: Moment) -> Result<(), Trouble> {
        let stored = Stored { czxid: stood.czxid, put: stood.sent };
        let own = Own::new(stood.path, Role::Holder(target.claim.token().clone()), until, stored);
        if self.memory.keep(target.lock, own, self.generation) {
            return Ok(());
        }
        Err(Trouble::Lost("another connection has begun since".into()))
    }

    async fn renew(&self, target: &Target<'_>, ttl: Duration, number: Option<FencingToken>) -> Outcome {
        self.check_ttl(ttl)?;
        let Target { claim, lock, dir, counter: path } = target;
        if let Some(answer) = self.renew_by_list(target, ttl).await? {
            return Ok(answer);
        }
        for attempt in 0..ATTEMPTS {
            let look = self.look(lock, path.as_deref()).await?;
            let counter = path.as_ref().map(|path| look.counter(path)).transpose()?.flatten();
            let (stood, vote) = match find(claim, None, &look) {
                Found::Free(made) => {
                    if self.is_buried(claim.token()) {
                        return Ok(Vote::Free.into());
                    }
                    let stands = usable(counter)?;
                    let raised = number.map(|number| number.max(stands));
                    // The number of the attempt is not that of the counter, which another attempt may have raised.
                    (self.create(target, (made, attempt), number, (raised, counter)).await?, Vote::Restored)
                }
                Found::Own(first) if first.stat.owner == self.id => {
                    (self.give_number(target, &first, (None, None)).await?, Vote::Granted)
                }
                Found::Own(first) => {
                    let unfenced = Target { claim, lock, dir: dir.clone(), counter: None };
                    (self.replace(&unfenced, &first, Some(&look), (None, None)).await?, Vote::Granted)
                }
                Found::Place(_) => return Ok(Vote::NotYourTurn.into()),
                Found::Hindered(first) => return Ok(self.refusal(lock, &first).into()),
            };
            if let Ok(stood) = stood {
                let (czxid, known) =
                    (stood.czxid, self.memory.own.lock().holder(lock, claim.token()).cloned());
                // A renewal never shortens.
                let until = self.memory.now() + ttl;
                self.keep(target, stood, known.map_or(until, |known| known.until.max(until)))?;
                let from = Some(self.memory.counts_from(ttl)?);
                return Ok(Answer { vote, number: None, from, czxid });
            }
            self.forget(target);
        }
        Err(contended().into())
    }

    /// Renews a claim if its place is in a list of what the session has, which serves all renewals for a while.
    async fn renew_by_list(&self, target: &Target<'_>, ttl: Duration) -> Result<Option<Answer>, Fault> {
        let Target { claim, lock, .. } = target;
        let known = self.memory.own.lock().holder(lock, claim.token()).cloned();
        let Some(own) = known else { return Ok(None) };
        let confirmed = if let Some(confirmed) = self.confirmed(&own) {
            confirmed
        } else {
            self.list().await?;
            self.confirmed(&own).unwrap_or(false)
        };
        if !confirmed {
            self.memory.own.lock().remove(lock, &*own.key);
            return Ok(None);
        }
        let from = Some(self.memory.counts_from(ttl)?);
        let until = self.memory.now() + ttl;
        let mut all = self.memory.own.lock();
        // It may have ended meanwhile, and is then being deleted.
        if all.by_key(lock, &*own.key).is_none() {
            return Ok(None);
        }
        all.change(lock, &*own.key, |own| own.until = own.until.max(until));
        Ok(Some(Answer { vote: Vote::Granted, number: None, from, czxid: own.stored.czxid }))
    }

    /// Whether the session still has this place, by the last list of what it has; nothing if that is too old.
    pub(crate) fn confirmed(&self, own: &Own) -> Option<bool> {
        let life = self.memory.life.lock();
        let life = life.as_ref().filter(|life| life.generation == self.generation)?;
        let is_recent = self.memory.now().since(life.listed_at) <= life.granted.timeout / LISTED;
        (is_recent && own.stored.put < life.listed_at).then(|| life.listed.contains(&own.key))
    }

    /// Lists what the session has, unless another request has just done so.
    pub(crate) async fn list(&self) -> Result<(), Trouble> {
        let asked = self.memory.now();
        let _alone = self.listing.lock().await;
        if self.memory.life.lock().as_ref().is_some_and(|life| life.listed_at > asked) {
            return Ok(());
        }
        let at = self.memory.now();
        let listed = list(&self.client, &self.memory).await?;
        if let Some(life) = &mut *self.memory.life.lock()
            && life.generation == self.generation
        {
            (life.listed, life.listed_at) = (listed, at);
        }
        Ok(())
    }

    /// Renews a lock without asking anybody, if the last list of what the session has is recent enough and has its place.
    pub(crate) fn renew_at_once(&self, claim: &Claim, ttl: Duration) -> Option<Response> {
        if claim.is_several() || ttl < self.memory.address.session() || self.ended().is_some() {
            return None;
        }
        let lock = claim.keys().next()?;
        let own = self.memory.own.lock().holder(lock, claim.token()).cloned()?;
        if self.confirmed(&own) != Some(true) {
            return None;
        }
        let (from, until) = (self.memory.counts_from(ttl).ok()?, self.memory.now() + ttl);
        let mut all = self.memory.own.lock();
        all.by_key(lock, &*own.key)?;
        all.change(lock, &*own.key, |own| own.until = own.until.max(until));
        Some(Response::new(Vote::Granted, Arc::clone(&self.identity)).counting_from(from))
    }

    async fn write_back(&self, target: &Target<'_>, number: FencingToken) -> Outcome {
        let Target { claim, lock, counter: path, .. } = target;
        for _ in 0..ATTEMPTS {
            let look = self.look(lock, path.as_deref()).await?;
            let counter = path.as_ref().map(|path| look.counter(path)).transpose()?.flatten();
            let Some(first) = &look.first else { return Ok(Vote::Free.into()) };
            match &first.owner {
                Owner::Waiter(..) => return Ok(Vote::Free.into()),
                Owner::Attempt(token, _) if token != claim.token() => {
                    return Ok(self.refusal(lock, first).into());
                }
                Owner::Attempt(..) => {}
            }
            let stands = counter.map_or(FencingToken::ZERO, |(number, _)| number);
            if stands >= number {
                let stands = Some(stands).filter(|stands| *stands > FencingToken::ZERO);
                return Ok(Answer::from(Vote::FenceAhead).numbered(stands));
            }
            if self.give_number(target, first, (Some(number), counter)).await?.is_ok() {
                return Ok(Answer::from(Vote::Granted).numbered(Some(number)));
            }
            self.forget(target);
        }
        Err(contended().into())
    }

    async fn release(&self, target: &Target<'_>) -> Outcome {
        let Target { claim, lock, .. } = target;
        let known = self.memory.own.lock().holder(lock, claim.token()).map(|own| Arc::clone(&own.key));
        let paths = match known {
            Some(path) => vec![path],
            None => self.find(target).await?,
        };
        Ok(self.delete(target, paths).await?.into())
    }

    /// Finds the places of an attempt that this process does not know: by the names that it gives, or by what the first says.
    async fn find(&self, target: &Target<'_>) -> Result<Vec<Arc<str>>, Trouble> {
        let look = self.look(target.lock, None).await?;
        let name = attempt(&target.dir, target.claim.token());
        let mut found: Vec<Arc<str>> =
            look.places.into_iter().map(|place| place.path).filter(|path| path.starts_with(&name)).collect();
        if let Some(first) = look.first
            && matches!(&first.owner, Owner::Attempt(token, _) if token == target.claim.token())
            && !found.contains(&first.path)
        {
            found.push(first.path);
        }
        Ok(found)
    }

    /// Deletes these places. Tells whether that is anybody's turn.
    async fn delete(&self, target: &Target<'_>, paths: Vec<Arc<str>>) -> Result<Vote, Trouble> {
        if paths.is_empty() {
            return Ok(Vote::Free);
        }
        let delete = |path: &Arc<str>| self.client.send(&Call::Delete { path: path.to_string() });
        let sent: Vec<_> = paths.iter().map(delete).collect();
        let left = self.client.send(&Call::GetChildren { path: target.dir.clone() });
        let mut has_deleted = false;
        for (sent, path) in sent.into_iter().zip(paths) {
            let at = sent.at;
            if let Some(answer) = sent.found().await? {
                has_deleted = true;
                self.committed(at, answer.zxid);
            }
            self.memory.own.lock().remove(target.lock, &*path);
        }
        let left = left.found().await?;
        let waits = match &left {
            Some(left) => self.note_left(&target.dir, left)?,
            None => false,
        };
        Ok(match (has_deleted, waits) {
            (false, _) => Vote::Free,
            (true, true) => Vote::Notified,
            (true, false) => Vote::Granted,
        })
    }

    /// Remembers a lock that has no places, and tells whether it has some.
    fn note_left(&self, dir: &str, left: &crate::client::Answer) -> Result<bool, Trouble> {
        let (names, stat) = left.children()?;
        let waits = names.iter().any(|name| layout::sequence(name).is_some());
        let mut cache = self.memory.cache.lock();
        if waits {
            cache.empty.remove(dir);
        } else {
            cache.remember_empty(dir.to_owned(), crate::look::created(&stat));
        }
        Ok(waits)
    }

    async fn cancel(&self, target: &Target<'_>, linger: Duration) -> Outcome {
        self.memory.tombs.lock().bury(target.claim.token(), self.memory.now(), linger);
        // What this process asks for from here on does nothing, and what it has asked for is carried out before what follows.
        let paths = self.find(target).await?;
        let vote = self.delete(target, paths).await?;
        Ok(if vote == Vote::Free { vote } else { Vote::Granted }.into())
    }

    async fn inspect(&self, lock: &Arc<str>, prefix_len: usize) -> Outcome {
        let layout = &self.memory.layout;
        let (dir, path) =
            (layout.dir(lock), layout.counter(lock.get(..prefix_len).unwrap_or_default(), lock));
        if !self.memory.listeners.lock().is_empty() {
            self.watch(lock, &dir);
            self.watches.tell_inspected(&dir);
        }
        let seen = self.look(lock, Some(&path)).await?;
        // What is no counter says nothing of the holder.
        let counter = seen.counter(&path).ok().flatten().map(|(number, _)| number);
        let counter = counter.filter(|counter| *counter > FencingToken::ZERO);
        let Some((first, Owner::Attempt(token, number))) =
            seen.first.as_ref().map(|first| (first, &first.owner))
        else {
            return Ok(Answer::from(Vote::Free).numbered(counter));
        };
        let number = number.or_else(|| token.number()).or(counter);
        Ok(Answer::from(Vote::from(self.holding(lock, first))).numbered(number))
    }
}

/// What an attempt finds at a lock.
enum Found {
    /// Nothing before it. With how many places were ever made, if the lock's node exists.
    Free(Option<i32>),
    /// Its waiter's place is first.
    Place(Arc<str>),
    /// It holds it.
    Own(First),
    /// Another one is first.
    Hindered(First),
}

/// Decides what an attempt finds at a lock.
fn find(claim: &Claim, place: Option<&Own>, look: &Look) -> Found {
    let Some(first) = &look.first else { return Found::Free(look.created) };
    if let Some(place) = place.filter(|place| place.key == first.path) {
        return Found::Place(Arc::clone(&place.key));
    }
    match &first.owner {
        Owner::Attempt(token, _) if token == claim.token() => Found::Own(first.clone()),
        Owner::Attempt(..) | Owner::Waiter(..) => Found::Hindered(first.clone()),
    }
}

/// Whether it is this waiter's turn.
fn is_turn(own: &Own) -> bool {
    matches!(&own.role, Role::Waiter(waiting) if waiting.turn_ends.is_some())
}

/// A counter at its end draws nothing.
fn usable(counter: Counter) -> Result<FencingToken, NodeError> {
    let stands = counter.map_or(FencingToken::ZERO, |(number, _)| number);
    if stands < FencingToken::MAX {
        return Ok(stands);
    }
    Err(failed(NodeErrorKind::WrongData, NoNumber::AtEnd.to_string()))
}

fn contended() -> NodeError {
    failed(NodeErrorKind::Busy, "other clients keep changing what the request depends on")
}

fn unexpected() -> Trouble {
    Trouble::Lost("a transaction has other results than were asked for".into())
}
