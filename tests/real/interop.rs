//! Redlock clients in other languages set a plain string with SET NX PX at the bare name, and delete it
//! if the value is theirs. They and our client exclude each other.

use quorlock::{AcquireError, Wait};
use quorlock_testkit::Servers;

use crate::world::{World, client};

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_redlock_client_and_ours_exclude_each_other() {
    let world = World::start(3).await;
    for server in world.servers.iter() {
        server.command(&["SET", "r", "qzT5hRU0GcFb", "NX", "PX", "60000"]).await.unwrap();
    }
    let error = world.lock().wait(Wait::Never).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
    assert!(error.to_string().contains("another program (qzT5hRU0…)"), "{error}");
    for server in world.servers.iter() {
        server.command(&["DEL", "r"]).await.unwrap();
    }
    let lease = world.lock().acquire().await.unwrap();
    let mut ours = 0;
    for server in world.servers.iter() {
        let theirs = server.command(&["SET", "r", "qzT5hRU0GcFb", "NX", "PX", "60000"]).await.unwrap();
        // The lease did not wait for the last of three nodes, where they may be first.
        if theirs.to_string() != "OK" {
            let value = server.command(&["GET", "r"]).await.unwrap().to_string();
            assert!(value.contains(&std::process::id().to_string()), "a plain string: {value}");
            ours += 1;
        }
    }
    assert!(ours >= 2, "a quorum keeps them out, and {ours} did");
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_and_a_unix_socket_reach_the_same_server() {
    let servers = Servers::start(1).await.unwrap();
    let coordinator = client(&[format!("{}/3", servers[0].url())], |builder| builder);
    let lease = coordinator.lock("r").acquire().await.unwrap();
    assert_eq!(servers[0].command(&["EXISTS", "r"]).await.unwrap().to_string(), "0", "not in database 0");
    lease.release().await.unwrap();
}
