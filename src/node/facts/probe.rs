//! What a node shows when it is used as locks use it.

use std::sync::Arc;
use std::time::Duration;

use super::{ConnectFailure, Facts};
use crate::node::{Node, NodeError, NodeErrorKind, Request, Seams, ask};
use crate::runtime::within;
use quorlock_protocol::{Claim, FenceHint, Token};

/// The TTL of the lock, unless the least TTL of the node is longer, which ends it if the check-up is interrupted.
const TTL: Duration = Duration::from_secs(5);
/// The number of small requests that measure the round trip.
const ROUND_TRIPS: usize = 5;

/// The lock with which a node is [probed](Facts::probe).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProbeLock {
    /// With a fencing token, whose counter stays, as that of every lock.
    Fenced,
    /// Without one, for a store that keeps no counters.
    Unfenced,
}

impl Facts {
    /// Adds what can be found out about any node by using it, for [`Node::examine`]: connects, takes over the
    /// [facts](Node::facts) of the connection, measures round trips, and acquires, renews, transfers (if the node can) and
    /// releases `key`, which has to be free.
    ///
    /// Takes at most `limit`. If the node has not done all of it by then, or fails, [`failure`](Facts::failure)
    /// says so, and what is known by then is kept.
    ///
    /// # Cancel safety
    ///
    /// The node may keep `key` for up to five seconds.
    pub async fn probe(
        &mut self,
        node: &dyn Node,
        seams: &Seams,
        key: Arc<str>,
        lock: ProbeLock,
        limit: Duration,
    ) {
        let probed = within(&**seams.clock(), limit, self.use_node(node, seams, key, lock)).await;
        let probed = probed.unwrap_or(Err(NodeError::Unanswered { waited: limit }));
        self.failure = probed.err().map(|error| {
            let cure = cure_of(error.kind());
            let failure = ConnectFailure::new(error);
            if let Some(cure) = cure { failure.cured_by(cure) } else { failure }
        });
    }

    async fn use_node(
        &mut self,
        node: &dyn Node,
        seams: &Seams,
        key: Arc<str>,
        lock: ProbeLock,
    ) -> Result<(), NodeError> {
        let clock = seams.clock();
        node.ready().await?;
        if let Some(known) = node.facts() {
            *self = Facts::clone(&known);
        }
        for _ in 0..ROUND_TRIPS {
            let sent = clock.now();
            let response = ask(node, Request::inspect(Arc::clone(&key))).await?;
            self.round_trips.push(clock.now().since(sent));
            self.identity = Some(response.identity.voter().into());
            self.age = Some(response.identity.age_at(clock.now()));
            self.uptime = self.age;
        }
        self.lock = Some(carry_a_lock(node, seams, key, lock).await);
        Ok(())
    }
}

/// Returns the fix, where that of the finding is for a server of Redis: the error of any other store names its own.
fn cure_of(kind: NodeErrorKind) -> Option<&'static str> {
    match kind {
        NodeErrorKind::Unreachable | NodeErrorKind::Tls | NodeErrorKind::Busy | NodeErrorKind::OutOfSpace => {
            None
        }
        NodeErrorKind::TimedOut => Some(
            "look at its process, which is running: is it stopped, swapping, or waiting for its disk, a standby or \
             another transaction? Restart it if it does not recover",
        ),
        NodeErrorKind::Login => Some(
            "do what the error says; user and password are in the address, or --username and --password-file or \
             QUORLOCK_PASSWORD, `Builder::username` and `Builder::password`",
        ),
        NodeErrorKind::HostRefused
        | NodeErrorKind::PermissionDenied(_)
        | NodeErrorKind::ReadOnly
        | NodeErrorKind::WrongData
        | NodeErrorKind::WrongServer
        | NodeErrorKind::Unsupported
        | NodeErrorKind::Misconfigured
        | NodeErrorKind::Other
        | _ => Some("do what the error says"),
    }
}

async fn carry_a_lock(
    node: &dyn Node,
    seams: &Seams,
    key: Arc<str>,
    lock: ProbeLock,
) -> Result<(), NodeError> {
    let token = || Token::new(seams.entropy().next_u128(), "doctor");
    let claim = || Arc::new(Claim::new(Arc::clone(&key), token()).below(seams.key_prefix().len()));
    let (from, to) = (claim(), claim());
    let fenced = lock == ProbeLock::Fenced;
    let ttl = TTL.max(node.limits().least_ttl);
    let fence_hint = fenced.then(|| FenceHint::at(seams.clock().wall(), None, ttl));
    ask(node, Request::Acquire { claim: Arc::clone(&from), ttl, fence_hint }).await?;
    ask(node, Request::Renew { claim: Arc::clone(&from), ttl, fencing_token: None }).await?;
    let transfer = Request::Transfer { from: Arc::clone(&from), to: Arc::clone(&to), ttl, fence_hint };
    let claim = if node.capabilities().check(&transfer).is_ok() {
        ask(node, transfer).await?;
        to
    } else {
        from
    };
    ask(node, Request::Release { claim }).await?;
    Ok(())
}
