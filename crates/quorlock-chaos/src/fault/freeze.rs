//! SIGSTOP for a master: the kernel accepts connections and data meanwhile, and the master processes
//! everything after SIGCONT.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Freeze;

impl Fault for Freeze {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "stopped".to_owned()
    }

    fn needs(&self) -> Need {
        Need::Processes
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.freeze(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.thaw(hit.target).await })
    }
}
