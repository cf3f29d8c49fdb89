//! SIGKILL for a worker; another one starts in its place.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct KillWorker;

impl Fault for KillWorker {
    fn target(&self) -> Target {
        Target::Worker
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "killed".to_owned()
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.crew.kill(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.crew.start(hit.target).await })
    }
}
