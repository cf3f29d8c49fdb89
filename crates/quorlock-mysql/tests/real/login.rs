//! Logins on a real server: TLS with the test's own certificate authority, and each plugin.

use quorlock::{
    Coordinator, RestartGuard,
    node::{Node as _, NodeErrorKind, Seams},
    transport::Tls,
};
use quorlock_mysql::{MysqlKind, MysqlNode};
use quorlock_testkit::patience;

use crate::server::{Server, skipped};

#[path = "../../../../tests/stores/rotation.rs"]
mod rotation;

use rotation::{PasswordFile, costs_no_lock, is_refused, password};

#[cfg(feature = "tls")]
#[path = "../../../../tests/stores/authority.rs"]
mod authority;

#[cfg(feature = "tls")]
use authority::Authority;

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_encrypted_to_a_server_with_the_right_certificate_only() {
    // The server has another user, who must be able to read them.
    let folder = tempfile::Builder::new().permissions(permissions()).tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let [certificate, key] = ours.issue(folder.path(), "server", |_| {});
    let (ours, other) = (ours.file(folder.path(), "ours.pem"), other.file(folder.path(), "other.pem"));
    let settings = [("cert", &certificate), ("key", &key)]
        .map(|(what, file)| format!("--ssl-{what}={}", file.display()));
    let Some(server) = Server::start(&settings.each_ref().map(String::as_str)).await else { return };
    server.sql("ALTER USER 'locks'@'%' REQUIRE SSL").await;
    let url =
        |host: &str, options: &str| format!("mysql://locks:secret@{host}:{}/locks?{options}", server.port());
    let in_the_url = format!("tls=on&tls-ca={}", ours.display());
    let build = |url: String, tls: Tls| {
        let builder = Coordinator::builder().kind(MysqlKind::new()).nodes([url]).tls(tls);
        builder.restart_guard(RestartGuard::Off).build().unwrap()
    };
    for (host, options, tls) in [
        ("localhost", &*in_the_url, Tls::new()),
        ("localhost", "tls=on", Tls::new().authority(&ours)),
        ("127.0.0.1", "tls=on", Tls::new().authority(&ours).server_name("localhost")),
        ("localhost", &in_the_url, Tls::new().authority(&other)),
    ] {
        let coordinator = build(url(host, options), tls);
        coordinator.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
        coordinator.close(patience()).await;
    }
    for (host, options, tls, words) in [
        ("127.0.0.1", "tls=on", Tls::new().authority(&ours), "not for the name `127.0.0.1`"),
        ("localhost", "tls=on", Tls::new().authority(&other), "authority that is not trusted"),
        ("localhost", "tls=off", Tls::new(), "the login was refused"),
    ] {
        let error = build(url(host, options), tls).lock("a").try_acquire().await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(words) && !error.contains("secret"), "{error}");
    }
    let off = if server.is_mysql() { "--tls-version=" } else { "--skip-ssl" };
    let without = Server::start(&[off]).await.unwrap();
    let url = without.url_with(&["tls=on"]);
    let error = MysqlNode::new(&url, &Seams::default()).unwrap().ready().await;
    let error = error.unwrap_err();
    assert!(
        error.kind() == NodeErrorKind::Tls && error.to_string().contains("does not offer it"),
        "{error:#}"
    );
}

fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock() {
    let Some(server) = Server::start(&[]).await else { return };
    let file = PasswordFile::new();
    let change_to = async |number| {
        server.sql(format!("ALTER USER 'locks'@'%' IDENTIFIED BY '{}'", password(number))).await;
    };
    change_to(0).await;
    let builder = || {
        let url = server.url_of("locks@127.0.0.1", &[]);
        Coordinator::builder().kind(MysqlKind::new()).nodes([url]).restart_guard(RestartGuard::Off)
    };
    let coordinator = builder().password_file(file.path()).build().unwrap();
    costs_no_lock(&coordinator, async |number| {
        // A user has one password: no client logs in between these two.
        file.change_to(number);
        change_to(number).await;
        server.disconnects_the_user().await;
    })
    .await;
    is_refused(&builder().password(password(0)).build().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_plugin_logs_in_with_the_right_password_only() {
    let Some(server) = Server::start(&[]).await else { return };
    if server.is_mysql() {
        return skipped("the plugins of MariaDB: this is MySQL");
    }
    server.sql("INSTALL SONAME 'auth_ed25519'").await;
    let ready = async |password: &str| {
        let url = format!("mysql://locks{password}@127.0.0.1:{}/locks", server.port());
        MysqlNode::new(&url, &Seams::default()).unwrap().ready().await
    };
    for plugin in ["mysql_native_password", "ed25519"] {
        server.sql(format!("ALTER USER 'locks'@'%' IDENTIFIED VIA {plugin} USING PASSWORD('secret')")).await;
        ready(":secret").await.unwrap_or_else(|error| panic!("{plugin}: {error:#}"));
        for wrong in [":Secret", ""] {
            assert_eq!(
                ready(wrong).await.unwrap_err().kind(),
                NodeErrorKind::Login,
                "{plugin} with `{wrong}`"
            );
        }
    }
    server.sql("ALTER USER 'locks'@'%' IDENTIFIED BY ''").await;
    ready("").await.unwrap();
    server.sql("ALTER USER 'locks'@'%' IDENTIFIED VIA unix_socket").await;
    let error = ready(":secret").await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Login, "{error:#}");
}

/// The first login after a start, or after a change of the password, sends the password itself; later ones do not.
#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_of_mysql_logs_in_with_the_right_password_only() {
    let Some(server) = Server::start(&[]).await else { return };
    if !server.is_mysql() {
        return skipped("the plugin of MySQL: this is MariaDB");
    }
    let ready = async |password: &str, options: &str| {
        let url = format!("mysql://locks{password}@127.0.0.1:{}/locks{options}", server.port());
        MysqlNode::new(&url, &Seams::default()).unwrap().ready().await
    };
    let permitted = "?cleartext-password=loopback";
    for password in ["secret", "secret2"] {
        server.sql(format!("ALTER USER 'locks'@'%' IDENTIFIED BY '{password}'")).await;
        let right = format!(":{password}");
        let error = ready(&right, "").await.unwrap_err();
        assert!(error.to_string().contains("`?tls=on`"), "{error:#}");
        for wrong in [":Secret", ""] {
            let error = ready(wrong, permitted).await.unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Login, "with `{wrong}`: {error:#}");
        }
        ready(&right, permitted).await.unwrap();
        ready(&right, "").await.unwrap();
        let error = ready(":Secret", permitted).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Login, "{error:#}");
    }
    server.sql("ALTER USER 'locks'@'%' IDENTIFIED BY ''").await;
    ready("", "").await.unwrap();
    server.sql("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'").await;
    server.sql("ALTER USER 'locks'@'%' IDENTIFIED WITH auth_socket").await;
    let error = ready(":secret", permitted).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Login, "{error:#}");
}
