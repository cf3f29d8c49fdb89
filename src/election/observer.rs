//! Follows the leader of an election, without campaigning.

use std::fmt;

use crate::engine::key_watch::KeyWatch;
use crate::lock::Lock;
use crate::node::Expiry;
use quorlock_protocol::machine::wait::Count;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{FencingToken, Token};

/// Follows the leader of an [election](crate::Election), as stored on the nodes.
///
/// It does not poll: the nodes notify it of changes, and it asks them for the leader. Where they do not notify, it
/// asks when the leader's keys expire, and every second or two, because hints may get lost. It asks at most a
/// hundred times a second.
#[derive(Debug)]
pub struct Observer {
    watch: KeyWatch,
    /// What was returned last.
    last: Option<Known>,
}

/// The leader, as far as the nodes agree.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: there is a leader, there is none, or it is unknown")]
pub enum Observed {
    /// A quorum of nodes stores this leader.
    Leader(Leader),
    /// Too many nodes store no leader, or different ones, for anyone to have a quorum; or the lock was left taken, or is shared.
    /// A leader whose keys were lost may still lead until its validity ends.
    NoLeader,
    /// Too few nodes answer. The report says why.
    Unknown(Box<VoteReport>),
}

/// The leader of an election.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// The value that it announced; empty where another program holds the lock.
    pub value: String,
    /// Its token, which is shown as host, process and value.
    pub token: Token,
    /// Its fencing token, once a quorum of nodes reports one. A leader that is just being elected may still get a
    /// larger one, and is then returned again.
    pub fencing_token: Option<FencingToken>,
    /// For how much longer its keys are stored if they are not renewed.
    pub remaining: Expiry,
}

/// What makes two observations differ: a renewal does not.
#[derive(Clone, PartialEq, Debug)]
enum Known {
    Leader(Token, Option<FencingToken>),
    NoLeader,
    Unknown,
}

impl Observer {
    pub(crate) fn new(lock: &Lock) -> Observer {
        let (engine, key) = lock.parts();
        Observer { watch: KeyWatch::new(engine, key), last: None }
    }

    /// Waits until the leader is another than last time, none, or unknown, and returns it. The first call returns the
    /// current leader immediately.
    ///
    /// It returns the latest, not each: a leader that comes and goes between two rounds is not seen, and the gap
    /// between two leaders may not be. Once the coordinator is closed, nothing changes any more: drop the future then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn changed(&mut self) -> Observed {
        loop {
            let observed = Observed::of(self.watch.report().await);
            let known = observed.known();
            if self.last.as_ref() != Some(&known) {
                self.last = Some(known);
                return observed;
            }
        }
    }
}

impl Observed {
    pub(crate) fn of(report: VoteReport) -> Observed {
        let count = Count::of(&report);
        match report.holder() {
            // Data under this name says nothing about the leader.
            Some(holder) if count.leads() && holder.remaining == Expiry::Never => {
                Observed::Unknown(Box::new(report))
            }
            // Neither do readers of a shared lock of that name lead, nor does a lock that was left taken.
            Some(holder) if count.leads() && !holder.token.is_marker() && !holder.token.is_retained() => {
                Observed::Leader(Leader {
                    value: value_of(&holder.token),
                    token: holder.token,
                    fencing_token: holder.fencing_token,
                    remaining: holder.remaining,
                })
            }
            _ if count.is_unknown() => Observed::Unknown(Box::new(report)),
            _ => Observed::NoLeader,
        }
    }

    fn known(&self) -> Known {
        match self {
            Observed::Leader(leader) => Known::Leader(leader.token.clone(), leader.fencing_token),
            Observed::NoLeader => Known::NoLeader,
            Observed::Unknown(_) => Known::Unknown,
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observed::Leader(leader) => write!(f, "led by {}", leader.token),
            Observed::NoLeader => f.write_str("no leader"),
            Observed::Unknown(report) => write!(f, "the leader is unknown: {report}"),
        }
    }
}

/// What follows the `host:pid` of a token.
fn value_of(token: &Token) -> String {
    let context = token.context().unwrap_or_default();
    context.split_once(' ').map(|(_, value)| value.to_owned()).unwrap_or_default()
}
