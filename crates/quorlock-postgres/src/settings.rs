//! What the connections of a node share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Seams;
use quorlock::runtime::Mutex;

use crate::url::DatabaseUrl;

/// The default node timeout.
const NODE_LIMIT: Duration = Duration::from_secs(1);
/// The default connect timeout.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// State that the connections of a node share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) url: DatabaseUrl,
    pub(crate) seams: Seams,
    /// The latest timeline seen per system identifier.
    pub(crate) timelines: Arc<Mutex<HashMap<i64, u32>>>,
}

impl Settings {
    pub(crate) fn new(url: DatabaseUrl, seams: &Seams) -> Settings {
        Settings { url, seams: seams.clone(), timelines: Arc::default() }
    }

    /// The node timeout.
    pub(crate) fn limit(&self) -> Duration {
        self.seams.node_timeout().unwrap_or(NODE_LIMIT).max(Duration::from_millis(20))
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.seams.connect_timeout().unwrap_or(CONNECT_LIMIT)
    }
}
