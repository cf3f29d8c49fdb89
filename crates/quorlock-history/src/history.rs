use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{Client, Fault, Node, Resource, Token};
use crate::stamp::{Stamp, nanos};

/// An event and its time. One line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When it happened. Each kind of event defines which moment counts.
    pub at: Stamp,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// Creates an event that happened at `at`.
    #[must_use]
    pub fn new(at: Stamp, what: What) -> Event {
        Event { at, what }
    }
}

/// The kinds of events: what happened to locks, clients and nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// Every stamp is at most `epsilon` away from the true time. If there are several such events,
    /// the largest counts; without one, `epsilon` is zero, which is right for a single clock.
    Clocks {
        /// The bound, measured by the recorder.
        #[serde(with = "nanos")]
        epsilon: Duration,
    },
    /// A client is about to acquire a lock. `at` is before the first byte is sent.
    Invoked {
        /// The client.
        client: Client,
        /// The resource.
        resource: Resource,
        /// The name of the attempt in later events.
        attempt: Token,
    },
    /// The attempt locks this resource as well, all or none; its lease holds each of them.
    Wants {
        /// The attempt.
        attempt: Token,
        /// The additional resource.
        resource: Resource,
    },
    /// The attempt asks for a shared lock, or its lease is being downgraded to one. `at` is before
    /// the first byte of the acquisition or the downgrade is sent.
    Shares {
        /// The attempt.
        attempt: Token,
    },
    /// The attempt asks for one permit of a semaphore. `at` is before the first byte is sent.
    OneOf {
        /// The attempt.
        attempt: Token,
        /// The number of permits the client believes the semaphore has.
        permits: usize,
    },
    /// The attempt got this permit together with the lease it [returned](What::Acquired).
    Permit {
        /// The attempt.
        attempt: Token,
        /// The permit number.
        number: usize,
    },
    /// An observer learned who leads. `at` is after it learned.
    Observed {
        /// The observer.
        client: Client,
        /// The election.
        resource: Resource,
        /// The leader's attempt.
        leader: Token,
        /// The leader's fencing token, if it was reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fencing_token: Option<u64>,
        /// When the observer asked, before any node was asked.
        asked: Stamp,
    },
    /// The attempt returned a lease. `at` is after it returned.
    Acquired {
        /// The attempt.
        attempt: Token,
        /// The deadline of the lease.
        deadline: Stamp,
        /// The fencing token, if fencing is on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fencing_token: Option<u64>,
    },
    /// The attempt returned no lease, or was cancelled.
    NotAcquired {
        /// The attempt.
        attempt: Token,
    },
    /// A renewal extended the deadline. `at` is the earliest moment at which it may have taken
    /// effect, so that only a renewal that is certainly late is reported.
    Renewed {
        /// The attempt.
        attempt: Token,
        /// The new deadline.
        deadline: Stamp,
    },
    /// The lease was checked and reported as valid. `at` is before the check.
    SeenValid {
        /// The attempt.
        attempt: Token,
    },
    /// The holder is about to release the lock. `at` is before the first byte is sent.
    Releasing {
        /// The attempt.
        attempt: Token,
    },
    /// The release returned, confirmed or not. If it returned because the lease had already ended,
    /// it also reports a loss: record [`What::Lost`].
    Released {
        /// The attempt.
        attempt: Token,
    },
    /// The holder was notified that it lost the lease.
    Lost {
        /// The attempt.
        attempt: Token,
        /// The reason, in words.
        reason: String,
    },
    /// The client was killed, with all its attempts. `at` is before the kill: nothing about the
    /// client is certain from then on. Another client may start under the same name later.
    Crashed {
        /// The client.
        client: Client,
    },
    /// A guarded resource accepted or refused a write. `at` is when it decided.
    Wrote {
        /// The guarded resource.
        resource: Resource,
        /// The attempt whose lease the writer held.
        attempt: Token,
        /// The fencing token sent with the write.
        fencing_token: u64,
        /// The decision.
        answer: Answer,
    },
    /// A key was found on a node. Each inspection of a node records one event per key.
    Key {
        /// The node.
        node: Node,
        /// The locked resource.
        resource: Resource,
        /// The attempt that the key's value belongs to; the value itself if it belongs to none.
        attempt: Token,
        /// The remaining TTL; [`Duration::MAX`] if it never expires.
        #[serde(with = "nanos")]
        remaining: Duration,
    },
    /// A fencing counter was read on a node.
    Counter {
        /// The node.
        node: Node,
        /// The resource.
        resource: Resource,
        /// The value of the counter.
        value: u64,
    },
    /// A node lost data that it should have kept: keys, counters or both.
    Forgot {
        /// The node.
        node: Node,
    },
    /// The network delivered requests that had been carried out a second time. A node draws a new number for a claim that
    /// acquires once more, and reports that to observers.
    Repeated,
    /// A fault began.
    FaultBegan {
        /// The fault.
        fault: Fault,
        /// The nodes that may be unreachable or unusable for some client.
        nodes: Vec<Node>,
        /// The clients that may be unable to run.
        clients: Vec<Client>,
    },
    /// A fault healed. One that never heals lasts to the end of the history.
    FaultHealed {
        /// The fault.
        fault: Fault,
    },
}

/// A guarded resource's decision about a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// The token was at least as large as any before.
    Accepted,
    /// A larger token had been seen before.
    Refused,
}

/// A recorded history, with its events in any order: the files of several recorders may be concatenated.
///
/// Events with equal stamps happened in the order in which they were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> History {
        History::default()
    }

    /// Appends an event.
    pub fn record(&mut self, at: Stamp, what: What) {
        self.events.push(Event::new(at, what));
    }

    /// Returns the events in the order in which they were recorded.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Parses JSON lines. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// Returns [`BadLine`] with the number of the first line that is not an event. Nothing is
    /// repaired: if a recorder was killed while writing, remove its incomplete last line first.
    pub fn from_lines(text: &str) -> Result<History, BadLine> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                serde_json::from_str::<Event>(line).map_err(|cause| BadLine { number: index + 1, cause })
            })
            .collect()
    }

    /// Formats the history as JSON lines, as read by [`History::from_lines`].
    #[must_use]
    pub fn to_lines(&self) -> String {
        self.events.iter().map(Event::to_line).collect()
    }

    /// Returns the events in the order in which they happened.
    pub(crate) fn in_order(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by_key(|event| event.at);
        events
    }
}

impl Event {
    /// Formats the event as one JSON line with its newline, for a recorder that writes continuously.
    #[must_use]
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "it consists of text and numbers, which JSON can represent"
    )]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an event serializes to JSON") + "\n"
    }
}

impl FromIterator<Event> for History {
    fn from_iter<Events: IntoIterator<Item = Event>>(events: Events) -> History {
        History { events: events.into_iter().collect() }
    }
}

impl Extend<Event> for History {
    fn extend<Events: IntoIterator<Item = Event>>(&mut self, events: Events) {
        self.events.extend(events);
    }
}

/// The error for a line that is not an event.
#[derive(Debug, thiserror::Error)]
#[error("line {number} of the history is not an event")]
pub struct BadLine {
    number: usize,
    #[source]
    cause: serde_json::Error,
}

impl BadLine {
    /// Returns the line number, counted from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}
