//! What every clause needs: its own keys, tokens, requests and comparisons.

use std::array::from_fn;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorlock::protocol::{
    Claim, Drift, FenceHint, FencingToken, InboxId, Moment, OfferTerms, Token, WaiterId,
};
use quorlock::{
    lock::QueuedWaiter,
    node::{Expiry, Holding, Node, NodeError, Request, Response, Vote, ask},
    runtime::{Clock, Entropy, SystemEntropy},
};

use super::{HintRecorder, Plant};
use crate::scaled;
use crate::value::Value;

/// `Ok` if a clause holds, otherwise what was found instead.
pub(super) type Finding = Result<(), String>;

/// Longer than any clause takes.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(100);
/// The pause between two looks.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Bench<'a> {
    pub(super) node: &'a dyn Node,
    pub(super) plant: &'a dyn Plant,
    pub(super) clock: &'a dyn Clock,
    began: Moment,
    /// Collects the node's hints.
    pub(super) ear: &'a HintRecorder,
    /// A TTL that is short enough to wait for: a tenth of a second, or a little more than the least TTL of the node;
    /// longer on a busy machine, where a node does not answer in a part of that.
    pub(super) short: Duration,
    /// Whether the store cannot have what this clause plants there.
    pub(super) impossible: AtomicBool,
    /// Unique per clause and run, so that a server that remembers the last run does not matter.
    name: String,
    made: AtomicU64,
    /// The counters of the keys so far.
    counters: Mutex<BTreeSet<String>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        node: &'a dyn Node,
        plant: &'a dyn Plant,
        clock: &'a dyn Clock,
        ear: &'a HintRecorder,
        clause: usize,
    ) -> Bench<'a> {
        let name = format!("contract/{:016x}/{clause}", SystemEntropy::default().next_u64());
        let short = scaled(SHORT).max(node.limits().least_ttl * 11 / 10);
        Bench {
            node,
            plant,
            clock,
            began: clock.now(),
            ear,
            short,
            impossible: AtomicBool::new(false),
            name,
            made: AtomicU64::new(0),
            counters: Mutex::default(),
        }
    }

    /// Returns an unused key with a counter of its own.
    pub(super) fn key(&self) -> String {
        self.unused(|number| format!("{}/{number}", self.name))
    }

    fn unused(&self, key: impl Fn(u64) -> String) -> String {
        loop {
            let key = key(self.made.fetch_add(1, Ordering::Relaxed));
            if self.counters.lock().unwrap_or_else(PoisonError::into_inner).insert(self.counter_key(&key)) {
                return key;
            }
        }
    }

    /// The length of the key prefix: each clause has one of its own, and so counters of its own.
    pub(super) fn prefix_len(&self, key: &str) -> usize {
        let tag = if key.starts_with('{') { "{}/" } else { "/" };
        if key.contains(&self.name) { self.name.len() + tag.len() } else { 0 }
    }

    /// Returns the key of the lock's fencing counter.
    pub(super) fn counter_key(&self, key: &str) -> String {
        self.plant.counter(key.get(..self.prefix_len(key)).unwrap_or_default(), key)
    }

    /// Returns an unused key in the same hash slot as all others from this method, for claims of several
    /// locks.
    pub(super) fn key_beside(&self) -> String {
        self.unused(|number| format!("{{{}}}/{number}", self.name))
    }

    /// Returns a new attempt to get `key`, by a process with this inbox.
    pub(super) fn claim_of(&self, inbox: InboxId, key: &str) -> Arc<Claim> {
        let token = Token::new(inbox.mark(SystemEntropy::default().next_u128()), &self.name);
        self.claim_with(key, token)
    }

    /// Returns a new attempt to get `key`.
    pub(super) fn claim(&self, key: &str) -> Arc<Claim> {
        let context = format!("{}/{}", self.name, self.made.fetch_add(1, Ordering::Relaxed));
        self.claim_with(key, Token::new(SystemEntropy::default().next_u128(), &context))
    }

    /// Returns new attempts to get one unused key.
    pub(super) fn claims<const N: usize>(&self) -> [Arc<Claim>; N] {
        let key = self.key();
        from_fn(|_| self.claim(&key))
    }

    pub(super) fn claim_with(&self, key: &str, token: Token) -> Arc<Claim> {
        Arc::new(Claim::new(key.into(), token).below(self.prefix_len(key)))
    }

    /// Whether locks of a slot share a counter, so that the number of a holder has to be kept elsewhere.
    pub(super) fn shares_counters(&self) -> bool {
        let [one, other] =
            ["one", "other"].map(|name| self.counter_key(&format!("{}{{tag}}{name}", self.name)));
        one == other
    }

    /// Skips the clause, because the store is made in another way.
    pub(super) fn skip(&self) {
        self.impossible.store(true, Ordering::Relaxed);
    }

    pub(super) async fn plant(&self, key: &str, value: impl Into<Value>, expiry: Expiry) -> Finding {
        let planted = self.plant.plant(key, value.into(), expiry).await;
        self.note_impossible(&planted);
        planted.map_err(|error| format!("cannot plant data under {key}: {error}"))
    }

    /// The clause is skipped where the store has no such data, or its other client cannot do this.
    pub(super) fn note_impossible<T>(&self, outcome: &io::Result<T>) {
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            self.impossible.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the expiry of the key, as another client sees it.
    pub(super) async fn expiry(&self, key: &str) -> Result<Option<Expiry>, String> {
        let expiry = self.plant.expiry(key).await;
        self.note_impossible(&expiry);
        expiry.map_err(|error| format!("cannot look at {key}: {error}"))
    }

    /// Deletes the key as another client.
    pub(super) async fn remove(&self, key: &str) -> Finding {
        let removed = self.plant.remove(key).await;
        self.note_impossible(&removed);
        removed.map_err(|error| format!("cannot remove {key} as another client: {error}"))
    }
}

