//! A node has no memory left, and refuses every write.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::stage::{self, Stage};

#[derive(Debug)]
pub(super) struct Memory;

impl Fault for Memory {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: stage::Memory) -> String {
        "out of memory".to_owned()
    }

    fn needs(&self) -> Need {
        Need::RealServer
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.starve(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.feed(hit.target).await })
    }
}
