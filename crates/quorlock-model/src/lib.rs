//! Checks the rules of `quorlock` against everything that the world may do to them, within bounds.
//!
//! What is checked is the code in `quorlock_protocol` itself, not a copy of it. Each model says what
//! may happen, and what must never come of it; each rule is also broken on purpose, to see that the
//! model would tell.
//!
//! | place | what lives there |
//! |---|---|
//! | [`lock`] | the lock: no two hold it at once |
//! | [`shared`] | shared locks: readers together, or one writer |
//! | [`fence`] | fencing tokens |
//! | [`several`] | several locks at once: all or none, and no deadlock |
//! | [`permits`] | semaphores: no more hold a permit than there are |
//! | [`passing`] | leases that are passed on within a process |
//! | [`late`] | requests that come late, after the lock was given back |
//! | [`retained`] | locks that stay taken after their lease has ended |
//! | [`offer`] | the lock as its holder offers it to a waiter |
//! | [`queue`] | the queue of those who wait in different processes |
//! | [`explore`] | goes through every state of a model |
//! | [`walk`] | walks through a model at random, where there are too many states |
//! | [`case`] | a model, and what is expected of it; the list of all |

#![expect(clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "not published")]
#![expect(clippy::indexing_slicing, reason = "nodes and attempts go by numbers, and a panic is a finding")]

pub mod case;
mod clock;
mod common;
pub mod explore;
mod fence;
mod late;
mod lock;
mod names;
mod offer;
mod passing;
mod permits;
mod queue;
mod retained;
mod several;
mod shared;
mod walk;
