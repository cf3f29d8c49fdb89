//! The one task of a node: it connects, carries questions, and connects again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::address::Address;
use super::handshake::Connector;
use super::hints::Listeners;
use super::link::{End, carry};
use super::state::{Ask, State};
use super::{Notices, Settings};
use crate::examination::Finding;
use crate::examination::judge::on_sight;
use crate::node::NodeError;
use crate::protocol::Backoff;

/// The first attempts to connect again follow at once, on a human scale.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// A node that came back is found within this time, and one that is gone for good costs a packet a
/// second. With 5 s here, nodes that failed one after the other, never more than two of five at a
/// time, were still waiting to be dialled when the next ones failed: the chaos tester saw free locks
/// take 1.7 s.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that lasts less long is no better than none: the wait for the next one goes on growing, where
/// a server takes connections and closes them again.
const LASTING: Duration = Duration::from_secs(3);

/// What the task of a node owns.
pub(crate) struct Supervisor {
    name: Arc<str>,
    connector: Connector,
    settings: Settings,
    queue: UnboundedReceiver<Ask>,
    state: Arc<State>,
    listeners: Arc<Listeners>,
    /// Says, when dropped, that the first attempt to connect is over, or that the task is.
    contacting: Option<DropGuard>,
}

impl Supervisor {
    /// The task, and what is cancelled once its first attempt to connect is over.
    pub(crate) fn new(
        name: Arc<str>,
        address: Address,
        settings: Settings,
        queue: UnboundedReceiver<Ask>,
        state: Arc<State>,
        listeners: Arc<Listeners>,
    ) -> (Supervisor, CancellationToken) {
        // No `watch` channel: it wakes those who wait in random order, which no seed reproduces.
        let contact = CancellationToken::new();
        let contacting = Some(contact.clone().drop_guard());
        let connector = Connector::new(address, settings.clone(), Arc::clone(&listeners));
        (Supervisor { name, connector, settings, queue, state, listeners, contacting }, contact)
    }

    /// Serves the node until its last handle is dropped.
    pub(crate) async fn run(self) {
        let Supervisor { name, mut connector, settings, mut queue, state, listeners, mut contacting } = self;
        let _leaving = Leaving(&state);
        let clock = &*settings.clock;
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        // The first time, questions wait in the queue for the connection.
        let mut outcome = connector.connect().await;
        loop {
            let trouble = match outcome {
                Ok(mut greeted) => {
                    let facts = std::mem::take(&mut greeted.facts);
                    if settings.notices == Notices::Logged {
                        for Finding { matter, evidence, cure, .. } in on_sight(&name, &facts) {
                            warn!(node = %name, finding = %matter, cure, "the server {evidence}");
                        }
                    }
                    state.introduced(facts);
                    let since = clock.now();
                    state.connect(Arc::clone(&greeted.instance));
                    drop(contacting.take());
                    if greeted.hints {
                        listeners.hearing();
                    }
                    let end = carry(greeted, &mut connector, &mut queue, &state, &listeners, clock).await;
                    listeners.deaf();
                    if clock.now().since(since) >= LASTING {
                        backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                    }
                    match end {
                        End::Closed => return,
                        End::Lost(reason) => NodeError::Unreachable {
                            reason: format!("the connection ended: {reason}").into(),
                        },
                    }
                }
                Err(error) => error,
            };
            state.down(trouble.clone());
            drop(contacting.take());
            let wait = backoff.next(settings.entropy.half());
            let connected = pin!(async {
                clock.sleep_until(clock.now() + wait).await;
                connector.connect().await
            });
            outcome = match select(pin!(refuse(&mut queue, &state, &trouble)), connected).await {
                Either::Left(_) => return,
                Either::Right((outcome, _)) => outcome,
            };
        }
    }
}

/// Says, when dropped, that nobody connects any more.
struct Leaving<'a>(&'a State);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Answers whatever was queued before the node was known to be down: none of it was sent. Ends
/// when nobody can ask any more.
async fn refuse(queue: &mut UnboundedReceiver<Ask>, state: &State, trouble: &NodeError) {
    while let Some(ask) = queue.recv().await {
        ask.answer(state, Err(trouble.clone()));
    }
}
