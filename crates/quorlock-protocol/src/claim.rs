//! The claim of one attempt.

use std::sync::Arc;

use super::sibling::{Sibling, fence_counter, fence_counter_key};
use super::waiter::WaiterId;
use super::{Mode, Token};

/// What one attempt asks for: that `key` holds its token, alone or shared with other readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub(super) key: Arc<str>,
    token: Token,
    pub(super) mode: Mode,
    /// The other keys of a multi-resource lock: see `several.rs`.
    pub(super) others: Option<Arc<[Arc<str>]>>,
    /// How much of each key is the key prefix.
    prefix_len: usize,
    /// The waiter whose places in the queues of its keys it may use.
    place: Option<WaiterId>,
}

impl Claim {
    /// Returns the same claim, shared from now on.
    #[must_use]
    #[inline]
    pub fn shared(mut self) -> Claim {
        self.mode = Mode::Shared;
        self
    }

    /// Returns the same claim, of an attempt that may take the places of this waiter in the queues of its keys: on nodes that
    /// serve waiters in the order of their places.
    #[must_use]
    #[inline]
    pub fn in_place_of(self, waiter: WaiterId) -> Claim {
        Claim { place: Some(waiter), ..self }
    }

    /// Returns the waiter whose places it may take.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Option<WaiterId> {
        self.place
    }

    /// Returns which other claims it excludes.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Creates an exclusive claim for `token` under `key`.
    #[must_use]
    #[inline]
    pub fn new(key: Arc<str>, token: Token) -> Claim {
        Claim { key, token, mode: Mode::Exclusive, others: None, place: None, prefix_len: 0 }
    }

    /// Returns the same claim by a client with a key prefix of this length, below which the fencing counters are.
    #[must_use]
    #[inline]
    pub fn below(self, prefix_len: usize) -> Claim {
        Claim { prefix_len, ..self }
    }

    /// Returns the claim of another token for the same lock; of several, for the first.
    #[must_use]
    pub fn with(&self, token: Token) -> Claim {
        Claim::new(Arc::clone(&self.key), token).below(self.prefix_len)
    }

    /// Returns the key prefix.
    #[must_use]
    #[inline]
    pub fn key_prefix(&self) -> &str {
        self.key.get(..self.prefix_len).unwrap_or_default()
    }

    /// Returns the key of the lock; of [several](Claim::keys), the first.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the token.
    #[must_use]
    #[inline]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Returns which of `nodes` nodes all contenders for the key ask first. It is the same for all
    /// clients that list the nodes in the same order; keys are spread over the nodes by FNV-1a.
    #[must_use]
    #[inline]
    pub fn preferred_node(&self, nodes: usize) -> usize {
        preferred_node(&self.key, nodes)
    }

    /// Returns the key whose presence says that a refused client still wants the lock.
    #[must_use]
    #[inline]
    pub fn want_mark(&self) -> String {
        self.want_mark_key().to_string()
    }

    /// Like [`want_mark`](Claim::want_mark), not formatted yet.
    #[must_use]
    #[inline]
    pub fn want_mark_key(&self) -> Sibling<'_> {
        want_mark_sibling(&self.key)
    }

    /// Returns the key in which a node stores the [fencing counter](fence_counter_key()) of the lock.
    #[must_use]
    #[inline]
    pub fn fence_counter(&self) -> String {
        fence_counter(self.key_prefix(), &self.key)
    }

    /// Like [`fence_counter`](Claim::fence_counter), not formatted yet.
    #[must_use]
    #[inline]
    pub fn fence_counter_key(&self) -> Sibling<'_> {
        fence_counter_key(self.key_prefix(), &self.key)
    }

    /// Returns the key whose presence says that this attempt was cancelled, and that a late request
    /// of it must have no effect (rule I-5).
    #[must_use]
    #[inline]
    pub fn tombstone(&self) -> String {
        self.tombstone_key().to_string()
    }

    /// Like [`tombstone`](Claim::tombstone), not formatted yet.
    #[must_use]
    #[inline]
    pub fn tombstone_key(&self) -> Sibling<'_> {
        tombstone_sibling(&self.key, &self.token)
    }
}

/// Like [`want_mark`](crate::want_mark), not formatted yet.
#[must_use]
#[inline]
pub fn want_mark_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("want", key, "mark")
}

pub(super) fn tombstone_sibling<'a>(key: &'a str, token: &'a Token) -> Sibling<'a> {
    Sibling::new("tomb", key, String::from_utf8_lossy(token.random_part()))
}

/// Returns the preferred node of a key: see [`Claim::preferred_node`].
#[must_use]
pub fn preferred_node(key: &str, nodes: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let nodes = u64::try_from(nodes.max(1)).unwrap_or(1);
    usize::try_from(hash % nodes).unwrap_or(0)
}
