//! The disk of a master hangs: each write to it takes many seconds.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct HangDisk;

impl Fault for HangDisk {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "disk hangs".to_owned()
    }

    fn needs(&self) -> Need {
        Need::HangingDisk
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.masters.hang_disk(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.masters.free_disk(hit.target).await })
    }
}
