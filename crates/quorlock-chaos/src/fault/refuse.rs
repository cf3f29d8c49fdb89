//! A node resets every connection, including new ones.

use std::io;

use futures::future::BoxFuture;

use super::{Fault, Hit, Target};
use crate::environment::{Environment, Memory};

#[derive(Debug)]
pub(super) struct Refuse;

impl Fault for Refuse {
    fn target(&self) -> Target {
        Target::Node
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        "connections refused".to_owned()
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            environment.proxies.refuse(hit.target, true);
            Ok(())
        })
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            environment.proxies.refuse(hit.target, false);
            Ok(())
        })
    }
}
