//! One connection of a node: made on the first use, and again when it ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::node::{ConnectionState, NodeError, Responder, SharedRequest};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::handshake::{Settings, Witness, connect};
use crate::lines::{Lines, Unanswered};
use crate::listeners::Listeners;
use crate::session::End;

/// The first attempts to connect again follow immediately, on a human scale.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// A server that came back is found within this time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What a connection is to do.
pub(crate) enum Job {
    Ask {
        request: SharedRequest,
        responder: Responder,
        /// Where it is of several keys that belong to several connections.
        spanning: Option<Spanning>,
        unanswered: Unanswered,
    },
    /// A request of several keys goes over another connection: nothing is sent until it is answered.
    Pass(Turnstile),
    /// Nothing is sent until other connections have answered what was asked before.
    After(Vec<oneshot::Receiver<()>>),
    /// Says when there is a connection, or why there is none.
    Connect(oneshot::Sender<Result<(), NodeError>>),
}

/// The other connections to which keys of a request belong.
pub(crate) struct Spanning {
    /// Each has answered all that was asked before.
    pub(crate) arrivals: Vec<oneshot::Receiver<()>>,
    /// Lets them go on, when dropped.
    pub(crate) leave: Vec<oneshot::Sender<()>>,
}

/// Where a connection waits for a request of several keys.
pub(crate) struct Turnstile {
    pub(crate) arrived: oneshot::Sender<()>,
    pub(crate) left: oneshot::Receiver<()>,
}

/// One connection.
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) settings: Settings,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) jobs: UnboundedReceiver<Job>,
    pub(crate) predecessor: Option<Witness>,
    pub(crate) lines: Weak<Lines>,
}

impl Line {
    /// Carries what is asked, until the node is dropped.
    pub(crate) async fn run(mut self) {
        let Some(first) = self.jobs.recv().await else { return };
        let mut kept = Some(first);
        let mut wait = FIRST_WAIT;
        loop {
            let error = match connect(&self.settings, &mut self.predecessor).await {
                Ok((session, facts)) => {
                    wait = FIRST_WAIT;
                    self.listeners.set_facts(facts, session.round_trip);
                    self.listeners.tell(&ConnectionState::Connected(Arc::clone(&session.identity)));
                    // The table of another program sends no hints.
                    if self.settings.url.shedlock.is_none() {
                        self.listeners.hears(self.number);
                    }
                    let clock = Arc::clone(self.settings.seams.clock());
                    let limit = self.settings.limit();
                    let end = session.run(&mut kept, &mut self.jobs, &clock, &self.listeners, limit).await;
                    self.listeners.is_deaf(self.number);
                    match end {
                        End::Unused => return,
                        End::Lost(error) => error,
                    }
                }
                Err(error) => error,
            };
            tracing::debug!(node = %self.settings.url, %error, "no connection");
            self.listeners.tell(&ConnectionState::Lost(error.clone()));
            if let Some(job) = kept.take() {
                refuse(job, &error).await;
            }
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

    /// Whether the node does without this connection, which it could not open, for now.
    fn is_given_up(&self) -> bool {
        let now = self.settings.seams.clock().now();
        self.lines.upgrade().is_some_and(|lines| lines.give_up(self.number, now))
    }

    /// Refuses what is asked until it is time to connect again. Says whether the node is still used.
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
        // What was asked before may have been carried out. This was not sent.
        NodeError::Unreachable { reason: format!("{error:#}").into() }
    } else {
        error.clone()
    };
    match job {
        Job::Ask { responder, .. } => responder.send(Err(error)),
        Job::Connect(ready) => drop(ready.send(Err(error))),
        Job::After(_) => {}
        // Nothing is under way here.
        Job::Pass(Turnstile { arrived, left }) => {
            let _ = arrived.send(());
            drop(left.await);
        }
    }
}
