//! SIGKILL for a worker, which is replaced by a new one.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct KillWorker;

impl Fault for KillWorker {
    fn target(&self) -> Target {
        Target::Worker
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "killed".to_owned()
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.workers.kill(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.workers.start(hit.target).await })
    }
}
