//! The server process of a memory node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::{
    Claim, FenceHint, FencingToken, InboxId, Mode, Moment, Token, fence_counter, intents_key,
    is_auxiliary_key, lock_of_queue, queue_entry, readers_key, turn_key, want_mark,
};
use quorlock::{
    node::{
        Capabilities, Durability, Expiry, Identity, ListedKeys, NodeError, NodeErrorKind, Request, Response,
    },
    runtime::Clock,
};

use crate::store::{
    Change, Drawing, Enqueue, Failure, Offer, Place, ScriptResult, SetLife, SetOptions, Several, Sharing,
    Store, Value,
};

pub(super) struct Server {
    name: String,
    clock: Arc<dyn Clock>,
    store: Store,
    identity: Arc<Identity>,
    failure: Option<NodeError>,
    capabilities: Capabilities,
}

/// What a process leaves to its successor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    Data,
}

/// Longer than any quarantine.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Server {
    pub(super) fn new(name: &str, clock: Arc<dyn Clock>, now: Moment) -> Server {
        let identity = Arc::new(Identity::new(fresh_id(name), now, DAY));
        Server {
            name: name.to_owned(),
            clock,
            store: Store::default(),
            identity,
            failure: None,
            capabilities: Capabilities::all(),
        }
    }

    pub(super) fn carry_out(&mut self, request: &Request) -> Result<Response, NodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.capabilities.check(request)?;
        let told = match self.told(request) {
            Some(Ok(told)) => told,
            Some(Err(failure @ Failure::WrongType)) => {
                return Err(failed(NodeErrorKind::WrongData, failure.to_string()));
            }
            Some(Err(failure)) => return Err(failed(NodeErrorKind::Other, failure.to_string())),
            None => {
                let message = format!("ERR a memory node does not know the request {request:?}");
                return Err(failed(NodeErrorKind::Unsupported, message));
            }
        };
        Ok(Response::new(told.vote, Arc::clone(&self.identity)).with_fencing_token(told.fencing_token))
    }

    /// Returns the keys of locks that begin with `prefix`.
    pub(super) fn keys_of_locks(&mut self, prefix: &str, which: ListedKeys) -> Vec<Arc<str>> {
        let stored = self.keys();
        let of_locks = stored.iter().filter_map(|key| match which {
            ListedKeys::Locks => Some(&**key).filter(|key| !is_auxiliary_key(key)),
            ListedKeys::Queues => lock_of_queue(key),
        });
        of_locks.filter(|key| key.starts_with(prefix)).map(Arc::from).collect()
    }

    /// Returns the store's answer; `None` if it does not know the request.
    fn told(&mut self, request: &Request) -> Option<Result<ScriptResult, Failure>> {
        let now = self.clock.now();
        self.store.set_wall(self.clock.wall());
        if let Some(told) = self.told_of_sharing(now, request) {
            return Some(told);
        }
        if let Some(told) = self.told_of_several(now, request) {
            return Some(told);
        }
        let told = match request {
            Request::Acquire { claim, ttl, fence_hint } => self.acquire(now, claim, *ttl, *fence_hint),
            Request::Enqueue { key, waiter, elapsed, patience, turn, terms, context, others_seen } => {
                let entry = queue_entry(terms.as_deref(), context);
                let (turn_key, mark, name) = (turn_key(key, *waiter), want_mark(key), waiter.to_string());
                let asked = Enqueue {
                    key: key.as_bytes(),
                    turn_key: turn_key.as_bytes(),
                    mark: mark.as_bytes(),
                    name: name.as_bytes(),
                    elapsed: *elapsed,
                    patience: *patience,
                    turn: *turn,
                    entry: &entry,
                    others_seen: *others_seen,
                };
                self.store.enqueue(now, &asked)
            }
            Request::WriteBack { claim, fencing_token } => {
                let (key, _, token) = bytes(claim);
                self.store.write_back(now, key, token, claim.fence_counter().as_bytes(), *fencing_token)
            }
            Request::LeaveQueue { key, waiter } => {
                let (turn_key, mark) = (turn_key(key, *waiter), want_mark(key));
                let keys = [key.as_bytes(), turn_key.as_bytes(), mark.as_bytes()];
                Ok(self.store.leave_queue(now, keys, waiter.to_string().as_bytes()).into())
            }
            Request::ListWaiters { key } => {
                Ok(self.store.list_waiters(now, want_mark(key).as_bytes()).into())
            }
            Request::Transfer { from, to, ttl, fence_hint } => {
                let (key, tomb, token) = bytes(to);
                let counter = to.fence_counter();
                let drawing = drawing(&counter, *fence_hint);
                self.store.transfer(now, key, &tomb, [from.token().as_bytes(), token], *ttl, drawing)
            }
            Request::Renew { claim, ttl, fencing_token } => {
                let (key, tomb, token) = bytes(claim);
                let counter = claim.fence_counter();
                let fencing_token = fencing_token.map(|number| (counter.as_bytes(), number));
                self.store.renew(now, key, &tomb, token, *ttl, fencing_token)
            }
            Request::Release { claim } => {
                let mark = claim.want_mark();
                self.store.release(now, claim.key().as_bytes(), mark.as_bytes(), claim.token().as_bytes())
            }
            Request::Offer { claim, next, queued, fence_hint } => {
                let (mark, counter) = (claim.want_mark(), claim.fence_counter());
                let name = if *queued { next.waiter.to_string() } else { String::new() };
                let inbox = next.terms.inbox.to_string();
                let tombstone = next.terms.tombstone_key(claim.key()).to_string();
                let offer = Offer {
                    token: claim.token().as_bytes(),
                    mark: mark.as_bytes(),
                    next: next.terms.token.as_bytes(),
                    life: next.terms.life,
                    inbox: inbox.as_bytes(),
                    drawing: drawing(&counter, *fence_hint),
                    name: name.as_bytes(),
                    tombstone: tombstone.as_bytes(),
                };
                self.store.offer(now, claim.key().as_bytes(), &offer)
            }
            Request::Cancel { claim, linger } => {
                let (key, tomb, token) = bytes(claim);
                self.store.cancel(now, key, &tomb, token, *linger)
            }
            Request::Inspect { key } => self.inspect(now, key),
            Request::AnnounceWriter { key, waiter, patience } => {
                let intents = intents_key(key);
                Ok(self
                    .store
                    .intend(now, intents.as_bytes(), waiter.to_string().as_bytes(), *patience)
                    .into())
            }
            Request::WithdrawWriter { key, waiter } => {
                let (intents, name) = (intents_key(key), waiter.to_string());
                self.store.desist(now, key.as_bytes(), intents.as_bytes(), name.as_bytes())
            }
            Request::DeleteFencingCounter { key } => {
                Ok(self.store.forget(now, fence_counter(key).as_bytes()).into())
            }
            // A request that is newer than this crate.
            _ => return None,
        };
        Some(told)
    }

    /// The same for a shared claim; `None` for any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are the same for every claim, or newer")]
    fn told_of_sharing(&mut self, now: Moment, request: &Request) -> Option<Result<ScriptResult, Failure>> {
        let (Request::Acquire { claim, .. }
        | Request::Renew { claim, .. }
        | Request::WriteBack { claim, .. }
        | Request::Release { claim }
        | Request::Cancel { claim, .. }) = request
        else {
            return None;
        };
        if claim.mode() == Mode::Exclusive {
            return None;
        }
        let (key, tombstone, token) = bytes(claim);
        let (readers, intents) = (readers_key(claim.key()), intents_key(claim.key()));
        let (readers, counter, mark) = (readers.as_bytes(), claim.fence_counter(), claim.want_mark());
        let mark = mark.as_bytes();
        Some(match request {
            Request::Acquire { ttl, fence_hint, .. } => self.store.acquire_shared(
                now,
                &Sharing {
                    key,
                    tombstone: &tombstone,
                    mark,
                    readers,
                    intents: intents.as_bytes(),
                    token,
                    ttl: *ttl,
                    drawing: drawing(&counter, *fence_hint),
                },
            ),
            Request::Renew { ttl, fencing_token, .. } => {
                let fencing_token = fencing_token.map(|number| (counter.as_bytes(), number));
                self.store.renew_shared(now, key, [&tombstone, readers], token, *ttl, fencing_token)
            }
            Request::WriteBack { fencing_token, .. } => {
                self.store.write_back_shared(now, [key, readers], token, counter.as_bytes(), *fencing_token)
            }
            Request::Release { .. } => self.store.release_shared(now, [key, readers, mark], token),
            Request::Cancel { linger, .. } => {
                self.store.cancel_shared(now, [key, readers, mark], &tombstone, token, *linger)
            }
            _ => return None,
        })
    }

    /// The same for a claim of several locks; `None` for any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are the same for every claim, or newer")]
    fn told_of_several(&mut self, now: Moment, request: &Request) -> Option<Result<ScriptResult, Failure>> {
        let (Request::Acquire { claim, .. }
        | Request::Renew { claim, .. }
        | Request::WriteBack { claim, .. }
        | Request::Release { claim }
        | Request::Cancel { claim, .. }) = request
        else {
            return None;
        };
        if !claim.is_several() {
            return None;
        }
        let names = claim.each().map(|one| {
            [one.key().to_owned(), one.tombstone(), one.want_mark(), one.fence_counter()]
                .map(String::into_bytes)
        });
        let names: Vec<_> = names.collect();
        let locks =
            names.iter().map(|[key, tombstone, mark, counter]| Place { key, tombstone, mark, counter });
        let several = Several { locks: &locks.collect::<Vec<_>>(), token: claim.token().as_bytes() };
        Some(match request {
            Request::Acquire { ttl, fence_hint, .. } => {
                self.store.acquire_several(now, &several, *ttl, *fence_hint)
            }
            Request::Renew { ttl, fencing_token, .. } => {
                self.store.renew_several(now, &several, *ttl, *fencing_token)
            }
            Request::WriteBack { fencing_token, .. } => {
                self.store.write_back_several(now, &several, *fencing_token)
            }
            Request::Release { .. } => Ok(self.store.release_several(now, &several)),
            Request::Cancel { linger, .. } => Ok(self.store.cancel_several(now, &several, *linger)),
            _ => return None,
        })
    }

    fn acquire(
        &mut self,
        now: Moment,
        claim: &Claim,
        ttl: Duration,
        fence_hint: Option<FenceHint>,
    ) -> Result<ScriptResult, Failure> {
        let (key, tomb, token) = bytes(claim);
        if let Some(fence_hint) = fence_hint {
            let counter = claim.fence_counter();
            let drawing = Drawing { counter: counter.as_bytes(), fence_hint };
            return self.store.acquire(now, key, &tomb, token, ttl, drawing);
        }
        self.store.take(now, key, &tomb, token, ttl)
    }

    fn inspect(&mut self, now: Moment, key: &str) -> Result<ScriptResult, Failure> {
        let (counter, readers) = (fence_counter(key), readers_key(key));
        self.store.inspect(now, key.as_bytes(), counter.as_bytes(), readers.as_bytes())
    }

    /// Replaces the set of inboxes that have a listener.
    pub(super) fn listens(&mut self, inboxes: &[InboxId]) {
        self.store.listen_only(inboxes.iter().map(|inbox| inbox.to_string().into_bytes()));
    }

    pub(super) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Records the next change of `key`.
    pub(super) fn watch(&mut self, key: &str) {
        self.store.watch(key.as_bytes());
    }

    /// Stops watching all keys.
    pub(super) fn unwatch_all(&mut self) {
        self.store.unwatch_all();
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.store.take_changes(self.clock.now())
    }

    /// Returns when the next expiry is due, on the server's own clock.
    pub(super) fn next_change(&self) -> Option<Moment> {
        self.store.next_change()
    }

    pub(super) fn fail(&mut self, error: Option<NodeError>) {
        self.failure = error;
    }

    pub(super) fn forget(&mut self) {
        self.store.flush();
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.store.del(self.clock.now(), key.as_bytes());
    }

    pub(super) fn with_capabilities(&mut self, capabilities: Capabilities) {
        self.capabilities = capabilities;
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(super) fn restart(&mut self, now: Moment, kept: Kept) {
        self.failure = None;
        if kept == Kept::Data && self.capabilities.durability == Durability::Durable {
            return;
        }
        self.identity = Arc::new(Identity::new(fresh_id(&self.name), now, Duration::ZERO));
    }

    pub(super) fn age(&mut self, now: Moment, age: Duration) {
        self.identity = Arc::new(Identity::new(self.identity.id.clone(), now, age));
    }

    pub(super) fn identify_as(&mut self, id: &str) {
        self.identity = Arc::new(Identity::new(id, self.identity.seen, self.identity.age));
    }

    pub(super) fn keys(&mut self) -> Vec<String> {
        let keys = self.store.keys(self.clock.now());
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    pub(super) fn holder(&mut self, key: &str) -> Option<Token> {
        self.store.get(self.clock.now(), key.as_bytes()).ok().flatten().map(Token::found)
    }

    pub(super) fn readers(&mut self, key: &str) -> Vec<(Token, Duration)> {
        let shares = self.store.readers(self.clock.now(), key.as_bytes(), readers_key(key).as_bytes());
        shares.into_iter().map(|(token, left)| (Token::found(&token), left)).collect()
    }

    pub(super) fn fencing_token(&mut self, key: &str) -> Option<FencingToken> {
        let counter = self.store.score(self.clock.now(), fence_counter(key).as_bytes()).ok().flatten()?;
        FencingToken::new(counter)
    }

    pub(super) fn expiry(&mut self, key: &str) -> Option<Expiry> {
        self.store.pttl(self.clock.now(), key.as_bytes())
    }

    pub(super) fn set_data(&mut self, key: &str, value: Value, expiry: Expiry) {
        let life = match expiry {
            Expiry::In(life) => SetLife::For(life),
            Expiry::Never => SetLife::Forever,
        };
        let options = SetOptions { life, ..SetOptions::default() };
        self.store.set(self.clock.now(), key.as_bytes(), value, options);
    }
}

fn bytes(claim: &Claim) -> (&[u8], Vec<u8>, &[u8]) {
    (claim.key().as_bytes(), claim.tombstone().into_bytes(), claim.token().as_bytes())
}

fn drawing(counter: &str, fence_hint: Option<FenceHint>) -> Option<Drawing<'_>> {
    fence_hint.map(|fence_hint| Drawing { counter: counter.as_bytes(), fence_hint })
}

fn failed(kind: NodeErrorKind, message: String) -> NodeError {
    NodeError::Failed { kind, reason: message.into() }
}

/// Returns an id that is unique in the process, and the same in every run of a simulation.
fn fresh_id(name: &str) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(1);
    format!("{name}#{}", STARTED.fetch_add(1, Ordering::Relaxed))
}
