//! Keeps a lock taken after its lease has ended.

use std::sync::Arc;

use tracing::debug;

use super::Keeper;
use super::ending::{Old, lost_before};
use crate::engine::attempt::clean_up;
use crate::engine::cleanup::CleanupOf;
use crate::engine::commands::Retention;
use crate::error::RetainError;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::{self, Replaced, Retained};
use quorlock_protocol::{Claim, HoldEnd, Token};

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
        let end = self.state.runs_until(now).unwrap_or(now);
        let Some(retention) = machine::Retention::new(wanted.until, (now, end)) else {
            let released = self.release().await;
            return wanted.reply(released.map_err(Into::into));
        };
        let hold = self.hold();
        self.end();
        debug_assert!(self.state.has_ended(), "a lease goes on while its lock is retained");
        let mut old = Old::of(self.settle());
        let to = self.retained(&wanted.note);
        let (retained, round) = self.leave_token(&to, retention, &mut old).await;
        let is_lost = old.was_lost(&round, &self.engine, end).await;
        if is_lost {
            // As after any loss, the lock is not kept.
            clean_up(&self.engine, &self.runtime, &to, self.ttl(), round.key_states(), CleanupOf::Lease);
        }
        // A tombstone stops a renewal that may still arrive. `Coordinator::close` waits for the slower nodes: each that
        // stores the new token is one that need not survive.
        self.take_back(old, round, Replaced::may_come_back);
        // Before the holder is notified: it may ask for the lock again immediately.
        self.clear_held();
        self.notify_other_queues();
        let (how, outcome) = match retained {
            _ if is_lost => (HoldEnd::QuorumLost, Err(lost_before(&self.state, &self.meter).into())),
            Ok(()) => (HoldEnd::Retained, Ok(())),
            Err(error) => (HoldEnd::Released, Err(error)),
        };
        self.log(hold, how);
        wanted.reply(outcome);
    }

    /// Returns the claim that keeps the lock taken, with what is noted.
    fn retained(&self, note: &str) -> Arc<Claim> {
        let context = self.claim.token().context().unwrap_or_default();
        let context = [&*context, note].join(" ");
        Arc::new(self.claim.with(Token::retained(self.engine.entropy.next_u128(), context.trim_end())))
    }

    /// Also returns the last round, which may still be open.
    async fn leave_token(
        &mut self,
        to: &Arc<Claim>,
        mut retention: machine::Retention,
        old: &mut Old,
    ) -> (Result<(), RetainError>, Arc<Round>) {
        let (engine, from, resource) = (&self.engine, &self.claim, &self.state.resource);
        loop {
            let ttl = retention.ttl(engine.now());
            let (from, to) = (from.clone(), to.clone());
            let request = SharedRequest::from(Request::Transfer { from, to, ttl, fence_hint: None });
            let round = Round::start(&engine.nodes, Expect::Hold, self.ttl(), |_| Some(request.clone()));
            let (verdict, now) = (round.verdict().await, engine.now());
            let is_closing = engine.closing.is_cancelled();
            match retention.count(verdict, is_closing, now, || engine.entropy.next_u64()) {
                Retained::Confirmed => {
                    debug!(%resource, token = %self.state.token().short(), left = ?ttl, "retained");
                    return (Ok(()), round);
                }
                Retained::Unconfirmed => {
                    let report = Box::new(round.report());
                    debug!(%resource, votes = %report, "retention not confirmed");
                    let resource = resource.clone();
                    return (Err(RetainError::Unconfirmed { resource, report }), round);
                }
                Retained::Again(again) => {
                    round.abandon();
                    old.token = round.with(|round, _| old.token.lost_in(round));
                    engine.wait_until(again).await;
                }
            }
        }
    }
}
