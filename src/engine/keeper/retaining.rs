//! Keeps a lock taken after its lease has ended.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::Keeper;
use crate::engine::attempt::clean_up;
use crate::engine::cleanup::CleanupOf;
use crate::engine::commands::Retention;
use crate::error::RetainError;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::{Moment, Token, Verdict, renewal_backoff};

/// The smallest unit in which servers count.
const LEAST: Duration = Duration::from_millis(1);

impl Keeper {
    /// Replaces the lease's token by one that no process holds (rule R-10), with the request that
    /// passes a lock on.
    ///
    /// The lease has ended and its renewals are over (I-15) before anything is sent. Retried until
    /// a quorum has confirmed, but only until the lease would have expired (rule R-11): after that
    /// another client may have had the lock. The old token is not withdrawn from nodes that did not
    /// store the new one: it keeps other clients out there too, until it expires.
    pub(super) async fn retain(mut self: Box<Self>, wanted: Retention) {
        let now = self.engine.now();
        if wanted.until.since(now) < LEAST {
            let released = self.release().await;
            return wanted.reply(released.map_err(Into::into));
        }
        let end = self.state.runs_until(now).unwrap_or(now);
        self.end();
        debug_assert!(self.state.has_ended(), "a lease goes on while its lock is retained");
        let before = self.settle();
        let (outcome, round) = self.leave_token(&wanted, end).await;
        self.stop_renewals(before, round);
        // Before the holder is notified: it may ask for the lock again immediately.
        self.clear_held();
        self.notify_other_queues();
        wanted.reply(outcome);
    }

    /// Leaves a tombstone under the new token on nodes where a renewal may still arrive: the
    /// renewal would store the old token again once the new one has expired (rule R-13). Nothing is
    /// withdrawn from nodes not known to have stored the new token.
    fn stop_renewals(&self, before: KeyStates, round: Arc<Round>) {
        let (engine, runtime, claim, ttl) =
            (self.engine.clone(), self.runtime.clone(), self.claim.clone(), self.ttl());
        // `Coordinator::close` waits for the slower nodes: each that stores the new token is one
        // that need not survive.
        let rest = async move {
            round.settled().await;
            let unknown = before.with(round.key_states(), |before, replaced| match (before, replaced) {
                (KeyState::Unknown, KeyState::Holds) => KeyState::Unknown,
                _ => KeyState::Without,
            });
            clean_up(&engine, &runtime, &claim, ttl, unknown, CleanupOf::Lease);
        };
        self.engine.tasks.spawn(rest, &self.runtime);
    }

    /// Also returns the last round, which may still be open.
    async fn leave_token(
        &mut self,
        wanted: &Retention,
        end: Moment,
    ) -> (Result<(), RetainError>, Arc<Round>) {
        let (engine, from, resource) = (&self.engine, &self.claim, &self.state.resource);
        let context = from.token().context().unwrap_or_default();
        let context = [&*context, &*wanted.note].join(" ");
        let token = Token::retained(engine.entropy.next_u128(), context.trim_end());
        let to = Arc::new(from.with(token));
        let mut pauses = renewal_backoff(self.ttl());
        loop {
            // Each time only the remaining time: the first request that a node executes may be the
            // last.
            let ttl = wanted.until.since(engine.now()).max(LEAST);
            let (from, to) = (from.clone(), to.clone());
            let request = SharedRequest::from(Request::Transfer { from, to, ttl, fence_hint: None });
            let round = Round::start(&engine.nodes, Expect::Hold, self.ttl(), |_| Some(request.clone()));
            let verdict = round.verdict().await;
            let now = engine.now();
            if verdict == Verdict::Won && now < end {
                debug!(%resource, token = %self.state.token().short(), left = ?ttl, "retained");
                return (Ok(()), round);
            }
            let again = now + pauses.next(engine.entropy.next_u64());
            let hopeless = verdict == Verdict::Contended || engine.closing.is_cancelled();
            if hopeless || again >= end.min(wanted.until) {
                let report = Box::new(round.report());
                debug!(%resource, votes = %report, "retention not confirmed");
                return (Err(RetainError::Unconfirmed { resource: resource.clone(), report }), round);
            }
            round.abandon();
            engine.wait_until(again).await;
        }
    }
}
