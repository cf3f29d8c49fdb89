//! A node resets every connection, and every new one.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Refuse;

impl Fault for Refuse {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "connections refused".to_owned()
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            stage.roads.refuse(hit.target, true);
            Ok(())
        })
    }

    fn heal<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            stage.roads.refuse(hit.target, false);
            Ok(())
        })
    }
}
