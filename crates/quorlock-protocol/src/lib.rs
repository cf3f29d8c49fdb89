//! The rules of the locks of `quorlock`, as pure code: no async, no IO, no clock. `now` is an
//! argument.
//!
//! Everything that decides whether a lease may be trusted is here, and is what a model checker or a
//! simulation runs. The crate `quorlock` asks nodes, waits, and reports to callers. The rules
//! (I-1, S-1 and so on) are listed with their tests in `docs/rules.md`.
//!
//! This crate is public for model checkers and curious readers. Programs use `quorlock`, which
//! re-exports it as `quorlock::protocol` and requires the same version. It promises less stability
//! than `quorlock`.

mod claim;
mod fence;
mod key_state;
mod limits;
mod moment;
mod offer;
mod printable;
mod queue;
mod quorum;
mod renewal;
mod resource;
mod restart;
mod schedule;
mod several;
mod shared;
mod sibling;
mod slot;
mod tally;
mod term;
mod token;
mod validity;
mod waiter;
mod waiting;

pub use claim::{Claim, preferred_node, want_mark_sibling};
pub use fence::{FenceHint, FenceVotes, FencingToken, FencingTokenError, NoNumber};
pub use key_state::KeyState;
pub use limits::{RoundTrip, most_in_flight, node_timeout, overdue_after};
pub use moment::{Moment, micros};
pub use offer::{
    InboxId, InboxMessage, NextWaiter, OTHERS_FOR, OfferTerms, entry_context, is_fresh, least_left,
    offer_heartbeat, offer_life, offer_renamed_after, prove, proven, queue_entry, releases_openly, unproven,
};
pub use printable::{Printable, printable, printable_json};
pub use queue::{
    LEAST_TURN, MOST_PLACES, QUEUE_PATIENCE, QueueHeartbeat, keeps_turn_for, rests_after_turn, turn,
    turn_key, want_mark,
};
pub use quorum::Quorum;
pub use renewal::{RenewalSchedule, renewal_backoff, renewal_every};
pub use resource::{Resource, ResourceError};
pub use restart::{Past, Quarantine, SENTINELS_WORD, SUCCESSION, age, believed};
pub use schedule::{Backoff, COOLDOWN, EXPIRY_JITTER, HEARTBEAT, INTENT_AGE, INTENT_PATIENCE, fraction};
pub use several::{Keys, MOST_RESOURCES};
pub use shared::{Mode, SHARED_MARKER};
pub use sibling::{
    FENCE_MEMBER, Sibling, companion, fence_counter, fence_counter_key, gate, gate_in, intents_key,
    intents_sibling, is_auxiliary_key, keeps_companions, list_of_nodes, lists_note, lock_of_queue,
    max_ttl_note, readers_key, readers_sibling, semaphore_limit,
};
pub use slot::Slot;
pub use tally::{Tally, Verdict};
pub use term::Term;
pub use token::Token;
pub use validity::Drift;
pub use waiter::WaiterId;
pub use waiting::Refusal;
