//! A clause about unsupported requests.

use std::sync::Arc;

use quorlock::node::{Capability, NodeErrorKind, Request};
use quorlock::protocol::{InboxId, NextWaiter, OfferTerms, WaiterId};

use super::bench::{Bench, Finding, LONG, acquisition, ensure};

pub(super) async fn what_it_cannot_do_is_refused_by_name_and_changes_nothing(bench: &Bench<'_>) -> Finding {
    let capabilities = bench.node.capabilities();
    for capability in Capability::ALL.into_iter().filter(|capability| !capabilities.has(*capability)) {
        let (claim, waiter) = (bench.claim(&bench.key()), WaiterId::new(1));
        let other = bench.claim(claim.key());
        let (ttl, fence_hint) = (LONG, Some(bench.fence_hint()));
        let beside: Arc<[Arc<str>]> = Arc::new([bench.key().into()]);
        let request = match capability {
            Capability::Shared => acquisition(&Arc::new((*claim).clone().shared()), LONG, bench.fence_hint()),
            Capability::Several => {
                acquisition(&Arc::new((*claim).clone().and(beside)), LONG, bench.fence_hint())
            }
            Capability::Queue => {
                let (key, elapsed) = (claim.key().into(), LONG);
                Request::enqueue(key, waiter, elapsed, LONG, LONG)
            }
            Capability::Transfer => {
                Request::Transfer { from: Arc::clone(&claim), to: other, ttl, fence_hint }
            }
            Capability::Offer => {
                let (inbox, life, token) = (InboxId::new(1), LONG, other.token().clone());
                let terms = OfferTerms { inbox, prefix_len: 0, life, fenced: true, token };
                let next = Arc::new(NextWaiter { waiter, terms });
                Request::Offer { claim: Arc::clone(&claim), next, queued: false, fence_hint }
            }
            Capability::Log => Request::ReadLog { key: claim.key().into() },
            // A capability that is newer than this suite.
            _ => continue,
        };
        let answer = bench.ask(request).await;
        let by_name = |error: &quorlock::node::NodeError| {
            error.kind() == NodeErrorKind::Unsupported && !error.may_have_acted()
        };
        ensure(answer.as_ref().is_err_and(by_name), format!("asked for {capability}, found {answer:?}"))?;
        bench.free(claim.key()).await?;
    }
    Ok(())
}
