//! Nothing comes through from one worker to any node, or nothing back to it, or neither.

use std::io;

use futures::future::BoxFuture;

use super::{Direction, Fault, Hinders, Hit, Options, Target, lost};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Isolate {
    way: Direction,
}

impl Isolate {
    pub(super) fn new(options: &Options) -> Isolate {
        Isolate { way: options.way.unwrap_or(Direction::Both) }
    }
}

impl Fault for Isolate {
    fn target(&self) -> Target {
        Target::Worker
    }

    fn says(&self, luck: u64, _servers: Memory) -> String {
        lost(self.way.way(luck)).to_owned()
    }

    fn hinders(&self) -> Hinders {
        Hinders::WayToNodes
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        stage.roads.silence_worker(hit.target, self.way.way(hit.luck), true);
        Box::pin(async { Ok(()) })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        stage.roads.silence_worker(hit.target, self.way.way(hit.luck), false);
        Box::pin(async { Ok(()) })
    }
}
