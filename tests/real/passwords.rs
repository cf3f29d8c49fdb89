//! A password that changes while locks are held and wanted.

use quorlock::{Coordinator, RestartGuard};
use quorlock_testkit::Servers;

use crate::world::{knows, run_command};

#[path = "../stores/rotation.rs"]
mod rotation;

use rotation::{PasswordFile, costs_no_lock, is_refused, password};

/// Lets the user log in with these passwords alone.
async fn allow(servers: &Servers, passwords: &[String]) {
    let passwords = passwords.iter().map(|password| format!(">{password}"));
    let words = ["ACL", "SETUSER", "locks", "reset", "on", "~*", "+@all"].map(str::to_owned);
    let channels = knows(servers.kind(), "resetchannels").then(|| "&*".to_owned());
    let words: Vec<String> = words.into_iter().chain(channels).chain(passwords).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for server in servers.iter() {
        run_command(server, &words).await;
    }
}

/// As on every other kind of node, the user of the builder does not depend on where the password is.
#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_builder_logs_in_with_the_password_of_the_address() {
    let servers = Servers::start(1).await.unwrap();
    allow(&servers, &["of-the-address".to_owned()]).await;
    let port = servers[0].port();
    let coordinator = |url: String| {
        let builder = Coordinator::builder().nodes([url]).username("locks");
        builder.restart_guard(RestartGuard::Off).build().unwrap()
    };
    let named = coordinator(format!("redis://:of-the-address@127.0.0.1:{port}"));
    let lease = named.lock("r").acquire().await.unwrap();
    let clients = servers[0].command(&["CLIENT", "LIST"]).await.unwrap().to_string();
    assert!(clients.contains("user=locks"), "{clients}");
    lease.release().await.unwrap();

    let without = coordinator(format!("redis://127.0.0.1:{port}"));
    let refused = without.lock("r").acquire().await.unwrap_err().to_string();
    assert!(refused.contains("there is a user but no password"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock() {
    let (servers, file) = (Servers::start(3).await.unwrap(), PasswordFile::new());
    allow(&servers, &[password(0)]).await;
    let urls: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    let builder = || Coordinator::builder().nodes(&urls).username("locks").restart_guard(RestartGuard::Off);
    let coordinator = builder().password_file(file.path()).build().unwrap();
    costs_no_lock(&coordinator, async |number| {
        allow(&servers, &[password(number - 1), password(number)]).await;
        file.change_to(number);
        for server in servers.iter() {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
        }
    })
    .await;
    is_refused(&builder().password(password(0)).build().unwrap()).await;
}
