//! Distributed locks, granted by a quorum of independent Redis or Valkey masters, or of databases.
//!
//! A client holds a lock while more than half of N independent servers (the *nodes*) grant it a *lease*. The nodes
//! keep it for its TTL, 30 s by default, and it is renewed every third of that. This is the Redlock algorithm, with
//! rules for what it leaves open: restarts, clock drift, late requests. With two of five nodes down or hung, locking
//! continues.
//!
//! ```
//! # type Error = Box<dyn std::error::Error + Send + Sync>; // or anyhow's, or one of your own
//! # async fn load(_: u32) -> Result<u32, Error> { Ok(40) }
//! # async fn store(order: u32, _: quorlock::FencingToken) -> Result<u32, Error> { Ok(order + 2) }
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
//!     store(order, lease.fencing_token()).await // its SQL refuses a smaller number
//! }).await?;
//! # assert_eq!(total, 42);
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! ```
//!
//! [`Lock::with`] waits while another client holds the lock, or too few nodes answer, for up to 35 s
//! ([`Lock::wait`]). It returns `Ok` if the lease was valid until the work had ended. On a loss it drops the work at
//! the `.await` at which it waits, and returns [`Lost`]: a side effect that was sent before may or may not have
//! happened, so start over from reading, and not from writing. Work that blocks its thread is not interrupted.
//!
//! The error of the work is any type that [`AcquireError`] and [`Lost`] convert to, such as `anyhow::Error`;
//! [`WithError`] tells all outcomes apart:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use quorlock::{AcquireError, Coordinator, WithError};
//!
//! let coordinator = Coordinator::builder()
//!     .custom_nodes(quorlock_testkit::memory_nodes(3)) // nodes in memory, for tests
//!     .build()?;
//! let outcome = coordinator.lock("orders/42").with(async |lease| {
//!     let sum: u32 = "42".parse().map_err(WithError::Work)?; // an error of the work
//!     lease.check()?;
//!     Ok(sum)
//! }).await;
//! match outcome {
//!     Ok(total) => println!("{total}"),
//!     Err(WithError::Acquire(AcquireError::Contended { .. })) => println!("another client holds it"),
//!     Err(WithError::Acquire(error)) => println!("not started: {error}"), // no quorum, or a setting
//!     Err(WithError::Lost(lost)) => println!("{lost}; part of the work may have been done"),
//!     Err(error) => println!("the work failed: {error}"),
//! }
//! # Ok::<(), quorlock::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! It runs on tokio. Servers to try it on: `quorlock demo`, or `quorlock_testkit::Servers`. A server that started less
//! than 30 s ago ([`max_ttl`](Builder::max_ttl)) does not vote yet, unless the program sets [`RestartGuard::Off`].
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
//!   and the server's votes do not count for `max_ttl` ([`RestartGuard`]). Clocks that jump are not detected;
//!   eviction, `FLUSHALL` and a [`revoke`](Lock::revoke) only at the next renewal, at most a third of the TTL later, or
//!   once a lease has been renewed, when a node says that its key has changed: until then [`Lease::check`], which reads
//!   the clock and asks no node, passes. Consensus (etcd, ZooKeeper) does
//!   not depend on clocks and kept keys.
//!
//! # Which call
//!
//! | to | call | while another client holds it | on a loss |
//! |---|---|---|---|
//! | run work under a lock | [`Lock::with`] | waits | drops the work |
//! | hold a lock for as long as needed | [`Lock::acquire`] | waits | [`Lease::lost`] returns, [`Lease::check`] fails |
//! | work only if the lock is free | [`Lock::try_acquire`] | returns `None` | as above |
//! | read while no client writes | [`Lock::shared`], then one of the above | waits for writers only | as there |
//! | let readers in after a write | [`Lease::downgrade`] | | as before |
//! | see who holds it | [`Lock::inspect`] | returns a report with the holder | |
//! | free it without its holder | [`Lock::revoke`], with the holder's token | frees it | the holder notices late |
//! | lock several resources, all or none | [`Coordinator::lock_all`], then one of the above | waits, holding none | as there |
//! | let K clients work at the same time | [`Semaphore::acquire`] | waits | as for a lock |
//! | elect one leader of many processes | [`Election::campaign`] | waits | [`Lease::lost`] returns |
//! | follow the leader | [`Observer::changed`] | returns the leader | |
//!
//! Waiting does not poll: nodes notify waiters of a release, whichever program released. Tasks of one process are
//! served in the order in which they called and put the load of one waiter on the nodes, however many they are.
//! Processes wait in a queue on one node, and a release wakes the first of them. An [`Owner`]
//! ([`Lock::owner`]) can acquire a lock again while it holds it. Dropping a lease releases it in the background; a
//! runtime that ends right after that may send nothing, so end a program with [`Lease::release`] or [`Coordinator::close`].
//!
//! *Unavailable* is not *held*: [`AcquireError::Contended`] means that another client holds the lock,
//! [`AcquireError::Unavailable`] that the answer is unknown, and says for each node why.
//!
//! # Observability
//!
//! [`Coordinator::health`] returns the status of the nodes, now and after each change; [`Coordinator::doctor`] examines
//! a deployment. With the feature `metrics`, the module `metrics` lists what is counted. Events go to `tracing`:
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
//! None is on by default, and none changes the behaviour of the rest.
//!
//! | feature | gives |
//! |---|---|
//! | `tls` | `rediss://` addresses, by rustls, and `Builder::tls` |
//! | `metrics` | the module `metrics`: metrics of locks and nodes, for the recorder that the program installs |
//! | `blocking` | the module `blocking`: the same locks for programs without async |
//!
//! Other kinds of node are crates of their own: `quorlock-postgres`, `quorlock-mysql`, `quorlock-sqlite`, `quorlock-etcd`,
//! `quorlock-zookeeper`, and `quorlock-exec` for a program in any language. `quorlock-kinds` has all of them in one list.
//!
//! # Testing your own code
//!
//! `quorlock-testkit` has nodes in memory that can be delayed, hung, disconnected and restarted, also under tokio's
//! paused clock; give them to [`Builder::custom_nodes`]. See [`guide::testing`], and [`guide`] for more of the book.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
#[cfg(feature = "blocking")]
pub mod blocking;
mod coordinator;
pub mod doctor;
#[doc(hidden)]
pub mod duration;
pub mod election;
mod engine;
mod error;
pub mod fence;
mod forward;
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
pub mod redis;
pub mod runtime;
mod semaphore;
mod telemetry;
pub mod transport;

/// How the nodes voted: what errors and inspections show.
pub mod votes {
    pub use quorlock_protocol::votes::{Holder, NodeVote, QuarantineCause, VoteOutcome, VoteReport};
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
    semaphore::{Permit, PermitWatch, Semaphore},
};
