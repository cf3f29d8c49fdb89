//! SIGSTOP for the processes that serve the clients of a node: the server goes on, takes new
//! connections, and what the old ones were asked for is carried out when they are continued.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct StopBackends;

impl Fault for StopBackends {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "its backends stopped".to_owned()
    }

    fn needs(&self) -> Need {
        Need::Backends
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.stop_backends(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.continue_backends(hit.target).await })
    }
}
