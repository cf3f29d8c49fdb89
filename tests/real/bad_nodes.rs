//! Servers that cannot be nodes, keys that are not locks, and missing rights: each error names the
//! problem and the fix.

use std::sync::Arc;

use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::{
    AcquireError, Wait,
    node::{Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Server, Servers};

use crate::world::{HintRecorder, TTL, World, client, run_command};

fn fence_hint() -> FenceHint {
    FenceHint::at(SystemClock::default().wall(), None, TTL)
}

async fn refusal(urls: &[String]) -> String {
    let error = client(urls, |builder| builder).lock("r").wait(Wait::Forever).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_addresses_of_one_server_are_one_vote() {
    let servers = Servers::start(1).await.unwrap();
    let twin = servers[0].url().replace("127.0.0.1", "localhost");
    let refused = refusal(&[servers[0].url(), twin]).await;
    assert!(refused.contains("the same server as redis://127.0.0.1"), "{refused}");
}

/// Creates a user with the password `pw` and these rights.
async fn set_user(server: &Server, name: &str, rights: &[&str]) {
    run_command(server, &[&["ACL", "SETUSER", name, "on", ">pw"], rights].concat()).await;
}

fn url_of(server: &Server, user: &str) -> String {
    server.url_as(&format!("{user}:pw"))
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_name_the_command_and_the_fix() {
    let servers = Servers::start(1).await.unwrap();
    set_user(&servers[0], "no_eval", &["~*", "+@all", "-eval"]).await;
    set_user(&servers[0], "no_info", &["~*", "+@all", "-info"]).await;
    set_user(&servers[0], "no_key", &["~other:*", "+@all"]).await;
    let url = |name| url_of(&servers[0], name);
    for (name, word) in [("no_eval", "eval"), ("no_info", "info"), ("no_key", "key")] {
        let refused = refusal(&[url(name)]).await;
        assert!(refused.to_lowercase().contains(word) && refused.contains("ACL"), "{name}: {refused}");
        assert!(!refused.contains(":pw"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_tracking_rights_can_still_vote() {
    let servers = Servers::start(1).await.unwrap();
    // Before Redis 7 a subcommand can be granted, but not revoked.
    set_user(&servers[0], "no_tracking", &["~*", "+@all", "-client", "+client|setname"]).await;
    let node = RedisNode::new(Address::parse(&url_of(&servers[0], "no_tracking")).unwrap());
    let hints = HintRecorder::of(&node);
    let claim = |number| Arc::new(Claim::new("r".into(), Token::new(number, "bad_nodes")));
    let acquire =
        |number| Request::Acquire { claim: claim(number), ttl: TTL, fence_hint: Some(fence_hint()) };
    assert_eq!(ask(&node, acquire(1)).await.unwrap().vote, Vote::Granted);
    assert!(matches!(ask(&node, acquire(2)).await.unwrap().vote, Vote::Held(_)));
    servers[0].command(&["DEL", "r"]).await.unwrap();
    assert_eq!(ask(&node, acquire(2)).await.unwrap().vote, Vote::Granted);
    assert_eq!(hints.heard(), [""; 0], "without tracking it must not report that it is subscribed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_holds_something_else_is_named() {
    let world = World::start(3).await;
    for server in world.servers.iter() {
        server.command(&["RPUSH", "r", "an invoice"]).await.unwrap();
    }
    let refused = refusal(&world.servers.urls()).await;
    assert!(refused.contains("not a lock"), "{refused}");
    for server in world.servers.iter() {
        server.command(&["DEL", "r"]).await.unwrap();
        server.command(&["SET", "r", "an invoice"]).await.unwrap();
    }
    let refused = refusal(&world.servers.urls()).await;
    assert!(refused.contains("no expiry: it is data and not a lock"), "{refused}");
}
