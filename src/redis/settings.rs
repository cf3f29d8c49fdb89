//! What a Redis node works with.

use std::sync::Arc;
use std::time::Duration;

use super::connect_limit::ConnectLimit;
use super::dial::{Dial, SystemDial};
use crate::node::max_ttls::MaxTtls;
use crate::protocol::gate;
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::entropy::{Entropy, SystemEntropy};

/// What a Redis node works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) connect_limit: ConnectLimit,
    pub(crate) notices: Notices,
    pub(crate) membership: Membership,
    /// How long a vote may wait for replicas, where the address asks for that.
    pub(crate) copy_limit: Duration,
    /// Where a server that was promoted keeps since when it is a master; `None` with the restart guard
    /// off, which does not want to know.
    pub(crate) gate: Option<Arc<str>>,
    /// Where what nodes tell of other clients' `max_ttl` is compared with ours, and which of them this is.
    pub(crate) max_ttls: Option<(Arc<MaxTtls>, usize)>,
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

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            dial: Arc::new(SystemDial::default()),
            connect_limit: ConnectLimit::default(),
            notices: Notices::Logged,
            membership: Membership::Alone,
            copy_limit: Duration::from_millis(25),
            gate: Some(gate("").into()),
            max_ttls: None,
        }
    }
}
