//! Records what happened to locks, and checks it against what a lock promises.
//!
//! A simulation or a chaos tester records a [`History`]: who asked for which lock, what came of
//! it, what stood at the nodes, what was broken and healed. [`check`] judges it, and its
//! [`Report`] names each broken promise with the evidence. There is no clock here, no IO and no
//! runtime: stamps come from whoever records, and a file is text.
//!
//! ```
//! use quorlock_history::{Check, Expectations, History, Stamp, What, check};
//!
//! let at = |millis: u64| Stamp::from_nanos(millis * 1_000_000);
//! let mut history = History::new();
//! for (client, begins, ends) in [("ann", 0, 500), ("bob", 400, 900)] {
//!     let attempt = format!("{client}-1").into();
//!     let invoked = What::Invoked { client: client.into(), resource: "orders/42".into(), attempt };
//!     let attempt = format!("{client}-1").into();
//!     let deadline = at(begins + 1_000);
//!     let acquired = What::Acquired { attempt, deadline, fencing_token: None };
//!     history.record(at(begins), invoked);
//!     history.record(at(begins + 10), acquired);
//!     history.record(at(ends), What::Releasing { attempt: format!("{client}-1").into() });
//! }
//!
//! let report = check(&history, &Expectations::new());
//! let overlap = report.of(Check::Exclusion).next().unwrap();
//! assert_eq!(
//!     overlap.to_string(),
//!     "`orders/42` was held twice for 90ms: by ann (ann-1) from 0.010s until it released at 0.500s, \
//!      and by bob (bob-1) from 0.410s until it released at 0.900s",
//! );
//!
//! let again = History::from_lines(&history.to_lines()).unwrap();
//! assert_eq!(check(&again, &Expectations::new()), report);
//! ```
//!
//! # What is checked
//!
//! | check | promise |
//! |---|---|
//! | [`Check::Exclusion`] | no two clients certainly hold one lock at once |
//! | [`Check::Register`] | accepted fencing tokens never go down, belong to one attempt each and follow the order in which attempts succeeded; nobody who holds the lock is refused |
//! | [`Check::Mutex`] | some order of all acquisitions and releases is that of one mutex, with tokens that grow |
//! | [`Check::Orphans`] | no key outlives its attempt or the longest TTL, none is nobody's, no counter goes back |
//! | [`Check::Liveness`] | once all faults have healed, every client gets a lock |
//! | [`Check::Loss`] | a loss is told by the end of validity, and neither a renewal nor a look revives the lease |
//! | [`Check::Permits`] | no more certainly hold a semaphore's permits than it has, nor do two who differ about their number; each permit is a mutex |
//! | [`Check::Observers`] | whoever is told to lead has asked for it, and was not over long ago |
//! | [`Check::Record`] | the history itself can be true |
//!
//! Whatever is uncertain speaks for the lock: clocks that are off by [`What::Clocks`], nodes that
//! a fault cut off, clients that were stopped. So a finding is a finding. That nothing is found
//! proves little unless [`Report::seen`] shows that the faults have bitten; run each scenario
//! with a protection taken away, too, and see it fail.

mod attempts;
mod exclusion;
mod expectations;
mod faults;
mod history;
mod hold;
mod liveness;
mod loss;
mod mutex;
mod names;
mod observers;
mod orphans;
mod permits;
mod register;
mod report;
mod search;
mod stamp;
mod violation;

pub use {
    attempts::holds,
    expectations::Expectations,
    history::{Answer, BadLine, Event, History, What},
    hold::{Ending, Hold, Permit},
    names::{Client, Fault, Node, Resource, Token},
    report::{Report, Seen, check},
    stamp::Stamp,
    violation::{Check, Flaw, KeySeen, Violation, Write},
};
