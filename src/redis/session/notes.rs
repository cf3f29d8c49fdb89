//! The notes on the server that a session reads again when the server pushes that they have changed: the largest
//! `max_ttl` (rule I-37), and the secret of the inboxes (rule O-11).
//!
//! A server that may remember few reads (`tracking-table-max-keys`) pushes a key soon after each time it was read. So
//! a note is read once in a while at most.

use std::task::Context;
use std::time::Duration;

use super::super::inbox_secret::InboxSecret;
use super::super::max_ttl::MaxTtlNote;
use super::super::push::may_change;
use super::Session;
use super::sent::{Expected, Sent};
use crate::runtime::clock::Sleep;
use quorlock_protocol::Moment;

/// The shortest time between two reads of a note.
const EVERY: Duration = Duration::from_secs(1);

/// The notes that the server pushes to this connection.
pub(super) struct Notes {
    pub(super) max_ttl: Option<MaxTtlNote>,
    pub(super) secret: Option<InboxSecret>,
    of_max_ttl: NoteState,
    of_secret: NoteState,
    /// Fires when an outdated note may be read.
    timer: Option<Sleep>,
}

struct NoteState {
    status: NoteStatus,
    /// When it may be read again.
    from: Moment,
}

/// Whether we know a note.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoteStatus {
    Known,
    /// The server has pushed that it has changed.
    Outdated,
    /// It is being read.
    Asked,
}

impl Notes {
    pub(super) fn new(max_ttl: Option<MaxTtlNote>, secret: Option<InboxSecret>, outdated: bool) -> Notes {
        let state = || NoteState {
            status: if outdated { NoteStatus::Outdated } else { NoteStatus::Known },
            from: Moment::ORIGIN,
        };
        Notes { max_ttl, secret, of_max_ttl: state(), of_secret: state(), timer: None }
    }

    /// Handles a push of the server.
    pub(super) fn pushed(&mut self, push: &[u8]) {
        let max_ttl = self.max_ttl.as_ref().map(MaxTtlNote::key);
        let secret = self.secret.as_ref().map(InboxSecret::key);
        self.of_max_ttl.pushed(push, max_ttl);
        self.of_secret.pushed(push, secret);
    }

    /// Records that the reply with the largest `max_ttl` has arrived.
    pub(super) fn max_ttl_is_known(&mut self) {
        self.of_max_ttl.status = NoteStatus::Known;
    }

    /// Records that the reply with the secret has arrived.
    pub(super) fn secret_is_known(&mut self) {
        self.of_secret.status = NoteStatus::Known;
    }

    /// Returns whether a note is to be read, at the latest once the timer fires.
    fn are_outdated(&self) -> bool {
        self.of_max_ttl.status == NoteStatus::Outdated || self.of_secret.status == NoteStatus::Outdated
    }
}

impl NoteState {
    fn pushed(&mut self, push: &[u8], key: Option<&[u8]>) {
        if self.status == NoteStatus::Known && key.is_some_and(|key| may_change(push, key)) {
            self.status = NoteStatus::Outdated;
        }
    }

    /// Returns whether it is to be read now, which is then asked for. At most one such request is in flight: a change
    /// before its reply is in the reply, such as our own, which Redis 6.0 pushes to us.
    fn is_due(&mut self, now: Moment) -> bool {
        let due = self.status == NoteStatus::Outdated && self.from <= now;
        if due {
            self.status = NoteStatus::Asked;
            self.from = now + EVERY;
        }
        due
    }
}

impl Session<'_> {
    /// Reads the notes again that have changed.
    pub(super) fn read_notes(&mut self, context: &mut Context<'_>) {
        if !self.notes.are_outdated() || self.shutdown.is_some() {
            return;
        }
        let at = self.clock.now();
        if self.notes.of_max_ttl.is_due(at)
            && let Some(note) = &self.notes.max_ttl
        {
            note.ask(self.connection.outbox());
            self.in_flight.push_back(Sent { expected: Expected::MaxTtl, at });
        }
        if self.notes.of_secret.is_due(at)
            && let Some(secret) = &self.notes.secret
        {
            secret.ask(&*self.connector.entropy(), self.connection.outbox());
            for expected in [Expected::SecretLeft, Expected::Secret] {
                self.in_flight.push_back(Sent { expected, at });
            }
        }
        debug_assert!(
            self.in_flight.iter().filter(|sent| matches!(sent.expected, Expected::MaxTtl)).count() <= 1,
            "the reply to an earlier request for the note would be taken for the newest"
        );
        self.watch_for_stall(at);
        self.wake_for_notes(context, at);
    }

    /// Arms the timer for notes that may not be read yet.
    fn wake_for_notes(&mut self, context: &mut Context<'_>, now: Moment) {
        if !self.notes.are_outdated() {
            self.notes.timer = None;
            return;
        }
        let clock = self.clock;
        let timer = self.notes.timer.get_or_insert_with(|| clock.sleep_until(now + EVERY));
        if timer.as_mut().poll(context).is_ready() {
            self.notes.timer = None;
            context.waker().wake_by_ref();
        }
    }
}
