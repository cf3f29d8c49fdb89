//! The environment and settings of a Redis node.

use std::sync::Arc;

use super::connect_timeout::ConnectTimeout;
use crate::node::lists::NodeLists;
use crate::node::password::Password;
use crate::node::{MaxTtlNotes, Seams};
use crate::runtime::clock::Clock;
use crate::runtime::entropy::Entropy;
use crate::transport::Dial;
use quorlock_protocol::gate;

/// The environment and settings of a Redis node.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) connect_timeout: ConnectTimeout,
    pub(crate) notices: Notices,
    pub(crate) membership: Membership,
    /// With which the keys and channels of all locks begin.
    pub(crate) key_prefix: Arc<str>,
    /// The key where a promoted server records since when it is master; `None` with the restart guard off.
    pub(crate) gate: Option<Arc<str>>,
    /// Compares the `max_ttl` of other clients, as the node reports it, with ours.
    pub(crate) max_ttls: Option<MaxTtlNotes>,
    /// For addresses of servers that have none.
    pub(crate) password: Password,
    /// Compares the lists of nodes of other clients, as the node reports them, with ours.
    pub(crate) lists: Option<Arc<NodeLists>>,
}

/// Whether findings at a connection are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notices {
    Logged,
    /// The health check reports them.
    SentElsewhere,
}

/// Whether a server is part of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    Alone,
    OfCluster,
}

impl Settings {
    pub(super) fn of(seams: &Seams) -> Settings {
        Settings {
            clock: Arc::clone(seams.clock()),
            entropy: Arc::clone(seams.entropy()),
            dial: Arc::clone(seams.dial()),
            connect_timeout: seams.connect_timeout().map_or(ConnectTimeout::default(), ConnectTimeout::Whole),
            notices: Notices::Logged,
            membership: Membership::Alone,
            key_prefix: Arc::clone(&seams.key_prefix),
            gate: seams.guards_restarts().then(|| gate(seams.key_prefix()).into()),
            max_ttls: seams.max_ttls.clone(),
            password: seams.password.clone(),
            lists: seams.lists.clone(),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::of(&Seams::default())
    }
}
