//! SIGSTOP for a worker: when it goes on, its leases may be over.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct StopWorker;

impl Fault for StopWorker {
    fn target(&self) -> Target {
        Target::Worker
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "stopped".to_owned()
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.crew.stop(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.crew.go_on(hit.target).await })
    }
}