/// Requests.
impl Bench<'_> {
    /// Draws a number like a client whose calendar is right.
    pub(super) fn fence_hint(&self) -> FenceHint {
        FenceHint::at(self.clock.wall(), None, LONG)
    }

    /// The same for a client that knows of contention: a refusal leaves nothing.
    pub(super) fn contended_draw(&self) -> FenceHint {
        FenceHint::at(self.clock.wall(), Some(FencingToken::ZERO), LONG)
    }

    /// Acquires with fencing, as [`Bench::transfer`] does.
    pub(super) async fn acquire(&self, claim: &Arc<Claim>, ttl: Duration) -> Result<Vote, String> {
        self.vote(acquisition(claim, ttl, self.fence_hint())).await
    }

    /// Returns new attempts to get one unused key, of which the first has acquired it.
    pub(super) async fn holder<const N: usize>(&self) -> Result<[Arc<Claim>; N], String> {
        let claims = self.claims();
        if let Some(first) = claims.first() {
            self.acquire(first, LONG).await?;
        }
        Ok(claims)
    }

    /// Returns a new attempt that has acquired `key`.
    pub(super) async fn hold(&self, key: &str) -> Result<Arc<Claim>, String> {
        let claim = self.claim(key);
        self.acquire(&claim, LONG).await?;
        Ok(claim)
    }

    /// The same for a client that knows of contention.
    pub(super) async fn contend(&self, claim: &Arc<Claim>) -> Result<Vote, String> {
        self.vote(acquisition(claim, LONG, self.contended_draw())).await
    }

    /// Acquires without fencing.
    pub(super) async fn acquire_plainly(&self, claim: &Arc<Claim>) -> Result<Vote, String> {
        self.vote(Request::Acquire { claim: Arc::clone(claim), ttl: LONG, fence_hint: None }).await
    }

    pub(super) async fn enqueue(
        &self,
        key: &str,
        waiter: WaiterId,
        elapsed: Duration,
        patience: Duration,
    ) -> Result<Vote, String> {
        self.vote(Request::Enqueue {
            key: key.into(),
            waiter,
            elapsed,
            patience,
            turn: LONG,
            terms: None,
            context: "anna:1".into(),
            others_seen: false,
        })
        .await
    }

    /// Returns the waiters.
    pub(super) async fn listed(&self, key: &str) -> Result<Vec<QueuedWaiter>, String> {
        let vote = self.vote(Request::ListWaiters { key: key.into() }).await?;
        let Vote::Waiters(listing) = vote else { return Err(format!("expected a list, found {vote:?}")) };
        ensure(!listing.has_more, format!("there may be more than {listing:?}"))?;
        Ok(listing.waiters)
    }

    /// The same for a waiter that accepts an offer.
    pub(super) async fn enqueue_on(
        &self,
        key: &str,
        waiter: WaiterId,
        elapsed: Duration,
        terms: OfferTerms,
    ) -> Result<Vote, String> {
        self.enqueue_beside(key, waiter, elapsed, (terms, false)).await
    }

    /// The same for a waiter that may have seen another program hold the lock.
    pub(super) async fn enqueue_beside(
        &self,
        key: &str,
        waiter: WaiterId,
        elapsed: Duration,
        (terms, others_seen): (OfferTerms, bool),
    ) -> Result<Vote, String> {
        let terms = Some(Arc::new(terms));
        self.vote(Request::Enqueue {
            key: key.into(),
            waiter,
            elapsed,
            patience: LONG,
            turn: LONG,
            terms,
            context: "anna:1".into(),
            others_seen,
        })
        .await
    }

    pub(super) async fn leave_queue(&self, key: &str, waiter: WaiterId) -> Result<Vote, String> {
        self.vote(Request::LeaveQueue { key: key.into(), waiter }).await
    }

    pub(super) async fn transfer(
        &self,
        from: &Arc<Claim>,
        to: &Arc<Claim>,
        ttl: Duration,
    ) -> Result<Vote, String> {
        let (from, to, fence_hint) = (Arc::clone(from), Arc::clone(to), Some(self.fence_hint()));
        self.vote(Request::Transfer { from, to, ttl, fence_hint }).await
    }

    pub(super) async fn renew(&self, claim: &Arc<Claim>, ttl: Duration) -> Result<Vote, String> {
        self.vote(Request::Renew { claim: Arc::clone(claim), ttl, fencing_token: Some(number(1)) }).await
    }

    pub(super) async fn write_back(
        &self,
        claim: &Arc<Claim>,
        fencing_token: FencingToken,
    ) -> Result<Vote, String> {
        self.vote(Request::WriteBack { claim: Arc::clone(claim), fencing_token }).await
    }

    pub(super) async fn release(&self, claim: &Arc<Claim>) -> Result<Vote, String> {
        self.vote(Request::Release { claim: Arc::clone(claim) }).await
    }

    pub(super) async fn cancel(&self, claim: &Arc<Claim>, linger: Duration) -> Result<Vote, String> {
        self.vote(Request::Cancel { claim: Arc::clone(claim), linger }).await
    }

    pub(super) async fn inspect(&self, key: &str) -> Result<Vote, String> {
        self.vote(Request::inspect(key)).await
    }

    pub(super) async fn vote(&self, request: Request) -> Result<Vote, String> {
        self.vote_and_token(request).await.map(|(vote, _)| vote)
    }

    /// Returns the vote and the fencing counter.
    pub(super) async fn vote_and_token(
        &self,
        request: Request,
    ) -> Result<(Vote, Option<FencingToken>), String> {
        let shown = format!("{request:?}");
        let answer = self.ask(request).await;
        answer
            .map(|answer| (answer.vote, answer.fencing_token))
            .map_err(|error| format!("{shown} failed: {error:#}"))
    }

    /// Expects a grant, and returns the number that was drawn.
    pub(super) async fn drawn(&self, request: Request) -> Result<FencingToken, String> {
        let is_transfer = matches!(request, Request::Transfer { .. });
        let (vote, fencing_token) = self.vote_and_token(request).await?;
        // The key may have been free.
        is(&vote, if is_transfer && vote == Vote::Restored { &Vote::Restored } else { &Vote::Granted })?;
        fencing_token.ok_or_else(|| "granted without a number".to_owned())
    }

    /// Returns the counter of the lock at `key`.
    pub(super) async fn counter(&self, key: &str) -> Result<Option<FencingToken>, String> {
        let request = Request::Inspect { key: key.into(), prefix_len: self.prefix_len(key) };
        self.vote_and_token(request).await.map(|(_, fencing_token)| fencing_token)
    }

    /// Whether the node reports that it supports the request.
    pub(super) fn can(&self, request: &Request) -> bool {
        self.node.capabilities().check(request).is_ok()
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Response, NodeError> {
        ask(self.node, request).await
    }
}

