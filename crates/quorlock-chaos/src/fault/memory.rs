//! A node is out of memory and refuses every write.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{self, Environment};

#[derive(Debug)]
pub(super) struct Memory;

impl Fault for Memory {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: environment::Memory) -> String {
        "out of memory".to_owned()
    }

    fn needs(&self) -> Need {
        Need::RealServer
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.starve(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.feed(hit.target).await })
    }
}
