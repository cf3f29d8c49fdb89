//! Gives a lock back, and takes back an attempt whose outcome is unknown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::Owner;
use quorlock::protocol::{Claim, Token};
use tonic::Code;

use super::Outcome;
use crate::error::Failure;
use crate::layout::{self, places, tombstone};
use crate::session::Session;
use crate::wire::{Compare, KeyValue, Range, RequestOp, Txn};

impl Session {
    pub(super) async fn release(&self, claim: &Claim) -> Outcome {
        let mut own = Vec::new();
        for lock in claim.keys() {
            let known = self.memory.local.own.lock().holder(lock, claim.token()).cloned();
            own.push((Arc::clone(lock), known.map(|own| (own.key, own.stored.value))));
        }
        if own.iter().any(|(_, known)| known.is_none()) {
            self.find(claim.token(), &mut own).await?;
        }
        Ok(self.delete(own).await?.into())
    }

    /// Finds the places of a token that this process does not know.
    pub(super) async fn find(&self, token: &Token, own: &mut [Known]) -> Result<(), Failure> {
        let seen = self.look(own.iter().map(|(lock, _)| lock), BTreeSet::new(), None).await?;
        for ((_, known), (_, places)) in own.iter_mut().zip(&seen.locks) {
            let is_of =
                |kv: &&KeyValue| matches!(Owner::of(&kv.value), Owner::Attempt(found, _) if found == *token);
            let found = places.iter().find(is_of).map(|kv| (kv.key.clone(), kv.value.clone()));
            if known.is_none() {
                *known = found;
            }
        }
        Ok(())
    }

    /// Deletes these keys if they have these values. Tells whether that is anybody's turn.
    pub(super) async fn delete(&self, own: Vec<Known>) -> Result<Vote, Failure> {
        let mut success = Vec::new();
        for (lock, known) in &own {
            let Some((key, value)) = known else { continue };
            let (start, end) = places(lock);
            success.push(RequestOp::txn(Txn {
                compare: vec![Compare::value_is(key.as_slice(), value.as_slice())],
                success: vec![
                    RequestOp::delete(key.as_slice()),
                    RequestOp::range(Range { keys_only: true, ..Range::by_creation(start, end, 16) }),
                ],
                failure: Vec::new(),
            }));
        }
        if success.is_empty() {
            return Ok(Vote::Free);
        }
        let answer = self.txn(Txn { success, ..Txn::default() }).await?;
        let (mut vote, mut at) = (Vote::Free, 0);
        for (lock, known) in own {
            let Some((key, _)) = known else { continue };
            let deleted = answer.nested(at).filter(|nested| nested.succeeded);
            at += 1;
            self.memory.local.own.lock().remove(&lock, &key);
            let Some(deleted) = deleted else { continue };
            let waits = deleted.range(1).iter().any(|kv| layout::is_place(&lock, &kv.key));
            if waits || vote == Vote::Free {
                vote = if waits { Vote::Notified } else { Vote::Granted };
            }
        }
        Ok(vote)
    }

    pub(super) async fn cancel(&self, claim: &Claim, linger: Duration) -> Outcome {
        let tomb = tombstone(claim.token());
        let bury = async || {
            let lease = self.memory.leases.tomb(self.link(), linger).await?;
            let success = vec![RequestOp::put(tomb.as_slice(), "", lease)];
            self.txn(Txn { success, ..Txn::default() }).await
        };
        let buried = bury().await;
        if let Err(Failure::Refused(Code::NotFound, _)) = &buried {
            self.memory.leases.forget_tombs().await;
        }
        buried?;
        // Nothing of the attempt is stored from here on.
        let mut own = claim.keys().map(|lock| (Arc::clone(lock), None)).collect::<Vec<_>>();
        self.find(claim.token(), &mut own).await?;
        let vote = self.delete(own).await?;
        Ok(if vote == Vote::Free { vote } else { Vote::Granted }.into())
    }
}

/// A lock, with the key and the value of its holder if they are known.
type Known = (Arc<str>, Option<(Vec<u8>, Vec<u8>)>);
