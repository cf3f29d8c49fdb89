//! Keeps a lock: by a list of what the session has, or by a look, which restores what was lost.

use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::{Answer, contended, usable};
use quorlock::protocol::FencingToken;

use super::{ATTEMPTS, Found, Outcome, Target, find};
use crate::error::Failure;
use crate::layout::stands;
use crate::memory::Own;
use crate::session::{Session, list};

/// Renewals are answered from a list of what the session has that is at most this part of its timeout old.
const LISTED: u32 = 3;

impl Session {
    pub(super) async fn renew(
        &self,
        target: &Target<'_>,
        ttl: Duration,
        number: Option<FencingToken>,
    ) -> Outcome {
        self.check_ttl(ttl)?;
        let Target { claim, lock, dir, counter: path } = target;
        if let Some(answer) = self.renew_by_list(target, ttl).await? {
            return Ok(answer);
        }
        for attempt in 0..ATTEMPTS {
            let look = self.look(lock, path.as_deref()).await?;
            let counter = path.as_ref().map(|path| look.counter(path)).transpose()?.flatten();
            let (stood, vote) = match find(claim, None, &look) {
                Found::Free(made) => {
                    if self.is_buried(claim.token()) {
                        return Ok(Vote::Free.into());
                    }
                    let stands = usable(stands(counter))?;
                    let raised = number.map(|number| number.max(stands));
                    // The number of the attempt is not that of the counter, which another attempt may have raised.
                    (self.create(target, (made, attempt), number, (raised, counter)).await?, Vote::Restored)
                }
                Found::Own(first) if first.stat.owner == self.id => {
                    (self.give_number(target, &first, (None, None)).await?, Vote::Granted)
                }
                Found::Own(first) => {
                    let unfenced = Target { claim, lock, dir: dir.clone(), counter: None };
                    (self.replace(&unfenced, &first, Some(&look), (None, None)).await?, Vote::Granted)
                }
                Found::Place(_) => return Ok(Vote::NotYourTurn.into()),
                Found::Hindered(first) => return Ok(self.refusal(lock, &first).into()),
            };
            if let Ok(stood) = stood {
                let (czxid, known) =
                    (stood.czxid, self.memory.local.own.lock().holder(lock, claim.token()).cloned());
                // A renewal never shortens.
                let until = self.memory.local.now() + ttl;
                self.keep(target, stood, known.map_or(until, |known| known.until.max(until)))?;
                let from = Some(self.memory.counts_from(ttl)?);
                return Ok(Answer { vote, number: None, from, revision: czxid });
            }
            self.forget(target);
        }
        Err(contended().into())
    }

    /// Renews a claim if its place is in a list of what the session has, which serves all renewals for a while.
    async fn renew_by_list(&self, target: &Target<'_>, ttl: Duration) -> Result<Option<Answer>, Failure> {
        let Target { claim, lock, .. } = target;
        let known = self.memory.local.own.lock().holder(lock, claim.token()).cloned();
        let Some(own) = known else { return Ok(None) };
        let confirmed = if let Some(confirmed) = self.is_listed(&own) {
            confirmed
        } else {
            self.list().await?;
            self.is_listed(&own).unwrap_or(false)
        };
        if !confirmed {
            self.memory.local.own.lock().remove(lock, &*own.key);
            return Ok(None);
        }
        let from = Some(self.memory.counts_from(ttl)?);
        if !self.memory.local.prolong(lock, &own.key, ttl) {
            return Ok(None);
        }
        Ok(Some(Answer { vote: Vote::Granted, number: None, from, revision: own.stored.czxid }))
    }

    /// Whether the session still has this place, by the last list of what it has; nothing if that is too old.
    pub(crate) fn is_listed(&self, own: &Own) -> Option<bool> {
        let life = self.memory.life.lock();
        let life = life.as_ref().filter(|life| life.generation == self.generation)?;
        let is_recent = self.memory.local.now().since(life.listed_at) <= life.granted.timeout / LISTED;
        (is_recent && own.stored.put < life.listed_at).then(|| life.listed.contains(&own.key))
    }

    /// Lists what the session has, unless another request has just done so.
    pub(crate) async fn list(&self) -> Result<(), Failure> {
        let asked = self.memory.local.now();
        let _alone = self.listing.lock().await;
        if self.memory.life.lock().as_ref().is_some_and(|life| life.listed_at > asked) {
            return Ok(());
        }
        let at = self.memory.local.now();
        let listed = list(&self.client, &self.memory).await?;
        if let Some(life) = &mut *self.memory.life.lock()
            && life.generation == self.generation
        {
            (life.listed, life.listed_at) = (listed, at);
        }
        Ok(())
    }
}
