//! The rules of the lock, as pure code: no async, no IO, no clock. `now` is an argument.
//!
//! Everything that decides whether a lease may be trusted is here, and is what a model checker or
//! a simulation runs. The rest of the crate asks nodes, waits, and tells callers. The numbers of
//! the rules (I-1 to I-20) are listed with their tests in `docs/rules.md`.
//!
//! This module is public for checkers and for the curious. Programs need none of it.

mod fence;
mod limits;
mod moment;
mod names;
mod quorum;
mod restart;
mod schedule;
mod several;
mod shared;
mod slot;
mod standing;
mod tally;
mod term;
mod validity;

pub use fence::{Draw, Drawn, FencingToken, FencingTokenError};
pub use limits::{RoundTrip, node_limit, overdue_after};
pub use moment::Moment;
pub use names::{
    Claim, FENCE_MEMBER, Resource, ResourceError, Ticket, Token, fence_counter, gate, intents_key, line_keys,
    max_ttl_note, readers_key, semaphore_limit,
};
pub(crate) use names::{fence_counter_key, intents_sibling, preferred_node, readers_sibling};
pub use quorum::Quorum;
pub use restart::{Past, Quarantine, SENTINELS_WORD, SUCCESSION, age, believed};
pub use schedule::{Backoff, fraction, renewal_every};
pub(crate) use schedule::{COURTESY, EXPIRY_JITTER, HEARTBEAT, INTENT_AGE, INTENT_PATIENCE, LINE_PATIENCE};
pub(crate) use several::Keys;
pub use several::MOST_RESOURCES;
pub use shared::{Mode, SHARED_MARKER};
pub use slot::Slot;
pub use standing::Standing;
pub use tally::{Tally, Verdict};
pub use term::Term;
pub use validity::Drift;
