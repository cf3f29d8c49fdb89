//! SIGKILL for a master, which restarts with or without its keys.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, FaultRuleText, Hit, Restart};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Kill {
    restart: Restart,
}

impl Kill {
    pub(super) fn new(text: &FaultRuleText) -> Kill {
        Kill { restart: text.restart.unwrap_or(Restart::Either) }
    }

    fn memory(&self, random: u64) -> Memory {
        let gone = match self.restart {
            Restart::Empty => true,
            Restart::WithData => false,
            Restart::Either => random.is_multiple_of(2),
        };
        if gone { Memory::Gone } else { Memory::Kept }
    }
}

impl Fault for Kill {
    fn describe(&self, random: u64, servers: Memory) -> String {
        match (self.memory(random), servers) {
            (Memory::Gone, _) | (_, Memory::Gone) => "killed, restarted empty".to_owned(),
            (Memory::Kept, Memory::Kept) => "killed, restarted with its data".to_owned(),
        }
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        environment.masters.kill(hit.target)
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.restart(hit.target, self.memory(hit.random)).await })
    }
}
