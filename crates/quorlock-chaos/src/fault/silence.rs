//! Nothing comes through to a node, or nothing back from it, or neither: for all workers at once.

use std::io;

use futures::future::BoxFuture;

use super::{Direction, Fault, Hit, Options, Target, lost};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Silence {
    way: Direction,
}

impl Silence {
    pub(super) fn new(options: &Options) -> Silence {
        Silence { way: options.way.unwrap_or(Direction::Both) }
    }
}

impl Fault for Silence {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, luck: u64, _servers: Memory) -> String {
        lost(self.way.way(luck)).to_owned()
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        stage.roads.silence_node(hit.target, self.way.way(hit.luck), true);
        Box::pin(async { Ok(()) })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        stage.roads.silence_node(hit.target, self.way.way(hit.luck), false);
        Box::pin(async { Ok(()) })
    }
}
