//! A node has as many clients as it takes, and refuses all others.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Crowd;

impl Fault for Crowd {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "too many clients".to_owned()
    }

    fn needs(&self) -> Need {
        Need::RealServer
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.crowd(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.uncrowd(hit.target).await })
    }
}
