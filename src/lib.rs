//! Distributed locks held by a quorum of independent Redis or Valkey masters, or of databases.
//!
//! A client holds a lock while more than half of N independent servers grant it a lease, which expires unless
//! it is renewed. This is the Redlock algorithm with its known gaps closed: restarts, clock drift, late
//! requests, fencing. With two of five servers down or hung, locking continues.
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
//!     .build()?; // parses the addresses, connects later
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
//! On a loss, [`Lock::with`] drops the work at its next `.await` and returns [`Lost`]: acquire the lock again and
//! start over from reading, or give up. The error of the work is any type that [`AcquireError`] and [`Lost`]
//! convert to, such as `anyhow::Error`; [`WithError`] tells the two apart:
//!
//! ```
//! # use quorlock::WithError;
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(3)).build()?;
//! let outcome = coordinator.lock("orders/42").with(async |lease| {
//!     lease.check()?;
//!     Ok::<_, WithError>(42)
//! }).await;
//! match outcome {
//!     Ok(total) => println!("{total}, and the lease was valid throughout"),
//!     Err(WithError::Acquire(error)) => println!("not started: {error}"), // held, or no quorum
//!     Err(error) => println!("{error}"), // lost: how much of the work was done is unknown
//! }
//! # Ok::<(), quorlock::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! Servers to try it on: `quorlock demo`, `quorlock_testkit::Servers`, or nodes in memory, as below. A server that
//! started less than 30 s ago does not vote yet, unless the program sets [`RestartGuard::Off`].
//!
//! # When not to use it
//!
//! - **To stop a process.** Nothing stops work that is paused past the end of its lease: a process that sleeps
//!   through it and then writes has written. Call [`Lease::check`] right before each side effect, and keep side
//!   effects short against the TTL. Only a resource that checks the [fencing token](Lease::fencing_token) closes
//!   the gap: see [`fence`].
//! - **Where the data is in one database that can lock it**: use its transactions.
//! - **Where clocks and memory cannot be trusted.** It relies on clocks that run at nearly the same rate, and on
//!   servers that keep keys until they expire. A restart that loses keys is detected, as is a promoted replica,
//!   and the server's votes do not count for a while ([`RestartGuard`]). Eviction, `FLUSHALL` and clocks that
//!   jump are not detected; consensus (etcd, `ZooKeeper`) does not depend on them.
//!
//! # Which call
//!
//! | to | call | while others hold it | on a loss |
//! |---|---|---|---|
//! | run work under a lock | [`Lock::with`] | waits | drops the work |
//! | hold a lock for as long as needed | [`Lock::acquire`] | waits | [`Lease::lost`] returns, [`Lease::check`] fails |
//! | work only if the lock is free | [`Lock::try_acquire`] | returns `None` | the same |
//! | read while no client writes | [`Lock::shared`], then any of these | waits for writers only | the same |
//! | go on reading after a write | [`Lease::downgrade`] | | the same |
//! | see who holds it | [`Lock::inspect`] | returns the holder | |
//! | take it from its holder | [`Lock::revoke`] | leaves other holders alone | |
//! | hold several locks, or none | [`Coordinator::lock_all`], then any of these | waits, holding none | the same |
//! | let K clients work at the same time | [`Semaphore::acquire`] | waits | the same |
//! | elect one leader of many processes | [`Election::campaign`] | waits | [`Lease::lost`] returns |
//! | follow the leader | [`Observer::changed`] | returns the leader | |
//!
//! Waiting does not poll: nodes notify waiters of a release, whichever program released. Tasks of one process are
//! served in the order in which they called and put the load of one waiter on the nodes, however many they are.
//! Processes wait in a queue on one node, and a release wakes the first of them. An [`Owner`] can acquire a lock
//! again that it holds.
//!
//! An error is not a *no*: [`AcquireError::Unavailable`] means that the answer is unknown, and says for each node
//! why.
//!
//! # Observability
//!
//! [`Coordinator::health`] has the status of the nodes, and waits for changes; [`Coordinator::doctor`] examines a
//! deployment. With the feature `metrics`, the module `metrics` lists what is counted. Events go to `tracing`:
//!
//! | level | what |
//! |---|---|
//! | error | a defect |
//! | warn | an operator may have to act: a lease lost, renewals failing, a node down; once for each change |
//! | info | connections |
//! | debug | leases, with a span `acquire` for each call that acquires |
//! | trace | each round |
//!
//! Logs show a few digits of a token, because a whole one is the right to release; passwords never appear.
//!
//! # Features
//!
//! None is on by default, and none changes what happens without it.
//!
//! | feature | gives |
//! |---|---|
//! | `tls` | `rediss://` addresses, by rustls, and `Builder::tls` |
//! | `metrics` | the module `metrics`: metrics of locks and nodes, for the recorder that the program installs |
//! | `blocking` | the module `blocking`: the same locks for programs without async |
//!
//! Databases as nodes are crates of their own: `quorlock-postgres`, `quorlock-mysql`, `quorlock-sqlite`.
//!
//! # Testing your own code
//!
//! `quorlock-testkit` has nodes in memory, on paused time if you like, that can be delayed, hung, disconnected and
//! restarted; give them to [`Builder::custom_nodes`]. See [`guide::testing`], and [`guide`] for more of the book.

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
