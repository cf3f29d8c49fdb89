//! SIGSTOP for a worker: its leases may have expired by the time it continues.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct StopWorker;

impl Fault for StopWorker {
    fn target(&self) -> Target {
        Target::Worker
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "stopped".to_owned()
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.workers.stop(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.workers.go_on(hit.target).await })
    }
}
