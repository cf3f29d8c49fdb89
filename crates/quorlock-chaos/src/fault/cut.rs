//! Every connection of a node is reset, and may be made again at once.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::stage::{Memory, Stage};

#[derive(Debug)]
pub(super) struct Cut;

impl Fault for Cut {
    fn target(&self) -> Target {
        Target::Node
    }

    fn says(&self, _luck: u64, _servers: Memory) -> String {
        "connections reset".to_owned()
    }

    fn begin<'a>(&'a self, stage: &'a Stage, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            stage.roads.cut(hit.target);
            Ok(())
        })
    }
}
