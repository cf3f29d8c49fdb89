//! One connection of a node: opened on first use, and reopened when it ends.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, FutureExt as _, select};
use quorlock::node::{ConnectionState, NodeError};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::handshake::{Backend, connect};
use crate::job::{Barrier, Job};
use crate::lines::ConnectionPool;
use crate::listeners::Listeners;
use crate::session::End;
use crate::settings::Settings;

/// The initial delay before reconnecting.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The maximum delay before reconnecting.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// One connection.
pub(crate) struct NodeConnection {
    pub(crate) number: usize,
    pub(crate) settings: Settings,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) jobs: UnboundedReceiver<Job>,
    pub(crate) predecessor: Option<Backend>,
    pub(crate) lines: Weak<ConnectionPool>,
}

impl NodeConnection {
    /// Sends requests until the node is dropped. A panic, here or in what is called, costs the connection (rule I-31).
    pub(crate) async fn work(mut self) {
        while AssertUnwindSafe(self.run()).catch_unwind().await.is_err() {
            tracing::error!(node = %self.settings.url, "a task of the node panicked; reconnecting");
        }
    }

    async fn run(&mut self) {
        // After a panic.
        self.listeners.unsubscribed(self.number);
        let Some(first) = self.jobs.recv().await else { return };
        let mut kept = Some(first);
        let mut wait = FIRST_WAIT;
        loop {
            let error = match connect(&self.settings, &mut self.predecessor).await {
                Ok((session, facts)) => {
                    if session.follows_unended {
                        self.listeners.lose_order();
                    }
                    self.listeners.set_facts(facts, session.round_trip);
                    self.listeners.notify(ConnectionState::Connected(Arc::clone(&session.identity)));
                    // The table of ShedLock sends no hints.
                    if self.settings.url.shedlock.is_none() {
                        self.listeners.subscribed(self.number);
                    }
                    let clock = Arc::clone(self.settings.seams.clock());
                    let limit = self.settings.limit();
                    let begun = clock.now();
                    let (end, has_answered) =
                        session.run(&mut kept, &mut self.jobs, &clock, &self.listeners, limit).await;
                    self.listeners.unsubscribed(self.number);
                    let has_lasted = clock.now().since(begun) >= LONGEST_WAIT;
                    // Where a proxy ends each connection, the delay grows.
                    if has_answered || has_lasted {
                        wait = FIRST_WAIT;
                    }
                    match end {
                        End::Unused => return,
                        // Requests wait for the next connection: nothing says yet that there is none.
                        End::Lost(error) if has_lasted => {
                            self.lost(&mut kept, &error).await;
                            continue;
                        }
                        End::Lost(error) => error,
                    }
                }
                Err(error) => {
                    if self.predecessor.is_some() {
                        self.listeners.lose_order();
                    }
                    error
                }
            };
            self.lost(&mut kept, &error).await;
            if self.is_given_up() {
                let Some(next) = self.jobs.recv().await else { return };
                kept = Some(next);
                continue;
            }
            if !self.pause(&error, wait).await {
                return;
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Reports the end of a connection, and refuses the request for which it was made.
    async fn lost(&self, kept: &mut Option<Job>, error: &NodeError) {
        tracing::debug!(node = %self.settings.url, %error, "no connection");
        self.listeners.notify(ConnectionState::Lost(error.clone()));
        if let Some(job) = kept.take() {
            refuse(job, error).await;
        }
    }

    /// Whether the node does without this connection for now, because it could not be opened.
    fn is_given_up(&self) -> bool {
        let now = self.settings.seams.clock().now();
        self.lines.upgrade().is_some_and(|lines| lines.give_up(self.number, now))
    }

    /// Refuses requests until it is time to reconnect. Returns whether the node is still used.
    async fn pause(&mut self, error: &NodeError, wait: Duration) -> bool {
        let clock = self.settings.seams.clock();
        let mut over = clock.sleep_until(clock.now() + wait);
        loop {
            let job = {
                let next = std::pin::pin!(self.jobs.recv());
                match select(next, over).await {
                    Either::Left((job, rest)) => {
                        over = rest;
                        job
                    }
                    Either::Right(_) => return true,
                }
            };
            match job {
                Some(job) => refuse(job, error).await,
                None => return false,
            }
        }
    }
}

/// Answers that there is no connection.
async fn refuse(job: Job, error: &NodeError) {
    let error = if let NodeError::Disconnected { reason } = error {
        NodeError::Unreachable { reason: reason.clone() }
    } else if error.may_have_acted() {
        // Earlier requests may have been executed; this one was not sent.
        NodeError::Unreachable { reason: format!("{error:#}").into() }
    } else {
        error.clone()
    };
    match job {
        Job::Ask { responder, .. } => responder.send(Err(error)),
        Job::Connect(ready) => drop(ready.send(Err(error))),
        Job::After(_) => {}
        // Nothing is in flight here.
        Job::Pass(Barrier { arrived, left }) => {
            let _ = arrived.send(());
            drop(left.await);
        }
    }
}
