//! Revoking a lock from its holder.

use std::sync::Arc;

use super::Lock;
use crate::engine::queue::HolderMode;
use crate::error::ConfigError;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Claim, Mode, Token};

impl<K, F> Lock<K, F> {
    /// Revokes the lock from the holder of `token`, on every node that answers: for operators, and for a client that
    /// was given the token on purpose. To release a lease of your own, call
    /// [`Lease::release`](crate::Lease::release).
    ///
    /// It compares and deletes, so it never takes a lock that another client has acquired in between: pass the token
    /// that [`inspect`](Lock::inspect) returned. On the nodes that answered, late requests with this token, above all
    /// renewals, are refused for the longest TTL of the deployment. The counter of fencing tokens stays, so the next
    /// holder's is larger.
    ///
    /// In the report, a node that held the token until now is
    /// [`Granted`](crate::votes::VoteOutcome::Granted), and one that did not is
    /// [`Free`](crate::votes::VoteOutcome::Free), even if another client holds the key there.
    ///
    /// Each reader of a [shared](Lock::shared) lock has a token of its own, one of
    /// [`Holder::readers`](crate::votes::Holder::readers): revoke it, and the others keep theirs. The token that is
    /// shown for all readers together revokes the lock from all, but a renewal in flight may store a reader's share
    /// again for a moment: revoke each of them first, a hundred at a time, as `quorlock release --force` does.
    ///
    /// **The holder is not asked.** It learns of the loss at its next renewal, and relies on its lease until then. A holder
    /// that has renewed before hears from most kinds of node that its key has changed, and renews then
    /// ([which](crate::node::Capabilities::hints_to_holders)). Only a resource that checks [fencing tokens](crate::fence) refuses what it writes meanwhile. Nodes that do not
    /// answer are not reached: the key expires there; and if they are a quorum, the holder goes on renewing with
    /// them.
    ///
    /// # Errors
    ///
    /// When name or options cannot work. Nodes that do not answer are part of the report.
    ///
    /// # Cancel safety
    ///
    /// What was sent by the time the future is dropped is carried out.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(3)).build()?;
    /// let lock = coordinator.lock("orders/42");
    /// # let lease = lock.acquire().await?;
    /// if let Some(holder) = lock.inspect().await?.holder() {
    ///     println!("revoking it from {}", holder.token);
    ///     lock.revoke(&holder.token).await?;
    /// }
    /// assert_eq!(lock.inspect().await?.holder(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn revoke(&self, token: &Token) -> Result<VoteReport, ConfigError> {
        self.check()?;
        self.engine.introduced().await;
        let claim = self.keys.claim(token.clone());
        if self.options.mode == Mode::Exclusive {
            let several = claim.is_several();
            let report = self.cancel(claim).await;
            if several || report.granted() >= report.quorum().needed() {
                return Ok(report);
            }
            // Too few nodes hold it exclusively with this token. It may be a reader's, perhaps since a downgrade that
            // these nodes have not received.
            let engine = self.cancel(self.keys.claim(token.clone()).shared()).await;
            return Ok(report.and(engine));
        }
        Ok(self.cancel(self.keys.claim(token.clone()).shared()).await)
    }

    async fn cancel(&self, claim: Claim) -> VoteReport {
        let claim = Arc::new(claim);
        // A release would not do: the next renewal of a live holder would store the key again.
        let request = |_| Some(Request::Cancel { claim: claim.clone(), linger: self.engine.max_ttl });
        let round = Round::start(&self.engine.nodes, Expect::AnyAnswer, self.options.ttl, request);
        round.settled().await;
        // Nodes do not notify the connection that made a change.
        for mode in [Mode::Exclusive, Mode::Shared] {
            self.engine.queues_of(mode).given_back(&claim.keys(), HolderMode::Other);
        }
        claim.keys().for_each(|key| self.engine.queues.hint_leases(key));
        round.report()
    }
}
