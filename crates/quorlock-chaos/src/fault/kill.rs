//! SIGKILL for a master, which comes back with or without its keys.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, Hit, Options, Restart, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Kill {
    restart: Restart,
}

impl Kill {
    pub(super) fn new(options: &Options) -> Kill {
        Kill { restart: options.restart.unwrap_or(Restart::Either) }
    }

    fn memory(&self, luck: u64) -> Memory {
        let gone = match self.restart {
            Restart::Empty => true,
            Restart::WithData => false,
            Restart::Either => luck.is_multiple_of(2),
        };
        if gone { Memory::Gone } else { Memory::Kept }
    }
}

impl Fault for Kill {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, luck: u64, servers: Memory) -> String {
        match (self.memory(luck), servers) {
            (Memory::Gone, _) | (_, Memory::Gone) => "killed, restarted empty".to_owned(),
            (Memory::Kept, Memory::Kept) => "killed, restarted with its data".to_owned(),
        }
    }

    fn aftermath(&self, _luck: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.kill(hit.target).await })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.restart(hit.target, self.memory(hit.luck)).await })
    }
}
