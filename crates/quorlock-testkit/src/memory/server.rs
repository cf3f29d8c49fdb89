//! The server process of a memory node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::{
    Claim, Draw, FencingToken, Mode, Moment, Token, fence_counter, intents_key, line_keys, readers_key,
};
use quorlock::{Answer, Clock, Expiry, Instance, NodeError, NodeErrorKind, Question};

use crate::store::{
    Change, Drawing, Failure, InTurn, Place, SetLife, SetOptions, Several, Sharing, Store, Told, Value,
};

pub(super) struct Server {
    name: String,
    clock: Arc<dyn Clock>,
    store: Store,
    instance: Arc<Instance>,
    failure: Option<NodeError>,
}

/// Longer than any quarantine.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Server {
    pub(super) fn new(name: &str, clock: Arc<dyn Clock>, now: Moment) -> Server {
        let instance = Arc::new(Instance::new(fresh_id(name), now, DAY));
        Server { name: name.to_owned(), clock, store: Store::default(), instance, failure: None }
    }

    pub(super) fn carry_out(&mut self, question: &Question) -> Result<Answer, NodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let told = match self.told(question) {
            Some(Ok(told)) => told,
            Some(Err(failure @ Failure::WrongType)) => {
                return Err(failed(NodeErrorKind::WrongData, failure.to_string()));
            }
            Some(Err(failure)) => return Err(failed(NodeErrorKind::Other, failure.to_string())),
            None => {
                let message = format!("ERR a memory node does not know the question {question:?}");
                return Err(failed(NodeErrorKind::Unsupported, message));
            }
        };
        Ok(Answer::new(told.vote, Arc::clone(&self.instance)).with_fencing_token(told.fencing_token))
    }

    /// What the store says; nothing to a question that it does not know.
    fn told(&mut self, question: &Question) -> Option<Result<Told, Failure>> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        if let Some(told) = self.told_of_sharing(now, wall, question) {
            return Some(told);
        }
        if let Some(told) = self.told_of_several(now, wall, question) {
            return Some(told);
        }
        let told = match question {
            Question::Acquire { claim, ttl, draw } => self.acquire(now, claim, *ttl, *draw),
            Question::AcquireInTurn { claim, ttl, ticket, patience, draw } => {
                let (key, tombstone, token) = bytes(claim);
                let (keys, name, counter) = (line_keys(claim.key()), ticket.name(), claim.fence_counter());
                let asked = InTurn {
                    key,
                    tombstone: &tombstone,
                    line: [keys[0].as_bytes(), keys[1].as_bytes()],
                    token,
                    ttl: *ttl,
                    place: ticket.wall_micros(),
                    name: name.as_bytes(),
                    patience: *patience,
                    drawing: drawing(&counter, *draw, wall),
                };
                self.store.acquire_in_turn(now, &asked)
            }
            Question::WriteBack { claim, fencing_token } => {
                let (key, _, token) = bytes(claim);
                self.store.write_back(now, key, token, claim.fence_counter().as_bytes(), *fencing_token)
            }
            Question::LeaveLine { key, ticket } => {
                let [order, _] = line_keys(key);
                Ok(self.store.leave_line(now, order.as_bytes(), ticket.name().as_bytes()).into())
            }
            Question::Transfer { from, to, ttl, draw } => {
                let (key, tomb, token) = bytes(to);
                let counter = to.fence_counter();
                let drawing = drawing(&counter, *draw, wall);
                self.store.transfer(now, key, &tomb, [from.token().as_bytes(), token], *ttl, drawing)
            }
            Question::Renew { claim, ttl, fencing_token } => {
                let (key, tomb, token) = bytes(claim);
                let counter = claim.fence_counter();
                let fencing_token = fencing_token.map(|number| (counter.as_bytes(), number));
                self.store.renew(now, key, &tomb, token, *ttl, fencing_token)
            }
            Question::Release { claim } => {
                let mark = claim.want_mark();
                self.store.release(now, claim.key().as_bytes(), mark.as_bytes(), claim.token().as_bytes())
            }
            Question::Cancel { claim, linger } => {
                let (key, tomb, token) = bytes(claim);
                self.store.cancel(now, key, &tomb, token, *linger)
            }
            Question::Inspect { key } => self.inspect(now, key),
            Question::Intend { key, ticket, patience } => {
                let intents = intents_key(key);
                Ok(self.store.intend(now, intents.as_bytes(), ticket.name().as_bytes(), *patience).into())
            }
            Question::Desist { key, ticket } => {
                let (intents, name) = (intents_key(key), ticket.name());
                self.store.desist(now, key.as_bytes(), intents.as_bytes(), name.as_bytes())
            }
            Question::Forget { key } => Ok(self.store.forget(now, fence_counter(key).as_bytes()).into()),
            // A kind that is newer than this kit.
            _ => return None,
        };
        Some(told)
    }

    /// The same for a claim that shares its lock; nothing to any other.
    fn told_of_sharing(
        &mut self,
        now: Moment,
        wall: Duration,
        question: &Question,
    ) -> Option<Result<Told, Failure>> {
        let (Question::Acquire { claim, .. }
        | Question::Renew { claim, .. }
        | Question::WriteBack { claim, .. }
        | Question::Release { claim }
        | Question::Cancel { claim, .. }) = question
        else {
            return None;
        };
        if claim.mode() == Mode::Exclusive {
            return None;
        }
        let (key, tombstone, token) = bytes(claim);
        let (readers, intents) = (readers_key(claim.key()), intents_key(claim.key()));
        let (readers, counter) = (readers.as_bytes(), claim.fence_counter());
        Some(match question {
            Question::Acquire { ttl, draw, .. } => self.store.acquire_shared(
                now,
                &Sharing {
                    key,
                    tombstone: &tombstone,
                    mark: claim.want_mark().as_bytes(),
                    readers,
                    intents: intents.as_bytes(),
                    token,
                    ttl: *ttl,
                    drawing: drawing(&counter, *draw, wall),
                },
            ),
            Question::Renew { ttl, fencing_token, .. } => {
                let fencing_token = fencing_token.map(|number| (counter.as_bytes(), number));
                self.store.renew_shared(now, key, [&tombstone, readers], token, *ttl, fencing_token)
            }
            Question::WriteBack { fencing_token, .. } => {
                self.store.write_back_shared(now, [key, readers], token, counter.as_bytes(), *fencing_token)
            }
            Question::Release { .. } => self.store.release_shared(now, [key, readers], token),
            Question::Cancel { linger, .. } => {
                self.store.cancel_shared(now, [key, readers], &tombstone, token, *linger)
            }
            Question::AcquireInTurn { .. }
            | Question::Transfer { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. }
            | Question::LeaveLine { .. }
            | Question::Inspect { .. }
            | _ => return None,
        })
    }

    /// The same for a claim of several locks; nothing to any other.
    fn told_of_several(
        &mut self,
        now: Moment,
        wall: Duration,
        question: &Question,
    ) -> Option<Result<Told, Failure>> {
        let (Question::Acquire { claim, .. }
        | Question::Renew { claim, .. }
        | Question::WriteBack { claim, .. }
        | Question::Release { claim }
        | Question::Cancel { claim, .. }) = question
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
        Some(match question {
            Question::Acquire { ttl, draw, .. } => {
                self.store.acquire_several(now, &several, *ttl, draw.map(|draw| (draw, wall)))
            }
            Question::Renew { ttl, fencing_token, .. } => {
                self.store.renew_several(now, &several, *ttl, *fencing_token)
            }
            Question::WriteBack { fencing_token, .. } => {
                self.store.write_back_several(now, &several, *fencing_token)
            }
            Question::Release { .. } => Ok(self.store.release_several(now, &several)),
            Question::Cancel { linger, .. } => Ok(self.store.cancel_several(now, &several, *linger)),
            Question::AcquireInTurn { .. }
            | Question::Transfer { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. }
            | Question::LeaveLine { .. }
            | Question::Inspect { .. }
            | _ => return None,
        })
    }

    fn acquire(
        &mut self,
        now: Moment,
        claim: &Claim,
        ttl: Duration,
        draw: Option<Draw>,
    ) -> Result<Told, Failure> {
        let (key, tomb, token) = bytes(claim);
        if let Some(draw) = draw {
            let (mark, counter) = (claim.want_mark(), claim.fence_counter());
            let drawing = Drawing { counter: counter.as_bytes(), draw, wall: self.clock.wall() };
            return self.store.acquire(now, key, [&tomb, mark.as_bytes()], token, ttl, drawing);
        }
        self.store.take(now, key, &tomb, token, ttl)
    }

    fn inspect(&mut self, now: Moment, key: &str) -> Result<Told, Failure> {
        let (counter, readers) = (fence_counter(key), readers_key(key));
        self.store.inspect(now, key.as_bytes(), counter.as_bytes(), readers.as_bytes())
    }

    /// Notes the next change of `key`.
    pub(super) fn watch(&mut self, key: &str) {
        self.store.watch(key.as_bytes());
    }

    /// Forgets what to note.
    pub(super) fn unwatch_all(&mut self) {
        self.store.unwatch_all();
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.store.take_changes(self.clock.now())
    }

    /// When something will have changed by itself, on the server's own clock.
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

    pub(super) fn restart(&mut self, now: Moment) {
        self.instance = Arc::new(Instance::new(fresh_id(&self.name), now, Duration::ZERO));
        self.failure = None;
    }

    pub(super) fn age(&mut self, now: Moment, age: Duration) {
        self.instance = Arc::new(Instance::new(self.instance.id.clone(), now, age));
    }

    pub(super) fn instance_id(&mut self, id: &str) {
        self.instance = Arc::new(Instance::new(id, self.instance.seen, self.instance.age));
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

fn drawing(counter: &str, draw: Option<Draw>, wall: Duration) -> Option<Drawing<'_>> {
    draw.map(|draw| Drawing { counter: counter.as_bytes(), draw, wall })
}

fn failed(kind: NodeErrorKind, message: String) -> NodeError {
    NodeError::Failed { kind, reason: message.into() }
}

/// Never the same twice in one process, and the same in every run of a simulation.
fn fresh_id(name: &str) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(1);
    format!("{name}#{}", STARTED.fetch_add(1, Ordering::Relaxed))
}
