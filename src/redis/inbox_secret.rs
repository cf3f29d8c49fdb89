//! The secret of the inboxes, which proves the messages of a server (rule O-11). Its clients share it; the first leaves it.

use std::sync::Arc;

use redis::{Cmd, cmd};

use super::resp::encode::CommandWriter;
use crate::runtime::entropy::Entropy;
use quorlock_protocol::InboxId;

/// The secret of one server.
#[derive(Clone)]
pub(crate) struct InboxSecret {
    key: Arc<str>,
}

impl InboxSecret {
    pub(super) fn new(key_prefix: &str) -> InboxSecret {
        InboxSecret { key: InboxId::secret_key(key_prefix).into() }
    }

    /// Returns its key.
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Returns the requests of the handshake: one that leaves a secret where there is none, and one that reads it.
    pub(super) fn requests(&self, entropy: &dyn Entropy) -> [Cmd; 2] {
        let leave = cmd("SET").arg(&*self.key).arg(fresh(entropy)).arg("NX").clone();
        [leave, cmd("GET").arg(&*self.key).clone()]
    }

    /// Appends the same requests to those of the session.
    pub(super) fn ask(&self, entropy: &dyn Entropy, outbox: &mut Vec<u8>) {
        let mut leave = CommandWriter::begin(outbox);
        leave.word("SET").word(&*self.key).word(fresh(entropy)).word("NX");
        leave.end();
        let mut read = CommandWriter::begin(outbox);
        read.word("GET").word(&*self.key);
        read.end();
    }
}

fn fresh(entropy: &dyn Entropy) -> String {
    format!("{:032x}", entropy.next_u128())
}