/// Comparisons.
impl Bench<'_> {
    /// Expects the key to be held by this token, and to expire in at most `most`.
    pub(super) async fn held(&self, claim: &Claim, most: Duration) -> Result<Duration, String> {
        held_by(&self.inspect(claim.key()).await?, claim.token(), most)
    }

    /// Expects that of the [`LONG`] for which this clause has asked nothing is missing but what has passed since it began, and
    /// what a node may round.
    pub(super) fn is_whole(&self, left: Duration) -> Finding {
        let passed = self.clock.now().since(self.began);
        let least = LONG.saturating_sub(passed + Drift::MARGIN + self.node.grant_age(LONG));
        ensure(left >= least, format!("only {left:?} of {LONG:?} remain, and not {least:?}"))
    }

    /// Expects the key to be held by this token for all of [`LONG`].
    pub(super) async fn is_held_whole(&self, claim: &Claim) -> Finding {
        self.is_whole(self.held(claim, LONG).await?)
    }

    /// Expects that what has ended by now has lived for [`short`](Bench::short) since a moment before it was asked for.
    pub(super) fn has_lived(&self, what: &str, sent: Moment) -> Finding {
        let lived = self.clock.now().since(sent);
        // Servers count whole milliseconds, which the margin allows for.
        let is_whole = lived + Drift::MARGIN >= self.short;
        ensure(is_whole, format!("{what} of {:?} was gone after {lived:?}", self.short))
    }

    pub(super) async fn free(&self, key: &str) -> Finding {
        is(&self.inspect(key).await?, &Vote::Free)
    }

    /// Expects that nothing is stored under the name of the counter of the lock at `key`.
    pub(super) async fn has_no_counter(&self, key: &str) -> Finding {
        let in_its_place = self.claim(&self.counter_key(key));
        is(&self.acquire_plainly(&in_its_place).await?, &Vote::Granted)?;
        is(&self.release(&in_its_place).await?, &Vote::Granted)
    }

    /// Expects the server to answer with an error.
    pub(super) async fn fails(&self, request: Request) -> Finding {
        let shown = format!("{request:?}");
        let answer = self.ask(request).await;
        let failed = matches!(answer, Err(NodeError::Failed { .. }));
        ensure(failed, format!("{shown} found {answer:?} instead of a failure"))
    }

    /// Retries until there is an answer.
    pub(super) async fn until_answered(&self, request: &Request) -> Result<Response, String> {
        let patience = self.patience();
        loop {
            match self.ask(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => patience.or(&format!("{error:#}")).await?,
            }
        }
    }

    /// Retries until the request is granted.
    pub(super) async fn until_granted(&self, request: &Request) -> Finding {
        self.until(request, &Vote::Granted).await
    }

    /// Retries until the vote is `vote`.
    pub(super) async fn until(&self, request: &Request, vote: &Vote) -> Finding {
        let patience = self.patience();
        while let Err(finding) = is(&self.vote(request.clone()).await?, vote) {
            patience.or(&finding).await?;
        }
        Ok(())
    }

    /// Waits until there was a hint about `key`.
    pub(super) async fn until_notified(&self, key: &str) -> Finding {
        let patience = self.patience();
        while self.ear.hints(key) == 0 {
            patience.or("no hint about the key").await?;
        }
        Ok(())
    }

    /// Waits until this message has arrived.
    pub(super) async fn until_received(&self, message: &str) -> Finding {
        let patience = self.patience();
        while !self.ear.received(message) {
            patience.or(&format!("no message arrived: {message}")).await?;
        }
        Ok(())
    }

    pub(super) fn patience(&self) -> Patience<'_> {
        Patience { clock: self.clock, end: self.clock.now() + LONG / 4 }
    }
}

