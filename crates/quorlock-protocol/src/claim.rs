//! What one attempt asks for.

use std::sync::Arc;

use super::sibling::{Sibling, fence_counter, fence_counter_key};
use super::{Mode, Token};

/// What one attempt asks for: this token under this key, or among those who share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub(super) key: Arc<str>,
    token: Token,
    pub(super) mode: Mode,
    /// Where several locks are claimed together: see `several.rs`.
    pub(super) others: Option<Arc<[Arc<str>]>>,
}

impl Claim {
    /// The same claim by somebody who shares the lock from now on.
    #[must_use]
    #[inline]
    pub fn shared(mut self) -> Claim {
        self.mode = Mode::Shared;
        self
    }

    /// Whom it excludes.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// `token` is to stand under `key`, alone.
    #[must_use]
    #[inline]
    pub fn new(key: Arc<str>, token: Token) -> Claim {
        Claim { key, token, mode: Mode::Exclusive, others: None }
    }

    /// The key of the lock; of [several](Claim::keys), the first.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The token.
    #[must_use]
    #[inline]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Which of so many nodes all who contend for the key ask first. The same for everybody, as long
    /// as they list the nodes in the same order, and spread over the nodes by the key (FNV-1a).
    #[must_use]
    #[inline]
    pub fn preferred_node(&self, nodes: usize) -> usize {
        preferred_node(&self.key, nodes)
    }

    /// The key whose presence says that somebody was refused and still wants the lock.
    #[must_use]
    #[inline]
    pub fn want_mark(&self) -> String {
        self.want_mark_key().to_string()
    }

    /// The same, not written out yet.
    #[must_use]
    #[inline]
    pub fn want_mark_key(&self) -> Sibling<'_> {
        want_mark_sibling(&self.key)
    }

    /// The key in which a node keeps the counter of the lock's fencing tokens.
    #[must_use]
    #[inline]
    pub fn fence_counter(&self) -> String {
        fence_counter(&self.key)
    }

    /// The same, not written out yet.
    #[must_use]
    #[inline]
    pub fn fence_counter_key(&self) -> Sibling<'_> {
        fence_counter_key(&self.key)
    }

    /// The key whose presence says that this attempt was cancelled, and that a request of it that
    /// arrives late must do nothing (rule I-5).
    #[must_use]
    #[inline]
    pub fn tombstone(&self) -> String {
        self.tombstone_key().to_string()
    }

    /// The same, not written out yet.
    #[must_use]
    #[inline]
    pub fn tombstone_key(&self) -> Sibling<'_> {
        tombstone_sibling(&self.key, &self.token)
    }
}

/// The same as [`want_mark`](crate::want_mark), not written out yet.
#[must_use]
#[inline]
pub fn want_mark_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("want", key, "mark")
}

pub(super) fn tombstone_sibling<'a>(key: &'a str, token: &'a Token) -> Sibling<'a> {
    Sibling::new("tomb", key, String::from_utf8_lossy(token.random_part()))
}

/// See [`Claim::preferred_node`].
#[must_use]
pub fn preferred_node(key: &str, nodes: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let nodes = u64::try_from(nodes.max(1)).unwrap_or(1);
    usize::try_from(hash % nodes).unwrap_or(0)
}
