//! The way of an answer from a master to whoever asked the cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Inside;
use super::shard::ShardIdentity;
use crate::node::{Answer, Collect, NodeError, Reply};
use crate::protocol::Slot;
use crate::redis::error::is_sent_away;

/// Takes one answer, and hands it on in the name of the cluster.
#[derive(Debug)]
pub(super) struct ReplyProxy {
    inside: Weak<Inside>,
    face: Arc<ShardIdentity>,
    slot: Slot,
    reply: Mutex<Option<Reply>>,
}

impl ReplyProxy {
    pub(super) fn new(
        inside: &Arc<Inside>,
        face: &Arc<ShardIdentity>,
        slot: Slot,
        reply: Reply,
    ) -> ReplyProxy {
        let (inside, face) = (Arc::downgrade(inside), Arc::clone(face));
        ReplyProxy { inside, face, slot, reply: Mutex::new(Some(reply)) }
    }

    fn reply(&self) -> MutexGuard<'_, Option<Reply>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn translated(&self, answer: Result<Answer, NodeError>) -> Result<Answer, NodeError> {
        match answer {
            Ok(answer) => Ok(Answer { instance: self.face.of_cluster(&answer.instance), ..answer }),
            Err(NodeError::Unreachable { reason }) => {
                let reason = reason.within(format_args!("its master {}", self.face.name));
                Err(NodeError::Unreachable { reason })
            }
            Err(error) => Err(error),
        }
    }
}

impl Collect for ReplyProxy {
    fn answer(&self, _index: usize, answer: Result<Answer, NodeError>) {
        let Some(reply) = self.reply().take() else { return };
        if let Some(inside) = self.inside.upgrade() {
            inside.desk().settle(self.slot, self.face.line);
            if answer.as_ref().is_err_and(is_sent_away) {
                inside.doubt.notify_one();
            }
        }
        reply.send(self.translated(answer));
    }

    fn wanted(&self) -> bool {
        self.reply().as_ref().is_some_and(Reply::wanted)
    }
}
