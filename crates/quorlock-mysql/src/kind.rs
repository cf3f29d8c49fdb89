//! Creates nodes from `mysql://` and `mariadb://` URLs.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::MysqlNode;
use crate::address::Database;

/// Servers of MariaDB and MySQL: `mysql://user:password@host:3306/database`, or `mariadb://`.
///
/// The database must exist; its tables `quorlock_locks` and `quorlock_history` are created by the first
/// connection. In user, password and database `%XX` encodes any byte. With `?tls=on` the connection is
/// encrypted, and `tls-ca=FILE` gives a file with trusted CA certificates. With `layout=shedlock` locks are
/// rows of `ShedLock`'s table, which is called `shedlock` unless `table` gives another name.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MysqlKind;

impl MysqlKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> MysqlKind {
        MysqlKind
    }
}

impl NodeKind for MysqlKind {
    fn schemes(&self) -> &[&str] {
        &["mysql", "mariadb"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        Ok(Box::new(Address(Database::parse(url)?)))
    }
}

#[derive(Debug)]
struct Address(Database);

impl NodeAddress for Address {
    fn servers(&self) -> Vec<String> {
        vec![self.0.server()]
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        self.0.refuse_unused_tls(seams)?;
        Ok(Arc::new(MysqlNode::of(self.0.clone(), seams)?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
