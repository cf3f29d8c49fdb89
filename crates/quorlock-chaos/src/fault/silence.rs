//! Traffic to a node or a worker, from it, or both is held back: the connections stay open, and what was
//! sent arrives when the fault heals.

use std::io;

use futures::future::BoxFuture;

use super::{Direction, Fault, FaultRuleText, Hinders, Hit, Target, lost};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Silence {
    /// A node is cut off from all workers, or a worker from all nodes.
    target: Target,
    way: Direction,
}

impl Silence {
    pub(super) fn new(target: Target, text: &FaultRuleText) -> Silence {
        Silence { target, way: text.way.unwrap_or(Direction::Both) }
    }

    fn set(&self, environment: &Environment, hit: Hit, silent: bool) {
        let way = self.way.way(hit.random);
        match self.target {
            Target::Node => environment.proxies.silence_node(hit.target, way, silent),
            Target::Worker => environment.proxies.silence_worker(hit.target, way, silent),
        }
    }
}

impl Fault for Silence {
    fn target(&self) -> Target {
        self.target
    }

    fn describe(&self, random: u64, _servers: Memory) -> String {
        lost(self.way.way(random)).to_owned()
    }

    fn hinders(&self) -> Hinders {
        match self.target {
            Target::Node => Hinders::Target,
            Target::Worker => Hinders::WayToNodes,
        }
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        self.set(environment, hit, true);
        Box::pin(async { Ok(()) })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        self.set(environment, hit, false);
        Box::pin(async { Ok(()) })
    }
}
