//! The server process that answered last at an address, and whether its data are still those that this client knew.
//!
//! A server can lose its data while it runs: emptied, replaced by those of a master that it followed for a while, or by
//! an older dump. Its process and its age are the same afterwards. Before its next answer, it pushes to each tracking
//! connection that all keys are invalid. The connection ends there, before that answer is read, and the next handshake
//! decides, from what is [marked](Marks) in the data, whether they are a new history, of age zero (rule I-51).
//!
//! A server pushes the same when another of its databases is emptied, as by the application that has its cache there.
//! Then the history goes on.

use std::sync::Arc;
use std::time::Duration;

use super::connection::text;
use super::introduction::{Replies, ReplyTo};
use super::process::Process;
use crate::node::Identity;
use quorlock_protocol::{Moment, Past, age};

/// The process that answered last.
pub(super) struct LastSeen {
    identity: Arc<Identity>,
    history: Option<String>,
    answered: Moment,
    marks: Marks,
    /// When it has invalidated all keys, while it is not known whether the data are the same.
    invalidated: Option<Moment>,
}

/// What keeps a new process, or a promoted one, from voting besides its age.
#[derive(Clone, Copy)]
pub(super) enum HoldingBack {
    /// Its predecessor may still be asked for this long.
    For(Duration),
    /// Nothing, nor its age: by the operator's word it forgets nothing (rule I-53).
    Never,
}

/// What a handshake reads of whether the data are those of the one before.
#[derive(Clone, Default)]
pub(super) struct Marks {
    /// The secret of the inboxes: it is random, and another one after the database was emptied.
    pub(super) secret: Option<Box<[u8]>>,
    /// When the history must have begun, by the server's wall clock, as a client has recorded it.
    pub(super) began: Option<Duration>,
    /// How long that is ago.
    pub(super) known: Option<Duration>,
    /// Whether it has begun anew then, because a client has seen that data were lost.
    pub(super) is_anew: bool,
    /// Whether no dump was loaded while the process was running. Not asked, and false, unless keys were invalidated.
    pub(super) loaded_nothing: bool,
}

/// The requests for the marks.
pub(super) struct AskedMarks {
    pub(super) secret: Option<ReplyTo>,
    pub(super) loads: Option<ReplyTo>,
}

impl AskedMarks {
    /// Reads the replies.
    pub(super) fn of(self, replies: &mut Replies) -> Marks {
        let mut reply = |asked: Option<ReplyTo>| asked.and_then(|asked| replies.take(asked)).and_then(text);
        let secret = reply(self.secret).map(|secret| secret.into_bytes().into());
        let loaded_nothing = reply(self.loads).is_some_and(|stats| has_loaded_nothing(&stats));
        Marks { secret, loaded_nothing, ..Marks::default() }
    }
}

/// Returns whether no dump was loaded by a command (`DEBUG RELOAD`, `DEBUG LOADAOF`), by the statistics of a server.
fn has_loaded_nothing(stats: &str) -> bool {
    let has_statistics = stats.lines().any(|line| line.starts_with("cmdstat_info:"));
    has_statistics && !stats.lines().any(|line| line.starts_with("cmdstat_debug"))
}

impl LastSeen {
    /// Returns whether the ID is that of the process.
    pub(super) fn is(&self, run_id: &str) -> bool {
        *self.identity.id == *run_id
    }

    /// Records that it was alive at `now`.
    pub(super) fn answered(&mut self, now: Moment) {
        self.answered = now;
    }

    /// Records that it has invalidated all keys.
    pub(super) fn invalidated(&mut self, now: Moment) {
        self.invalidated = Some(now);
    }

    /// Returns whether it is unknown why it has invalidated all keys.
    pub(super) fn is_doubtful(&self) -> bool {
        self.invalidated.is_some()
    }

    /// Records that the secret of the inboxes is another one, although the data are the same.
    pub(super) fn has_secret(&mut self, secret: Box<[u8]>) {
        self.marks.secret = Some(secret);
    }

    /// Returns since when the data may be others, if this is the same process as before.
    pub(super) fn lost_data(&self, process: &Process, marks: &Marks, now: Moment) -> Option<Moment> {
        if !self.is(&process.run_id) || self.history != process.history {
            return None;
        }
        let same = match (&self.marks.secret, &marks.secret) {
            (Some(before), Some(secret)) => Some(before == secret),
            _ => None,
        };
        match self.invalidated {
            Some(_) if same == Some(true) && marks.loaded_nothing => None,
            Some(at) => Some(at),
            // It was emptied while there was no connection.
            None => (same == Some(false)).then_some(now),
        }
    }

    /// Returns the process that answered at `now`, which has these marks and was seen after `last`.
    ///
    /// Another process started after the last answer of the one before it, whatever its own clock says; and a process
    /// that was promoted since then became master after that answer.
    pub(super) fn after(
        last: Option<&LastSeen>,
        process: Process,
        past: Past,
        (marks, now): (Marks, Moment),
        holding_back: HoldingBack,
    ) -> LastSeen {
        let same = |last: &LastSeen| last.is(&process.run_id) && last.history == process.history;
        let identity = match last {
            Some(last) if same(last) => last.continued(&process, &marks, now, holding_back),
            last => {
                // No vote counts before (rules T-2 and C-6).
                let alone = match holding_back {
                    HoldingBack::For(alone) => alone,
                    HoldingBack::Never => {
                        // The loss was noticed by another client.
                        let age = marks.known.filter(|_| marks.is_anew).unwrap_or(Duration::MAX);
                        let identity = Identity::new(process.run_id, now, age);
                        let identity = Arc::new(identity.with_clock_set_back(process.clock_set_back));
                        return LastSeen {
                            identity,
                            history: process.history,
                            answered: now,
                            marks,
                            invalidated: None,
                        };
                    }
                };
                let age = age(process.uptime, past, last.map(|last| last.answered), now);
                debug_assert!(age <= process.uptime, "no process is older than it reports (rule I-12)");
                let still = alone.saturating_sub(age);
                let identity = Identity::new(process.run_id, now + still, age.saturating_sub(alone));
                Arc::new(identity.with_clock_set_back(process.clock_set_back))
            }
        };
        LastSeen { identity, history: process.history, answered: now, marks, invalidated: None }
    }

    /// Returns the identity of the same process: as before, unless it may have lost data.
    fn continued(
        &self,
        process: &Process,
        marks: &Marks,
        now: Moment,
        holding_back: HoldingBack,
    ) -> Arc<Identity> {
        let run_id = || &*process.run_id;
        if let Some(since) = self.lost_data(process, marks, now) {
            return Arc::new(Identity::new(run_id(), since, Duration::ZERO));
        }
        // Of a process that forgets nothing, a note of when it was first met says nothing.
        let counts = match holding_back {
            HoldingBack::For(_) => marks.began != self.marks.began,
            HoldingBack::Never => marks.began != self.marks.began && marks.is_anew,
        };
        match marks.known {
            // Another client has noticed a loss, and recorded it.
            Some(known) if counts && known < self.identity.age_at(now) => {
                Arc::new(Identity::new(run_id(), now, known))
            }
            Some(_) | None => Arc::clone(&self.identity),
        }
    }

    pub(super) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }
}
