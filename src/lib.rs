//! Distributed locks held by a quorum of independent Redis or Valkey masters.
//!
//! A lock is held by whoever more than half of N independent servers grant it to, for a time that
//! ends by itself: the Redlock algorithm, with its open ends tied up. With two of five servers dead
//! or hung, nobody notices.
//!
//! ```
//! # type Error = Box<dyn std::error::Error + Send + Sync>; // or anyhow's, or one of your own
//! # async fn load(_: u32) -> Result<u32, Error> { Ok(40) }
//! # async fn store(order: u32, _: Option<quorlock::FencingToken>) -> Result<u32, Error> { Ok(order + 2) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use quorlock::Coordinator;
//!
//! # let nodes = quorlock_testkit::memory_nodes(3);
//! let coordinator = Coordinator::builder()
//! #   .custom_nodes(nodes).build()?; let _ = Coordinator::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"])
//!     .build()?; // parses all, contacts no one
//!
//! let total = coordinator.lock("orders/42").with(async |lease| {
//!     let order = load(42).await?;
//!     lease.check()?; // right before the side effect
//!     store(order, lease.fencing_token()).await // the database refuses a smaller number
//! }).await?; // Ok: all of it ran while the lease was valid
//! # assert_eq!(total, 42);
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! ```
//!
//! # What it does not do
//!
//! It does not stop work that is paused past the end of its lease: a process that sleeps through
//! it and then writes has written. Call [`Lease::check`] right before each side effect, and keep
//! side effects short against the TTL. Only a resource that checks the
//! [fencing token](Lease::fencing_token) closes the gap: see [`fence`].
//!
//! It relies on clocks that run at nearly the same rate, on the servers and here, and on servers
//! that keep their keys until they expire. A restart that loses them is seen, and so is a replica that
//! was promoted, and the server not counted for a while ([`RestartGuard`]); eviction, `FLUSHALL` and
//! clocks that jump are not.
//!
//! # Which verb
//!
//! | to | call | when others hold it | when the lease is lost |
//! |---|---|---|---|
//! | run work under a lock | [`Lock::with`] | waits | drops the work |
//! | hold a lock for as long as it takes | [`Lock::acquire`] | waits | [`Lease::lost`] ends, [`Lease::check`] fails |
//! | do it only if nobody else does | [`Lock::try_acquire`] | `None` at once | the same |
//! | read while nobody writes | [`Lock::shared`], then any of these | waits for writers only | the same |
//! | go on reading after a write | [`Lease::downgrade`] | | the same |
//! | see who holds it | [`Lock::inspect`] | says who | |
//! | take it away from somebody | [`Lock::revoke`] | leaves other holders alone | |
//! | hold several locks at once, or none | [`Coordinator::lock_all`], then any of these | waits, holding none | the same |
//! | let so many do it at once | [`Semaphore::acquire`] | waits | the same |
//! | elect one leader among many processes | [`Election::campaign`] | waits | [`Leadership::lost`] ends |
//! | follow who leads | [`Observer::changed`] | says who | |
//!
//! Waiting does not poll: nodes tell when a lock goes, whoever released it. Tasks of one process are
//! served in the order they came and put the load of one waiter on the nodes, however many they
//! are; processes wait in a queue at one node, and a release wakes the first of them. [`Owner`] lets a holder
//! enter again.
//!
//! An error is not a *no*: [`AcquireError::Unavailable`] means that nobody could find out, and says
//! for each node why.
//!
//! # What it tells
//!
//! [`Coordinator::health`] says how the nodes stand, and waits for changes. The module `metrics`,
//! with the feature of that name, lists what is counted. Events go to `tracing`, at levels by one rule:
//!
//! | level | what |
//! |---|---|
//! | error | a defect |
//! | warn | somebody may have to act: a lease lost, renewals failing, a node down; once for each change |
//! | info | the life of a connection |
//! | debug | the life of a lease, with a span `acquire` for each call that asks for one |
//! | trace | each round |
//!
//! Tokens are cut to a few digits there, since a whole one is the right to release; passwords never
//! appear.
//!
//! # Features
//!
//! None is on by default, and none changes what happens without it.
//!
//! | feature | gives |
//! |---|---|
//! | `tls` | `rediss://` addresses, by rustls, and `Builder::tls` |
//! | `metrics` | the module `metrics`: what happens to locks and nodes, for the recorder that the program installs |
//! | `stream` | [`Health`] as a `futures::Stream` |
//! | `blocking` | the module `blocking`: the same locks for programs without async |
//!
//! # Testing your own code
//!
//! `quorlock-testkit` has nodes in memory, on paused time if you like, that can be delayed, hung,
//! cut off and restarted; give them to [`Builder::custom_nodes`]. See [`guide::testing`], and
//! [`guide`] for more of the book.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
#[cfg(feature = "blocking")]
pub mod blocking;
mod coordinator;
pub mod doctor;
pub mod duration;
pub mod election;
mod engine;
mod error;
pub mod fence;
#[cfg(all(doc, not(doctest)))]
pub mod guide;
pub mod health;
mod lease;
pub mod lock;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod node;
#[doc(inline)]
pub use quorlock_protocol as protocol;
mod quorum;
mod reason;
pub mod redis;
pub mod runtime;
mod semaphore;
mod telemetry;
pub mod transport;

/// How the nodes voted: what errors and inspections show.
pub mod votes {
    pub use crate::quorum::vote_report::{Holder, NodeVote, VoteOutcome, VoteReport};
}

#[doc(inline)]
pub use {
    coordinator::{Builder, Coordinator, RestartGuard},
    election::{Election, Leadership, Observer},
    engine::options::{Fencing, Renewal},
    engine::owner::Owner,
    engine::wait::{Handoff, Wait},
    error::{AcquireError, ConfigError, LossReason, Lost, PermitError, RenewError, RetainError, WithError},
    lease::{DowngradeError, Lease, LeaseWatch, MultiLease},
    lock::{Lock, MultiLock},
    protocol::{FencingToken, Resource, Token},
    semaphore::{Permit, Semaphore},
};
