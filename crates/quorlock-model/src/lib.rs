//! Model checks the rules of `quorlock` in every order of events within bounds.
//!
//! It checks the code of `quorlock_protocol` and of `quorlock::node::record` itself, not a copy: what a node
//! keeps is a record, which answers requests as it does in a store. Only `fence`, `permits` and `first_come` have
//! nodes of their own. Each model defines what may happen and what must never result; each rule is also broken on
//! purpose, to check that the model detects it.
//!
//! | module | contents |
//! |---|---|
//! | `lock` | the lock: no two hold it at the same time |
//! | `shared` | shared locks: readers together, or one writer |
//! | `fence` | fencing tokens |
//! | `several` | several locks in one acquisition: all or none, and no deadlock |
//! | `permits` | semaphores: never more holders than permits |
//! | `real` | the engine that ships: its state machines on the record, with requests that arrive late; locks left taken after their lease; the queue of waiters of different processes |
//! | `offer` | locks offered by their holder to a waiter |
//! | `first_come` | the queue of a store that serves in order of arrival, foreign programs included; a process's own places are `node::places` |
//! | `contest` | attempts that contend for locks, shared by `shared` and `several` |
//! | `scene` | states, steps, and the story of a violation, shared by these, `lock` and `offer` |
//! | `record` | the record that ships, which is what each node keeps |
//! | `world` | the bounds of `lock` and `offer` |
//! | `common`, `clock`, `names` | quorums, clocks and renamings, shared by the models |
//! | [`explore`] | explores every state of a model |
//! | `walk` | takes random walks where there are too many states |
//! | [`case`] | a model with its expected result; [`cases`] returns all |
//!
//! Begin with `scene`, which has the states and steps, then `lock`, whose cases are in `lock/cases.rs`. To check a new
//! rule, add two cases: one in which it holds in every state, and one without it, in which the model must find the
//! violation. A case whose broken rule goes unnoticed proves nothing about the rule.

#![expect(clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "not published")]
#![expect(clippy::indexing_slicing, reason = "nodes and attempts are numbered, and a panic is a finding")]

#[macro_use]
pub mod case;
mod clock;
mod common;
mod contest;
pub mod explore;
mod fence;
mod first_come;
mod lock;
mod names;
mod offer;
mod permits;
mod real;
mod record;
mod scene;
mod several;
mod shared;
mod walk;
mod world;

use case::Case;

/// Returns all cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        lock::cases::all(),
        shared::all(),
        fence::cases::all(),
        permits::all(),
        several::all(),
        real::all(),
        first_come::all(),
        offer::cases::all(),
    ]
    .concat()
}
