//! What `doctor` asks of a node.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::{
    node::facts::{ConnectFailure, Facts},
    node::{Node as _, NodeError, Request, ask},
};

use crate::handshake::Settings;
use crate::node::PostgresNode;
use crate::shedlock::CHECKED;

/// Collects the facts for `doctor`, within five seconds.
pub(crate) async fn examine(node: PostgresNode, settings: Settings, key: Arc<str>) -> Facts {
    const LIMIT: Duration = Duration::from_secs(5);
    let clock = settings.seams.clock();
    let mut facts = Facts::default();
    let examined = {
        let probed = pin!(probe(&node, &settings, key, &mut facts));
        match select(probed, clock.sleep_until(clock.now() + LIMIT)).await {
            Either::Left((examined, _)) => examined,
            Either::Right(_) => Err(NodeError::Unanswered { waited: LIMIT }),
        }
    };
    facts.trouble = examined.err().map(ConnectFailure::new);
    facts
}

async fn probe(
    node: &PostgresNode,
    settings: &Settings,
    key: Arc<str>,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let clock = settings.seams.clock();
    node.ready().await?;
    if let Some(known) = node.facts() {
        *facts = Facts::clone(&known);
    }
    for _ in 0..5 {
        let sent = clock.now();
        let response = ask(node, Request::Inspect { key: Arc::clone(&key) }).await?;
        facts.round_trips.push(clock.now().since(sent));
        facts.identity = Some(response.identity.id.as_ref().into());
        facts.uptime = Some(response.identity.age_at(clock.now()));
    }
    facts.lock = Some(carry_a_lock(node, settings, key).await);
    Ok(())
}

async fn carry_a_lock(node: &PostgresNode, settings: &Settings, key: Arc<str>) -> Result<(), NodeError> {
    const TTL: Duration = Duration::from_secs(5);
    let seams = &settings.seams;
    let shedlock = settings.url.shedlock.is_some();
    // No row of that table is ever deleted, so all examinations use the same one.
    let key = if shedlock { CHECKED.into() } else { key };
    let claim = || Arc::new(Claim::new(Arc::clone(&key), Token::new(seams.entropy().next_u128(), "doctor")));
    let (from, to) = (claim(), claim());
    let fence_hint = (!shedlock).then(|| FenceHint::at(seams.clock().wall(), None, TTL));
    ask(node, Request::Acquire { claim: Arc::clone(&from), ttl: TTL, fence_hint }).await?;
    ask(node, Request::Renew { claim: Arc::clone(&from), ttl: TTL, fencing_token: None }).await?;
    ask(node, Request::Transfer { from, to: Arc::clone(&to), ttl: TTL, fence_hint }).await?;
    ask(node, Request::Release { claim: to }).await?;
    if shedlock {
        return Ok(());
    }
    ask(node, Request::DeleteFencingCounter { key }).await.map(drop)
}