/// Limits a wait, in case the server never does what is expected.
pub(super) struct Patience<'a> {
    clock: &'a dyn Clock,
    end: Moment,
}

impl Patience<'_> {
    /// Pauses before the next look, or fails with `finding` at the deadline.
    pub(super) async fn or(&self, finding: &str) -> Finding {
        let now = self.clock.now();
        ensure(now <= self.end, format!("timed out: {finding}"))?;
        self.clock.sleep_until(now + LOOKS_EVERY).await;
        Ok(())
    }
}

/// Returns the acquisition of a claim, with fencing.
pub(super) fn acquisition(claim: &Arc<Claim>, ttl: Duration, fence_hint: FenceHint) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl, fence_hint: Some(fence_hint) }
}

/// Returns a fencing token, at most the largest.
pub(super) fn number(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap_or(FencingToken::MAX)
}

/// The vote where this was planted without an expiry.
pub(super) fn held_forever(planted: &[u8]) -> Vote {
    Vote::from(Holding::new(Token::found(planted), Expiry::Never))
}

pub(super) fn is(vote: &Vote, wanted: &Vote) -> Finding {
    let mut found = vote.clone();
    if let Vote::Held(holding) = &mut found {
        // Few stores count it, or keep locks as places in a queue.
        (holding.depth, holding.is_place) = (None, false);
    }
    if found == *wanted { Ok(()) } else { Err(format!("expected {wanted:?}, found {vote:?}")) }
}

/// How far a node's idea of its store's clock may be ahead of that clock, where it extrapolates it: by as much as the
/// reading took.
const READING: Duration = Duration::from_millis(250);

/// Expects that `token` holds the key for at most `most`, and returns the remaining time.
pub(super) fn held_by(vote: &Vote, token: &Token, most: Duration) -> Result<Duration, String> {
    if let Vote::Held(holding) = vote
        && let Expiry::In(left) = holding.expiry
        && holding.token == *token
    {
        return if left <= most + READING {
            Ok(left)
        } else {
            Err(format!("{left:?} remain, more than {most:?}"))
        };
    }
    Err(format!("expected it to be held by {token:?}, found {vote:?}"))
}

pub(super) fn ensure(holds: bool, otherwise: impl Into<String>) -> Finding {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
