//! Creates nodes from `exec:` URLs.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::address::ExecAddress;
use crate::node::ExecNode;

/// Programs: `exec:PROGRAM?arg=…`, found on the `PATH` unless it has a `/`.
///
/// With `hints=yes` the program says when a key has gone, so that waiters need not ask again and again. With `cluster=yes` the program speaks for a cluster that decides by consensus, and in which others lock without this
/// library: then it is the only node of a deployment.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ExecKind;

impl ExecKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> ExecKind {
        ExecKind
    }
}

impl NodeKind for ExecKind {
    fn schemes(&self) -> &[&str] {
        &["exec"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        Ok(Box::new(Program(ExecAddress::parse(url)?)))
    }
}

#[derive(Debug)]
struct Program(ExecAddress);

impl NodeAddress for Program {
    fn servers(&self) -> Vec<String> {
        vec![self.0.to_string()]
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        Ok(Arc::new(ExecNode::of(self.0.clone(), seams)?))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
