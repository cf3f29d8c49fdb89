//! Nodes on Unix sockets.

use quorlock::{
    RestartGuard, Wait,
    doctor::{Severity, Summary},
};
use quorlock_testkit::Servers;

use crate::world::client;

/// A server that also listens on a socket, with its folder; `None` without a real server.
async fn at_socket() -> Option<(Servers, tempfile::TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock").display().to_string();
    match Servers::setup().durable().options(&["--unixsocket", &socket]).start(1).await {
        Ok(servers) => Some((servers, folder)),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn url(folder: &tempfile::TempDir, query: &str) -> String {
    format!("redis+unix://{}{query}", folder.path().join("redis.sock").display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_and_a_deployment_examined_at_sockets() {
    let (mut servers, mut urls, mut folders) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let Some((server, folder)) = at_socket().await else { return };
        server[0].command(&["ACL", "SETUSER", "anna", "on", ">50%25", "~*", "+@all"]).await.unwrap();
        urls.push(url(&folder, "?user=anna&pass=50%2525"));
        servers.push(server);
        folders.push(folder);
    }
    let coordinator = client(&urls, |builder| builder.restart_guard(RestartGuard::Off));
    let lease = coordinator.lock("r").acquire().await.unwrap();
    assert!(coordinator.lock("r").try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    let examination = coordinator.doctor().await;
    assert_eq!(examination.summary(), Summary::Sound, "{examination:#?}");
    assert!(!examination.has(Severity::Unknown), "{examination:#?}");
    assert!(!format!("{examination:?} {coordinator:?}").contains("50%"), "the password is shown");

    // The same server on its socket and on its port is one node.
    let twice = [urls[0].clone(), servers[0][0].url(), urls[1].clone()];
    let examination = client(&twice, |builder| builder).doctor().await;
    assert_eq!(examination.summary(), Summary::Unsafe, "{examination:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_protected_socket_is_named() {
    let Some((servers, folder)) = at_socket().await else { return };
    let missing = url(&folder, "").replace("redis.sock", "missing.sock");
    let refused = |url: String| async move {
        let coordinator = client(&[url], |builder| builder);
        coordinator.lock("r").wait(Wait::Never).acquire().await.unwrap_err().to_string()
    };
    let message = refused(missing).await;
    assert!(message.contains("No such file"), "{message}");
    servers[0].command(&["CONFIG", "SET", "requirepass", "hunter2"]).await.unwrap();
    let message = refused(url(&folder, "?pass=hunter3")).await;
    assert!(message.contains("password") && !message.contains("hunter"), "{message}");
}
