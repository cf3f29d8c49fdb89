//! A member of a cluster is cut off from the others, while clients still reach it.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct CutOff;

impl Fault for CutOff {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "cut off from the other members".to_owned()
    }

    fn needs(&self) -> Need {
        Need::Peers
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.masters.cut_off(hit.target, true) })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.masters.cut_off(hit.target, false) })
    }
}
