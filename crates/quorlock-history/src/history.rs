use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{Client, Fault, Node, Resource, Token};
use crate::stamp::{Stamp, nanos};

/// Something that happened, and when. One line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When it happened; each kind of event says which moment counts.
    pub at: Stamp,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// `what` happened `at` this moment.
    #[must_use]
    pub fn new(at: Stamp, what: What) -> Event {
        Event { at, what }
    }
}

/// What can happen to locks, to those who want them and to the nodes that hold them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// Every stamp is at most `epsilon` away from the true time. Zero unless said otherwise, which
    /// is right where one clock wrote them all; of several such events the largest counts.
    Clocks {
        /// The bound, measured by whoever recorded the history.
        #[serde(with = "nanos")]
        epsilon: Duration,
    },
    /// A client is about to ask for a lock. `at` is before the first byte is sent.
    Invoked {
        /// Who asks.
        client: Client,
        /// For what.
        resource: Resource,
        /// By what name the attempt goes from here on.
        attempt: Token,
    },
    /// The attempt asks for this as well, all at once or none; so its lease holds each of them.
    Wants {
        /// Which one.
        attempt: Token,
        /// For what, beside what it was invoked for.
        resource: Resource,
    },
    /// From here on the attempt asks for no more than a share of the lock, which others may have at the
    /// same time, or its lease is no more than that. `at` is before the first byte is sent: of the
    /// attempt, or of the downgrade of its lease.
    Shares {
        /// Which one.
        attempt: Token,
    },
    /// The attempt asks for one of a semaphore's permits, of which it believes that there are so many. `at`
    /// is before the first byte is sent.
    OneOf {
        /// Which one.
        attempt: Token,
        /// How many there are.
        permits: usize,
    },
    /// The attempt got the permit of this number, with the lease that it [returned](What::Acquired).
    Permit {
        /// Which one.
        attempt: Token,
        /// The number.
        number: usize,
    },
    /// Somebody who does not campaign was told who leads. `at` is after it was told.
    Observed {
        /// Who was told.
        client: Client,
        /// What is led.
        resource: Resource,
        /// The attempt of whoever leads.
        leader: Token,
        /// The leader's fencing token, if that was told as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fencing_token: Option<u64>,
        /// Before the nodes were asked.
        asked: Stamp,
    },
    /// The attempt returned a lease. `at` is after it returned.
    Acquired {
        /// Which one.
        attempt: Token,
        /// The end of validity.
        deadline: Stamp,
        /// The fencing token, if fencing is on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fencing_token: Option<u64>,
    },
    /// The attempt returned no lease, or nobody waits for it any longer.
    NotAcquired {
        /// Which one.
        attempt: Token,
    },
    /// A renewal moved the end of validity. `at` is the earliest moment at which it may have
    /// counted: only a renewal that is certainly late is held against anybody.
    Renewed {
        /// Whose.
        attempt: Token,
        /// The end of validity from now on.
        deadline: Stamp,
    },
    /// The lease said that it holds. `at` is before it was asked.
    SeenValid {
        /// Which one.
        attempt: Token,
    },
    /// The holder is about to give the lock back. `at` is before the first byte is sent.
    Releasing {
        /// Whose lock.
        attempt: Token,
    },
    /// The release returned, whether or not it could be confirmed. One that returned because the
    /// lease was over by then tells of a loss as well: record [`What::Lost`].
    Released {
        /// Whose lock.
        attempt: Token,
    },
    /// The holder was told that the lease is over without a release.
    Lost {
        /// Whose.
        attempt: Token,
        /// Why, in words.
        reason: String,
    },
    /// The client stopped for good, with all its attempts. `at` is before it was killed: from then
    /// on nothing about it is certain. Another one may start under its name later.
    Crashed {
        /// Who.
        client: Client,
    },
    /// A guarded resource accepted or refused a write. `at` is when it decided.
    Wrote {
        /// Where.
        resource: Resource,
        /// Under whose lease.
        attempt: Token,
        /// The fencing token that came with the write.
        fencing_token: u64,
        /// What the resource made of it.
        answer: Answer,
    },
    /// A node was seen to have a key. Every key that a look at a node finds is one event.
    Key {
        /// Where it stands.
        node: Node,
        /// What it locks.
        resource: Resource,
        /// To which attempt its value belongs; the value itself if to none.
        attempt: Token,
        /// The rest of its TTL; [`Duration::MAX`] if it never expires.
        #[serde(with = "nanos")]
        remaining: Duration,
    },
    /// A node was seen to have counted fencing tokens up to here.
    Counter {
        /// Where.
        node: Node,
        /// For what.
        resource: Resource,
        /// How far.
        value: u64,
    },
    /// A node lost data that it should have kept: keys, counters or both.
    Forgot {
        /// Which one.
        node: Node,
    },
    /// A disturbance began.
    FaultBegan {
        /// Which one.
        fault: Fault,
        /// The nodes that some client may be unable to reach or to use meanwhile.
        nodes: Vec<Node>,
        /// The clients that may be unable to run meanwhile.
        clients: Vec<Client>,
    },
    /// A disturbance is over. One that never heals lasts to the end of the history.
    FaultHealed {
        /// Which one.
        fault: Fault,
    },
}

/// What a guarded resource made of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// The token was as large as any before, or larger.
    Accepted,
    /// A larger token had been seen.
    Refused,
}

/// All that was recorded, in any order: several recorders may be put together.
///
/// Events of the same moment count as having happened in the order in which they were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// An empty one.
    #[must_use]
    pub fn new() -> History {
        History::default()
    }

    /// Adds what happened.
    pub fn record(&mut self, at: Stamp, what: What) {
        self.events.push(Event::new(at, what));
    }

    /// The events in the order recorded.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Reads a history of JSON lines. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// [`BadLine`] names the first line that is no event. Nothing is guessed: if a recorder was
    /// killed while it wrote, cut its last line off first.
    pub fn from_lines(text: &str) -> Result<History, BadLine> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                serde_json::from_str::<Event>(line).map_err(|cause| BadLine { number: index + 1, cause })
            })
            .collect()
    }

    /// Writes the history as JSON lines, which [`History::from_lines`] reads.
    #[must_use]
    pub fn to_lines(&self) -> String {
        self.events.iter().map(Event::to_line).collect()
    }

    /// The events in the order in which they happened.
    pub(crate) fn in_order(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by_key(|event| event.at);
        events
    }
}

impl Event {
    /// One line of a file, with its line end: for a recorder that writes as it goes.
    #[must_use]
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "text and numbers are all there is, and JSON can say them"
    )]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an event is JSON") + "\n"
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

/// A line of a file is no event.
#[derive(Debug, thiserror::Error)]
#[error("line {number} of the history is no event")]
pub struct BadLine {
    number: usize,
    #[source]
    cause: serde_json::Error,
}

impl BadLine {
    /// Which line, counted from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}
