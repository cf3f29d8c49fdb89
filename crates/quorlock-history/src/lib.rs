//! Records what happened to locks, and checks it against what the locks guarantee.
//!
//! A simulation or a chaos tester records a [`History`]: acquisitions and their results, keys found
//! on the nodes, faults and heals. [`check`] evaluates it, and its [`Report`] lists each violated
//! guarantee with the evidence. There is no clock, no IO and no runtime here: the recorder provides
//! the stamps, and a file is text.
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
//! | check | guarantee |
//! |---|---|
//! | [`Check::Exclusion`] | no two clients certainly hold a lock at the same time |
//! | [`Check::Register`] | accepted fencing tokens never decrease, belong to one attempt each and follow the order in which attempts succeeded; no current holder is refused |
//! | [`Check::Mutex`] | some order of all acquisitions and releases is that of a mutex with increasing tokens (linearizability) |
//! | [`Check::Orphans`] | no key outlives its attempt or the longest TTL, every key belongs to an attempt, no counter decreases |
//! | [`Check::Liveness`] | once all faults have healed, every client gets a lock |
//! | [`Check::Loss`] | a holder is notified of a loss by the deadline, after which neither a renewal nor a check reports the lease as valid |
//! | [`Check::Permits`] | a semaphore never certainly has more holders than permits, nor holders that disagree about the number; each permit is a mutex |
//! | [`Check::Observers`] | a reported leader has campaigned, and its lease has not ended long ago |
//! | [`Check::Record`] | the history is consistent |
//!
//! Uncertainty is resolved in favor of the lock: clock errors of [`What::Clocks`], nodes cut off by
//! a fault, clients that were stopped. So there are no false positives. A clean report proves
//! little unless [`Report::seen`] shows that the faults had an effect; also run each scenario with
//! one protection disabled, and check that it fails.
//!
//! # How it is laid out
//!
//! `history` has the events and their text. `attempts` makes of them one attempt for each token, and `hold`
//! the time in which an attempt certainly held its lock: what a clock error or a fault leaves in doubt is no
//! part of it. Each check is a file with its name, and a pure function of these. `search` decides whether
//! overlapping operations fit a mutex. Begin with `exclusion`, which is the shortest, and with `report`,
//! which runs them all. A new check is a file, its variant of [`Check`], and its call in [`check`].

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
