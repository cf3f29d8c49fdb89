//! `FLUSHALL`: a node loses all keys and keeps running. The restart guard does not detect it.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Flush;

impl Fault for Flush {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "flushed".to_owned()
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn needs(&self) -> Need {
        Need::Redis
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { environment.flush(hit.target).await })
    }
}
