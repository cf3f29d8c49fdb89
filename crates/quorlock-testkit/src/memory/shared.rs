//! The state that the handles of a memory node share, and the task that keeps its time.

use std::collections::VecDeque;
use std::sync::Arc;

use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;
use quorlock::{
    node::{HintListener, NodeError, Responder, SharedRequest},
    runtime::Clock,
};
use tokio::sync::Notify;

use super::line::{Connection, Delivery};
use super::server::{Kept, Server};

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) clock: Arc<dyn Clock>,
    /// The server's clock.
    pub(super) own: Arc<dyn Clock>,
    pub(super) state: Mutex<State>,
    pub(super) listeners: Mutex<Vec<Arc<dyn HintListener>>>,
    /// Wakes the timekeeper: something is due earlier than it knows.
    pub(super) due: Notify,
    /// Wakes the callers that wait for the first contact.
    pub(super) contact: Notify,
}

pub(super) struct State {
    pub(super) server: Server,
    pub(super) line: Connection,
    /// Deliveries that have arrived at the clients and are being handed over.
    pub(super) arrived: VecDeque<Delivery>,
    /// Whether a call is delivering.
    pub(super) delivering: bool,
    /// Whether a timekeeper task runs.
    pub(super) timekeeper: bool,
}

impl State {
    pub(super) fn send(&mut self, now: Moment, request: SharedRequest, reply: Responder) {
        if request.may_create() && !reply.wanted() {
            self.line.refuse(reply, NodeError::NotAsked);
        } else {
            self.line.send(now, request, reply);
        }
    }

    fn due(&self) -> Option<Due> {
        let due = Due { line: self.line.next_due(), server: self.line.next_change(&self.server) };
        (due.line.is_some() || due.server.is_some()).then_some(due)
    }

    pub(super) fn restart(&mut self, now: Moment, kept: Kept) {
        self.line.reset();
        self.server.locks.watch.clear();
        self.server.restart(now, kept);
    }
}

/// When something happens next: on the connection by the clients' clock, in the server by its own.
#[derive(Clone, Copy)]
pub(super) struct Due {
    line: Option<Moment>,
    server: Option<Moment>,
}

/// The task that waits for what is due.
pub(super) enum KeepTime {
    NotNeeded,
    Running,
    Start,
}

impl Shared {
    /// Processes everything that is due, and delivers what has arrived, one after the other: a recipient may
    /// immediately send another request, and another thread may call this at the same time.
    pub(super) fn advance(&self) {
        let mut state = self.state.lock();
        let State { server, line, arrived, .. } = &mut *state;
        arrived.extend(line.advance(self.clock.now(), server));
        if std::mem::replace(&mut state.delivering, true) {
            // The call that is delivering delivers this, too.
            return;
        }
        drop(state);
        let delivering = Delivering(self);
        while let Some(delivery) = delivering.next() {
            self.deliver(delivery);
        }
    }

    fn deliver(&self, delivery: Delivery) {
        let mut listeners = self.listeners.lock();
        match delivery {
            Delivery::Response(reply, answer) => {
                drop(listeners);
                reply.send(answer);
            }
            Delivery::Hint(news) => {
                for listener in &*listeners {
                    news.notify(&**listener);
                }
            }
            Delivery::Listener(listener, first) => {
                if let Some(news) = first {
                    news.notify(&*listener);
                }
                listeners.push(listener);
            }
        }
    }

    pub(super) fn keep_time(&self) -> KeepTime {
        let mut state = self.state.lock();
        if state.due().is_none() {
            KeepTime::NotNeeded
        } else if std::mem::replace(&mut state.timekeeper, true) {
            KeepTime::Running
        } else {
            KeepTime::Start
        }
    }

    /// Returns when something is due next. If nothing is, the timekeeper ends with this call.
    fn next_due(&self) -> Option<Due> {
        let mut state = self.state.lock();
        let due = state.due();
        state.timekeeper = due.is_some();
        due
    }

    /// Waits until `due`.
    async fn wait_until(&self, due: Due) {
        let sleep = |clock: &Arc<dyn Clock>, moment: Option<Moment>| match moment {
            Some(moment) => clock.sleep_until(moment),
            None => Box::pin(std::future::pending()),
        };
        tokio::select! {
            () = sleep(&self.clock, due.line) => {}
            () = sleep(&self.own, due.server) => {}
        }
    }
}

/// Stops delivering when dropped, also if a recipient panics.
struct Delivering<'a>(&'a Shared);

impl Delivering<'_> {
    /// Returns the next delivery. If there is none, a later call delivers.
    fn next(&self) -> Option<Delivery> {
        let mut state = self.0.state.lock();
        let next = state.arrived.pop_front();
        state.delivering = next.is_some();
        next
    }
}

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().delivering = false;
        }
    }
}

pub(super) async fn keep_time(shared: Arc<Shared>) {
    while let Some(due) = shared.next_due() {
        tokio::select! {
            biased;
            () = shared.due.notified() => {}
            () = shared.wait_until(due) => {}
        }
        shared.advance();
    }
}
