//! Creates nodes from `postgres://` URLs.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::node::PostgresNode;
use crate::url::DatabaseUrl;

/// PostgreSQL databases: `postgres://user@host:5432/database?sslmode=verify-full`.
///
/// `postgresql://` is the same. The options are `sslmode` (`verify-full`, or `disable`, which is the
/// default), `host` (the folder of a Unix socket), `port`, `user`, `password`, `dbname` and `connections`
/// (at most 16, which is the default; each is opened on demand). With `layout=shedlock` locks are rows of
/// `ShedLock`'s table, which is called `shedlock` unless `table` gives another name.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct PostgresKind;

impl PostgresKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> PostgresKind {
        PostgresKind
    }
}

impl NodeKind for PostgresKind {
    fn schemes(&self) -> &[&str] {
        &["postgres", "postgresql"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        Ok(Box::new(Database(DatabaseUrl::parse(url)?)))
    }
}

#[derive(Debug)]
struct Database(DatabaseUrl);

impl NodeAddress for Database {
    fn servers(&self) -> Vec<String> {
        vec![self.0.server()]
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        if self.0.is_plain_by_omission() {
            seams.refuse_unused_tls(
                "write `sslmode=verify-full`, or `sslmode=disable` for a network that you trust",
            )?;
        }
        Ok(Arc::new(PostgresNode::new(self.0.clone(), seams)?))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
