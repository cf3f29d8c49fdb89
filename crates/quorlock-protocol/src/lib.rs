//! The rules of the locks of `quorlock`, as pure code: no async, no IO, no clock. `now` is an
//! argument.
//!
//! Everything that decides whether a vote counts and how long a lease may be trusted is here, and is
//! what a model checker or a simulation runs. The crate `quorlock` asks nodes, waits, and reports. Each rule has a
//! number, and is listed with its test in `docs/rules.md`.
//!
//! | to decide | use | rules |
//! |---|---|---|
//! | how many nodes must grant | [`Quorum`] | I-8, I-11 |
//! | what the votes of a round mean | [`Tally`], [`Verdict`] | I-2, I-3 |
//! | until when a lease may be trusted | [`Drift`], [`Term`] | I-1, I-6, I-7, I-9, I-10 |
//! | whether a node is old enough to vote | [`Quarantine`], [`age`], [`believed`] | I-12, I-17, I-24, T-2 |
//! | when to renew | [`LeaseTiming`], [`RenewalSchedule`] | I-11, I-50 |
//! | how long to wait for a node | [`RoundTrip`], [`node_timeout`], [`overdue_after`] | I-45 |
//! | when a refused waiter asks again | [`Refusal`], [`Backoff`] | |
//! | who is next, and when a waiter asks for its place | [`QueueHeartbeat`], [`turn`] | W-2, W-5, W-9 |
//! | whether to offer the lock to the next waiter | [`OfferTerms`], [`releases_openly`], [`is_fresh`] | O-3, O-7, O-9, O-11 |
//! | what is stored, and under which key | [`Token`], [`Claim`], [`Keys`], [`Sibling`] | I-4, I-5, I-48, M-1, C-4 |
//! | whether a node may still hold the key of a claim | [`KeyState`] | I-5, I-40 |
//! | which fencing token an attempt has | [`FenceHint`], [`FenceVotes`] | F-1, F-2, F-5, F-7, F-11 |
//! | what a node is asked, answers and stores | [`node`], [`node::record`] | the contract of a node |
//! | what a client does with the answers, and sends next | [`machine`] | I-8, I-11, I-38, I-40, I-47, W-4, W-5 |
//!
//! A lease, from its votes to its end:
//!
//! ```
//! use std::time::Duration;
//! use quorlock_protocol::{Drift, Moment, Quorum, Tally, Term, Verdict};
//!
//! let ttl = Duration::from_secs(30);
//! let second = |second| Moment::since_origin(Duration::from_secs(second));
//! let sent = second(100); // read before the first byte is sent
//!
//! let mut tally = Tally::new(Quorum::majority(5));
//! (0..3).for_each(|_| tally.grant());
//! assert_eq!(tally.verdict(), Some(Verdict::Won)); // two nodes are silent, and cannot change it
//!
//! let term = Term::until(Drift::default().deadline(sent, ttl));
//! assert!(term.remaining(second(129)).is_some());
//! assert!(term.remaining(second(130)).is_none(), "the clocks may differ: it ends before the TTL");
//! assert!(!term.renew(second(160), second(131)), "a lost lease stays lost");
//! ```
//!
//! This crate is public for model checkers and curious readers. Programs use `quorlock`, which
//! re-exports it as `quorlock::protocol` and requires the same version. It promises less stability
//! than `quorlock`.

mod claim;
#[doc(hidden)]
pub mod duration;
mod fence;
mod hold_log;
mod key_state;
mod limits;
pub mod machine;
mod moment;
pub mod node;
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
mod timing;
mod token;
mod validity;
pub mod votes;
mod waiter;
mod waiting;

pub use claim::{Claim, preferred_node, want_mark_sibling};
pub use fence::{FenceHint, FenceVotes, FencingToken, FencingTokenError, NoNumber};
pub use hold_log::{HoldEnd, LOG_EXPIRY, LoggedHold, MOST_LOGGED, merge_logs};
pub use key_state::KeyState;
pub use limits::{RoundTrip, most_in_flight, node_timeout, overdue_after};
pub use moment::{Moment, micros};
pub use offer::{
    InboxId, InboxMessage, NextWaiter, OTHERS_FOR, OfferTerms, entry_context, is_fresh, least_left,
    offer_heartbeat, offer_life, offer_renamed_after, prove, proven, queue_entry, releases_openly,
    take_up_after, unproven,
};
pub use printable::{Printable, printable, printable_json};
pub use queue::{
    AskPace, LEAST_TURN, MOST_PLACES, QUEUE_PATIENCE, QueueHeartbeat, keeps_turn_for, rests_after_turn, turn,
    turn_key, want_mark,
};
pub use quorum::Quorum;
pub use renewal::{RenewalSchedule, renewal_backoff};
pub use resource::{Resource, ResourceError};
pub use restart::{Past, Quarantine, SENTINELS_WORD, SUCCESSION, age, believed};
pub use schedule::{Backoff, COOLDOWN, EXPIRY_JITTER, HEARTBEAT, INTENT_AGE, INTENT_PATIENCE, fraction};
pub use several::{Keys, MOST_RESOURCES};
pub use shared::{Mode, SHARED_MARKER};
pub use sibling::{
    FENCE_MEMBER, Sibling, companion, fence_counter, fence_counter_key, gate, gate_in, intents_key,
    intents_sibling, is_auxiliary_key, keeps_companions, list_of_nodes, lists_note, lock_of_queue, log_key,
    log_sibling, max_ttl_note, readers_key, readers_sibling, semaphore_limit,
};
pub use slot::Slot;
pub use tally::{Tally, Verdict};
pub use term::Term;
pub use timing::LeaseTiming;
pub use token::Token;
pub use validity::Drift;
pub use waiter::WaiterId;
pub use waiting::Refusal;
