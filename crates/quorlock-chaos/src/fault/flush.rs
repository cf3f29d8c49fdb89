//! `FLUSHALL`: a node forgets everything and goes on as if nothing had happened. No guard sees it.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, Hit, Need, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Flush;

impl Fault for Flush {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "flushed".to_owned()
    }

    fn aftermath(&self, _luck: u64) -> Aftermath {
        Aftermath::Quarantine
    }

    fn needs(&self) -> Need {
        Need::Redis
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { stage.flush(hit.target).await })
    }
}
