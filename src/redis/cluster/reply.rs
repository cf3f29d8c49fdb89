//! Returns the response of a master to the sender of the request, in the name of the cluster.

use std::sync::{Arc, Weak};

use super::Inner;
use super::shard::ShardIdentity;
use crate::node::{Collect, NodeError, Responder, Response};
use crate::redis::error::is_sent_away;
use crate::runtime::Mutex;
use quorlock_protocol::Slot;

/// Receives one response and forwards it in the name of the cluster.
#[derive(Debug)]
pub(super) struct ReplyProxy {
    inner: Weak<Inner>,
    identity: Arc<ShardIdentity>,
    slot: Slot,
    reply: Mutex<Option<Responder>>,
}

impl ReplyProxy {
    pub(super) fn new(
        inner: &Arc<Inner>,
        identity: &Arc<ShardIdentity>,
        slot: Slot,
        reply: Responder,
    ) -> ReplyProxy {
        let (inner, identity) = (Arc::downgrade(inner), Arc::clone(identity));
        ReplyProxy { inner, identity, slot, reply: Mutex::new(Some(reply)) }
    }

    fn translated(&self, answer: Result<Response, NodeError>) -> Result<Response, NodeError> {
        match answer {
            Ok(mut answer) => {
                answer.identity = self.identity.of_cluster(&answer.identity);
                Ok(answer)
            }
            Err(NodeError::Unreachable { reason }) => {
                let reason = reason.within(format_args!("its master {}", self.identity.name));
                Err(NodeError::Unreachable { reason })
            }
            Err(NodeError::Unresponsive { reason }) => {
                let reason = reason.within(format_args!("its master {}", self.identity.name));
                Err(NodeError::Unresponsive { reason })
            }
            Err(error) => Err(error),
        }
    }
}

impl Collect for ReplyProxy {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let Some(reply) = self.reply.lock().take() else { return };
        if let Some(inner) = self.inner.upgrade() {
            inner.router.lock().settle(self.slot, self.identity.number);
            if answer.as_ref().is_err_and(is_sent_away) {
                inner.map_outdated.notify_one();
            }
        }
        reply.send(self.translated(answer));
    }

    fn wanted(&self) -> bool {
        self.reply.lock().as_ref().is_some_and(Responder::wanted)
    }
}
