//! The disk of a node is full: it can store nothing more, and may end.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct DiskFull;

impl Fault for DiskFull {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "disk full".to_owned()
    }

    fn needs(&self) -> Need {
        Need::SmallDisk
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.fill_disk(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.free_disk(hit.target).await })
    }
}
