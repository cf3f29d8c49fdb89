//! Taking a lock away from whoever holds it.

use std::sync::Arc;

use super::Lock;
use crate::error::ConfigError;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::VoteReport;
use quorlock_protocol::{Claim, Mode, Token};

impl Lock {
    /// Takes the lock away from the holder of `token`, at every node that answers: for operators,
    /// and for whoever was handed the token on purpose. To give back a lease of your own, call
    /// [`Lease::release`](crate::Lease::release).
    ///
    /// Compares and deletes, so that it never takes a lock that somebody else got in between: pass
    /// the token that was [seen](Lock::inspect). At the nodes that answered, requests with this
    /// token that come late, renewals above all, are refused for the longest TTL of the deployment.
    /// The counter of fencing tokens stays, so that the next holder's is larger.
    ///
    /// In the ballot, a node that held the token until now has [`Granted`](crate::VoteOutcome::Granted),
    /// and one that did not is [`Free`](crate::VoteOutcome::Free), whoever else may hold the key there.
    ///
    /// Each of those who [share](Lock::shared) a lock has a token of its own, one of
    /// [`Holder::readers`](crate::Holder::readers): take it away, and the others keep theirs. The token that is seen in the place of all of them takes it from them all, but
    /// does not keep a renewal that is on its way from storing a share again for a moment: take it from
    /// each of them first, a hundred at a time, as `quorlock release --force` does.
    ///
    /// **It does not tell the holder**, who learns of it when it renews next, and believes in its
    /// lease until then. What it writes meanwhile is refused only by a resource that checks
    /// [fencing tokens](crate::fence). Nor does it reach nodes that do not answer: there the key
    /// ends with its TTL; and if they are a quorum, the holder goes on renewing with them.
    ///
    /// # Errors
    ///
    /// When name or options cannot work. Nodes that do not answer are part of the ballot.
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
    ///     println!("taking it from {}", holder.token);
    ///     lock.revoke(&holder.token).await?;
    /// }
    /// assert_eq!(lock.inspect().await?.holder(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn revoke(&self, token: &Token) -> Result<VoteReport, ConfigError> {
        self.check()?;
        self.shared.introduced().await;
        let claim = self.keys.claim(token.clone());
        if self.options.mode == Mode::Exclusive {
            let several = claim.is_several();
            let report = self.cancel(claim).await;
            if several || report.granted() >= report.quorum().needed() {
                return Ok(report);
            }
            // Too few hold it alone with this token. It may be that of somebody who shares it, perhaps since
            // a downgrade of which these have not heard.
            let shared = self.cancel(self.keys.claim(token.clone()).shared()).await;
            return Ok(report.and(shared));
        }
        Ok(self.cancel(self.keys.claim(token.clone()).shared()).await)
    }

    async fn cancel(&self, claim: Claim) -> VoteReport {
        let claim = Arc::new(claim);
        // Not a mere release: the next renewal of a holder who is alive would store the key again.
        let request = |_| Some(Request::Cancel { claim: claim.clone(), linger: self.shared.max_ttl });
        let round = Round::start(&self.shared.nodes, Expect::AnyAnswer, self.options.ttl, request);
        round.settled().await;
        round.report()
    }
}
