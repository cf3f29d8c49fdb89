//! Releases a lock, and cancels an attempt.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::Owner;

use super::{Outcome, Target};
use crate::error::Failure;
use crate::layout::{attempt, sequence};
use crate::session::Session;
use crate::wire::Call;

impl Session {
    pub(super) async fn release(&self, target: &Target<'_>) -> Outcome {
        let Target { claim, lock, .. } = target;
        let known = self.memory.local.own.lock().holder(lock, claim.token()).map(|own| Arc::clone(&own.key));
        let paths = match known {
            Some(path) => vec![path],
            None => self.find(target).await?,
        };
        Ok(self.delete(target, paths).await?.into())
    }

    pub(super) async fn cancel(&self, target: &Target<'_>, linger: Duration) -> Outcome {
        self.memory.tombs.lock().bury(target.claim.token(), self.memory.local.now(), linger);
        // What this process asks for from here on does nothing, and what it has asked for is carried out before what follows.
        let paths = self.find(target).await?;
        let vote = self.delete(target, paths).await?;
        Ok(if vote == Vote::Free { vote } else { Vote::Granted }.into())
    }

    /// Finds the places of an attempt that this process does not know: by the names that it gives, or by what the first says.
    async fn find(&self, target: &Target<'_>) -> Result<Vec<Arc<str>>, Failure> {
        let look = self.look(target.lock, None).await?;
        let name = attempt(&target.dir, target.claim.token());
        let mut found: Vec<Arc<str>> =
            look.places.into_iter().map(|place| place.path).filter(|path| path.starts_with(&name)).collect();
        if let Some(first) = look.first
            && matches!(&first.owner, Owner::Attempt(token, _) if token == target.claim.token())
            && !found.contains(&first.path)
        {
            found.push(first.path);
        }
        Ok(found)
    }

    /// Deletes these places. Tells whether that is anybody's turn.
    async fn delete(&self, target: &Target<'_>, paths: Vec<Arc<str>>) -> Result<Vote, Failure> {
        if paths.is_empty() {
            return Ok(Vote::Free);
        }
        let delete = |path: &Arc<str>| self.client.send(&Call::Delete { path: path.to_string() });
        let sent: Vec<_> = paths.iter().map(delete).collect();
        let left = self.client.send(&Call::GetChildren { path: target.dir.clone() });
        let mut has_deleted = false;
        for (sent, path) in sent.into_iter().zip(paths) {
            let at = sent.at;
            if let Some(answer) = sent.found().await? {
                has_deleted = true;
                self.committed(at, answer.zxid);
            }
            self.memory.local.own.lock().remove(target.lock, &*path);
        }
        let left = left.found().await?;
        let waits = match &left {
            Some(left) => self.note_left(&target.dir, left)?,
            None => false,
        };
        Ok(match (has_deleted, waits) {
            (false, _) => Vote::Free,
            (true, true) => Vote::Notified,
            (true, false) => Vote::Granted,
        })
    }

    /// Remembers a lock that has no places, and tells whether it has some.
    fn note_left(&self, dir: &str, left: &crate::client::Answer) -> Result<bool, Failure> {
        let (names, stat) = left.children()?;
        let waits = names.iter().any(|name| sequence(name).is_some());
        let mut cache = self.memory.cache.lock();
        if waits {
            cache.empty.remove(dir);
        } else {
            cache.remember_empty(dir.to_owned(), crate::look::created(&stat));
        }
        Ok(waits)
    }
}
