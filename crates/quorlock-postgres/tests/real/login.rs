//! TLS and passwords on real servers, with the test's own certificate authority.

use std::fs;
use std::path::{Path, PathBuf};

use quorlock::{Coordinator, RestartGuard, transport::Tls};
use quorlock_postgres::PostgresKind;
use quorlock_testkit::patience;

use crate::support::{Server, server};

#[path = "../../../../tests/stores/authority.rs"]
mod authority;

use authority::Authority;

#[path = "../../../../tests/stores/rotation.rs"]
mod rotation;

use rotation::{PasswordFile, costs_no_lock, is_refused, password};

/// A server that accepts TCP clients only over TLS, and requires a password from all but its owner.
fn encrypted(authority: &Authority, folder: &Path) -> Server {
    let files = authority.issue(folder, "server", |_| {});
    let [certificate, key] = files.map(|file| fs::read_to_string(file).unwrap());
    let rules = "local all all trust\nhostssl all postgres all trust\nhostssl all all all scram-sha-256\n";
    let settings = ["ssl=on", "password_encryption=scram-sha-256"];
    let files = [("server.crt", &*certificate), ("server.key", &*key), ("pg_hba.conf", rules)];
    Server::with_files(&settings, &files)
}

/// A client that trusts only this authority.
fn coordinator(url: String, authority: PathBuf, password: Option<&str>) -> Coordinator {
    let mut builder = Coordinator::builder().kind(PostgresKind::new()).nodes([url]);
    if let Some(password) = password {
        builder = builder.password(password);
    }
    // The server was created just now, and has forgotten nothing.
    builder.tls(Tls::new().authority(authority)).restart_guard(RestartGuard::Off).build().unwrap()
}

/// Asserts that an acquisition fails with these words, and that `doctor` reports the same.
async fn refused(coordinator: &Coordinator, words: &[&str]) {
    let error = coordinator.lock("a").try_acquire().await.expect_err("no such server may be trusted");
    let message = format!("{error:#}");
    assert!(words.iter().all(|word| message.contains(word)) && !message.contains("hunter"), "{message}");
}

#[tokio::test]
async fn a_wrong_certificate_is_refused_with_the_reason() {
    if server().is_none() {
        return;
    }
    let (ours, other, folder) =
        (Authority::new("ours"), Authority::new("other"), tempfile::tempdir().unwrap());
    let server = encrypted(&ours, folder.path());
    let (ours, other) = (ours.file(folder.path(), "ours.pem"), other.file(folder.path(), "other.pem"));
    for mode in ["verify-full", "require"] {
        let url = |host| server.tcp_url("postgres", host, &format!("?sslmode={mode}"));
        let trusting = coordinator(url("localhost"), ours.clone(), None);
        let lease = trusting.lock("a").try_acquire().await.unwrap().unwrap();
        let asked = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name LIKE 'quorlock%'";
        let row = server.client().await.query_one(asked, &[]).await.unwrap();
        assert_eq!(row.get::<_, Option<bool>>(0), Some(true), "the connection is encrypted");
        lease.release().await.unwrap();
        trusting.close(patience()).await;
        refused(
            &coordinator(url("127.0.0.1"), ours.clone(), None),
            &["not for the name `127.0.0.1`", "--tls-server-name"],
        )
        .await;
        refused(
            &coordinator(url("localhost"), other.clone(), None),
            &["authority that is not trusted", "--tls-ca"],
        )
        .await;
    }
    let plain = server.tcp_url("postgres", "localhost", "?sslmode=disable");
    refused(&coordinator(plain, ours.clone(), None), &["pg_hba.conf", "`sslmode=verify-full`"]).await;
    let without = Server::start(&[]);
    let url = without.tcp_url("postgres", "localhost", "?sslmode=verify-full");
    refused(&coordinator(url, ours, None), &["the server does not offer it", "ssl = on"]).await;
}

#[tokio::test]
async fn a_password_is_proved_by_scram_and_a_wrong_one_is_refused() {
    if server().is_none() {
        return;
    }
    let (ours, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
    let server = encrypted(&ours, folder.path());
    let client = server.client().await;
    let made = "CREATE USER app PASSWORD 'hunter2'; GRANT CREATE ON DATABASE postgres TO app";
    client.batch_execute(made).await.unwrap();
    let stored =
        client.query_one("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'", &[]).await.unwrap();
    assert!(
        stored.get::<_, String>(0).starts_with("SCRAM-SHA-256$"),
        "the password is stored in another form"
    );
    let ours = ours.file(folder.path(), "ours.pem");
    let url = server.tcp_url("app", "localhost", "?sslmode=verify-full");
    let given = coordinator(url.clone(), ours.clone(), Some("hunter2"));
    given.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    let in_the_url = coordinator(url.replace("app@", "app:hunter2@"), ours.clone(), Some("hunter3"));
    in_the_url.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    refused(&coordinator(url.clone(), ours.clone(), Some("hunter3")), &["refuses user and password"]).await;
    refused(&coordinator(url, ours, None), &["it wants a password"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock() {
    if server().is_none() {
        return;
    }
    let rules = "local all all trust\nhost all all all scram-sha-256\n";
    let server = Server::with_files(&["password_encryption=scram-sha-256"], &[("pg_hba.conf", rules)]);
    let (client, file) = (server.client().await, PasswordFile::new());
    let made =
        format!("CREATE USER app PASSWORD '{}'; GRANT CREATE ON DATABASE postgres TO app", password(0));
    client.batch_execute(&made).await.unwrap();
    let builder = || {
        let url = server.tcp_url("app", "127.0.0.1", "?sslmode=disable&connections=1");
        Coordinator::builder().kind(PostgresKind::new()).nodes([url]).restart_guard(RestartGuard::Off)
    };
    let coordinator = builder().password_file(file.path()).build().unwrap();
    costs_no_lock(&coordinator, async |number| {
        // A role has one password: no client logs in between these two.
        file.change_to(number);
        client.batch_execute(&format!("ALTER USER app PASSWORD '{}'", password(number))).await.unwrap();
        let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";
        client.batch_execute(ended).await.unwrap();
    })
    .await;
    is_refused(&builder().password(password(0)).build().unwrap()).await;
}

#[test]
fn tls_settings_that_protect_nothing_are_refused() {
    let built = |url: &str| {
        let builder = Coordinator::builder().kind(PostgresKind::new()).nodes([url]);
        builder.tls(Tls::new().server_name("db.example")).build().map(drop)
    };
    let refused = built("postgres://db/x").unwrap_err();
    assert!(format!("{refused:#}").contains("sslmode=verify-full"), "{refused:#}");
    for url in
        ["postgres://db/x?sslmode=verify-full", "postgres://db/x?sslmode=disable", "postgres:///x?host=/run"]
    {
        assert!(built(url).is_ok(), "{url}");
    }
}
