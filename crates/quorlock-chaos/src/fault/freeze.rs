//! SIGSTOP for a master: the kernel goes on accepting for it, and it acts on everything when it is
//! continued.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Freeze;

impl Fault for Freeze {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "stopped".to_owned()
    }

    fn needs(&self) -> Need {
        Need::Processes
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.freeze(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.thaw(hit.target).await })
    }
}
