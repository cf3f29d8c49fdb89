//! SIGSTOP for the backend processes that serve the clients of a node: the server accepts new connections,
//! and the backends execute their pending requests after SIGCONT.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct StopBackends;

impl Fault for StopBackends {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "backends stopped".to_owned()
    }

    fn needs(&self) -> Need {
        Need::Backends
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.stop_backends(hit.target).await })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.continue_backends(hit.target).await })
    }
}
