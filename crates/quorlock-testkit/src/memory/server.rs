//! The server process of a memory node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::{Claim, Moment, Token, line_keys};
use quorlock::{Answer, Clock, Expiry, Instance, Lasting, NodeError, Question};

use crate::store::{Change, InTurn, SetLife, SetOptions, Store, Value};

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
        let now = self.clock.now();
        let vote = match question {
            Question::Acquire { claim, ttl } => {
                let (key, tomb, token) = bytes(claim);
                let mark = claim.want_mark();
                self.store.acquire(now, key, [&tomb, mark.as_bytes()], token, *ttl)
            }
            Question::AcquireInTurn { claim, ttl, ticket, patience } => {
                let (key, tombstone, token) = bytes(claim);
                let (keys, name) = (line_keys(claim.key()), ticket.name());
                let asked = InTurn {
                    key,
                    tombstone: &tombstone,
                    line: [keys[0].as_bytes(), keys[1].as_bytes()],
                    token,
                    ttl: *ttl,
                    place: ticket.wall_micros(),
                    name: name.as_bytes(),
                    patience: *patience,
                };
                self.store.acquire_in_turn(now, &asked)
            }
            Question::LeaveLine { key, ticket } => {
                let [order, _] = line_keys(key);
                Ok(self.store.leave_line(now, order.as_bytes(), ticket.name().as_bytes()))
            }
            Question::Transfer { from, to, ttl } => {
                let (key, tomb, token) = bytes(to);
                self.store.transfer(now, key, &tomb, [from.token().as_bytes(), token], *ttl)
            }
            Question::Renew { claim, ttl } => {
                let (key, tomb, token) = bytes(claim);
                self.store.renew(now, key, &tomb, token, *ttl)
            }
            Question::Release { claim } => {
                let mark = claim.want_mark();
                self.store.release(now, claim.key().as_bytes(), mark.as_bytes(), claim.token().as_bytes())
            }
            Question::Cancel { claim, linger } => {
                let (key, tomb, token) = bytes(claim);
                self.store.cancel(now, key, &tomb, token, *linger)
            }
            Question::Inspect { key } => self.store.inspect(now, key.as_bytes()),
            // A kind that is newer than this kit.
            _ => return Err(lasting(format!("ERR a memory node does not know the question {question:?}"))),
        };
        let answer = vote.map(|vote| Answer::new(vote, Arc::clone(&self.instance)));
        answer.map_err(|wrong| lasting(wrong.to_string()))
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

    pub(super) fn fail(&mut self, message: Option<&str>) {
        self.failure = message.map(|message| {
            let lasts =
                ["WRONGTYPE", "WRONGPASS", "NOAUTH", "NOPERM"].iter().any(|code| message.starts_with(code));
            let lasting = if lasts { Lasting::UntilMended } else { Lasting::Passing };
            NodeError::Failed { message: message.into(), lasting }
        });
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

fn lasting(message: String) -> NodeError {
    NodeError::Failed { message: message.into(), lasting: Lasting::UntilMended }
}

/// Never the same twice in one process, and the same in every run of a simulation.
fn fresh_id(name: &str) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(1);
    format!("{name}#{}", STARTED.fetch_add(1, Ordering::Relaxed))
}
