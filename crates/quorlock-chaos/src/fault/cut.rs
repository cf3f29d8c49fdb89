//! Every connection of a node is reset; clients can reconnect immediately.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Cut;

impl Fault for Cut {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "connections reset".to_owned()
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            environment.proxies.cut(hit.target);
            Ok(())
        })
    }
}
