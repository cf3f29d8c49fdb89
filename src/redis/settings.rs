//! What a Redis node works with.

use std::sync::Arc;
use std::time::Duration;

use super::connect_timeout::ConnectLimit;
use crate::node::{MaxTtlNotes, Seams};
use crate::runtime::clock::Clock;
use crate::runtime::entropy::Entropy;
use crate::transport::Dial;
use quorlock_protocol::gate;

/// What a Redis node works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) connect_timeout: ConnectLimit,
    pub(crate) notices: Notices,
    pub(crate) membership: Membership,
    /// How long a vote may wait for replicas, where the address asks for that.
    pub(crate) copy_limit: Duration,
    /// Where a server that was promoted keeps since when it is a master; `None` with the restart guard
    /// off, which does not want to know.
    pub(crate) gate: Option<Arc<str>>,
    /// Where what the node tells of other clients' `max_ttl` is compared with ours.
    pub(crate) max_ttls: Option<MaxTtlNotes>,
}

/// Whether what stands out at a connection is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notices {
    Logged,
    /// A check-up tells it.
    ToldElsewhere,
}

/// Whether a server stands alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    Alone,
    OfCluster,
}

/// How long a vote waits for replicas, unless a node limit is set: all that is asked behind it waits, too.
const DEFAULT_COPY_LIMIT: Duration = Duration::from_millis(25);

impl Settings {
    pub(super) fn of(seams: &Seams) -> Settings {
        Settings {
            clock: Arc::clone(seams.clock()),
            entropy: Arc::clone(seams.entropy()),
            dial: Arc::clone(seams.dial()),
            connect_timeout: seams.connect_timeout().map_or(ConnectLimit::default(), ConnectLimit::Whole),
            notices: Notices::Logged,
            membership: Membership::Alone,
            copy_limit: seams.node_timeout().map_or(DEFAULT_COPY_LIMIT, |limit| limit / 2),
            gate: seams.guards_restarts().then(|| gate(seams.key_prefix()).into()),
            max_ttls: seams.max_ttls().cloned(),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::of(&Seams::default())
    }
}
