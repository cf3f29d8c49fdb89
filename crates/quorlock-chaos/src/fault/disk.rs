//! The disk of a node is full: the server can store nothing and may exit.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct DiskFull;

impl Fault for DiskFull {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "disk full".to_owned()
    }

    fn needs(&self) -> Need {
        Need::SmallDisk
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.fill_disk(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.free_disk(hit.target).await })
    }
}
