//! `rediss://`, against real servers, with an authority of the test's own.

#![expect(clippy::unwrap_used, reason = "what does not go as expected fails the test")]

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::thread;

use quorlock::{Coordinator, RestartGuard, transport::Tls};
use quorlock_testkit::{Servers, until};
use rcgen::{CertificateParams, date_time_ymd};
use tempfile::TempDir;

use crate::support::{Ended, Quorlock, servers, skips};

#[path = "../../../../tests/stores/authority.rs"]
mod authority;

use authority::Authority;

/// A server with a port that speaks TLS and one that does not, and files for its clients.
pub(crate) struct World {
    servers: Servers,
    pub(crate) tls_port: u16,
    folder: TempDir,
}

impl World {
    /// Returns `None`, with a message, if no server supports it.
    pub(crate) async fn start(
        wants_certificates: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Option<World> {
        servers(0).await?;
        let (authority, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
        authority.issue(folder.path(), "me", |_| {});
        let [certificate, key] = authority.issue(folder.path(), "server", change);
        let ca = authority.file(folder.path(), "ca.pem");
        let [ca, certificate, key] = [ca, certificate, key].map(|file| file.display().to_string());
        let tls_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let port = tls_port.to_string();
        let options = [
            ["--tls-port", &port],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca],
            ["--tls-auth-clients", wants_certificates],
        ];
        match Servers::setup().options(options.as_flattened()).start(1).await {
            Ok(servers) => Some(World { servers, tls_port, folder }),
            Err(error) => {
                skips(format_args!("this server cannot speak TLS: {error}"));
                None
            }
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn url(&self) -> String {
        self.url_at(self.tls_port)
    }

    /// Returns the address of its TLS port, reached at another port of this machine.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("rediss://:{}@localhost:{port}", self.servers[0].password().unwrap())
    }

    /// Returns what the check of this node says, which must not vote.
    async fn examined(&self, url: &str) -> Ended {
        let doctor = Quorlock::new(["doctor", "--json"]).env("QUORLOCK_NODES", url);
        doctor.env("SSL_CERT_FILE", &self.path("ca.pem")).end().await.expect(69)
    }

    /// Expects a run without the lock, and these words in its error.
    async fn refused(&self, url: &str, options: &[&str], words: &[&str]) -> Ended {
        let ended = run(url, options).env("SSL_CERT_FILE", &self.path("ca.pem")).end().await.expect(69);
        assert_eq!(ended.stdout, "", "it ran although the server is not authenticated");
        for word in words {
            assert!(ended.stderr.contains(word), "{word}: {ended:?}");
        }
        ended
    }
}

/// A command under a lock of the node at `url`.
fn run(url: &str, options: &[&str]) -> Quorlock {
    let words = [&["run", "--restart-guard", "off", "-n"], options, &["job", "--", "echo", "ran"]].concat();
    // A handshake takes a busy machine longer than a request.
    let patient = Quorlock::new(words).env("QUORLOCK_NODE_TIMEOUT", "3s");
    patient.env("QUORLOCK_NODES", url).env("SSL_CERT_DIR", "/nonexistent")
}

#[tokio::test]
async fn settings_for_tls_beside_an_address_without_are_refused() {
    let Some(world) = World::start("no", |_| {}).await else { return };
    let ca = world.path("ca.pem");
    for plain in [
        "redis://192.0.2.1",
        "redis://:secret@127.0.0.1:6379",
        "redis+sentinel://192.0.2.1:26379/main",
        "redis+cluster://192.0.2.1:6379",
    ] {
        let ended = run(plain, &["--tls-ca", &ca]).end().await;
        assert!(ended.stderr.contains("would protect nothing: write `rediss"), "{plain}: {ended:?}");
    }
}

#[tokio::test]
async fn a_certificate_is_trusted_when_its_authority_is_and_only_then() {
    let Some(world) = World::start("no", |_| {}).await else { return };
    let ca = world.path("ca.pem");
    let by_system = run(&world.url(), &[]).env("SSL_CERT_FILE", &ca).end().await.expect(0);
    assert_eq!(by_system.stdout, "ran\n");
    run(&world.url(), &["--tls-ca", &ca]).end().await.expect(0);
    run(&world.url(), &[]).env("QUORLOCK_TLS_CA", &ca).end().await.expect(0);
    let file = run(&world.url(), &[]).file("quorlock.toml", "tls-ca = 'ca.pem'");
    file.file("ca.pem", &fs::read_to_string(&ca).unwrap()).end().await.expect(0);

    let other = Authority::new("theirs").file(world.folder.path(), "other.pem").display().to_string();
    let words = ["authority that is not trusted", "--tls-ca"];
    world.refused(&world.url(), &["--tls-ca", &other], &words).await;
    let by_doctor =
        Quorlock::new(["doctor", "--json", "--tls-ca", &other]).env("QUORLOCK_NODES", &world.url());
    let ended = by_doctor.end().await.expect(69);
    assert!(ended.stdout.contains(r#""finding":"tls""#), "{ended:?}");
}

#[tokio::test]
async fn a_name_must_be_in_the_certificate_and_can_be_given() {
    let Some(world) = World::start("no", |_| {}).await else { return };
    let by_number = world.url().replace("localhost", "127.0.0.1");
    let words = ["not for the name `127.0.0.1`", "--tls-server-name", "localhost"];
    world.refused(&by_number, &[], &words).await;
    let named = run(&by_number, &["--tls-server-name", "localhost"]);
    named.env("SSL_CERT_FILE", &world.path("ca.pem")).end().await.expect(0);
    world.refused(&world.url(), &["--tls-server-name", "db-7.example"], &["not for the name"]).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_called_so() {
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 1, 1);
    let Some(world) = World::start("no", expired).await else { return };
    world.refused(&world.url(), &[], &["has expired", "renew it"]).await;
}

#[tokio::test]
async fn a_wrong_scheme_names_the_right_one() {
    let Some(world) = World::start("no", |_| {}).await else { return };
    let plain = format!("rediss://localhost:{}", world.servers[0].port());
    world.refused(&plain, &[], &["does not speak TLS", "write redis://"]).await;
    let examined = world.examined(&plain).await;
    assert!(examined.stdout.contains(r#""finding":"tls""#), "{examined:?}");
    assert!(examined.stdout.contains("write redis:// instead of rediss://"), "{examined:?}");
    assert!(!examined.stdout.contains(r#""finding":"unreachable""#), "{examined:?}");
    // PostgreSQL, etcd and ZooKeeper hang up on TLS.
    let listener = TcpListener::bind("localhost:0").unwrap();
    let hangs_up = format!("rediss://localhost:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| drop(stream.read(&mut [0]))));
    world.refused(&hangs_up, &[], &["a port without TLS (write redis://)"]).await;
    let tls = world.url().replace("rediss", "redis");
    world.refused(&tls, &[], &["a TLS port", "rediss://"]).await;
}

#[tokio::test]
async fn a_hung_server_is_not_said_to_lack_tls_or_to_be_away() {
    let Some(world) = World::start("no", |_| {}).await else { return };
    world.servers[0].freeze().unwrap();
    let examined = world.examined(&world.url()).await;
    assert!(examined.stdout.contains(r#""finding":"unresponsive""#), "{examined:?}");
    assert!(examined.stdout.contains("look at its process"), "{examined:?}");
    world.servers[0].thaw().unwrap();
}

#[tokio::test]
async fn a_server_may_want_our_certificate() {
    let Some(world) = World::start("yes", |_| {}).await else { return };
    let [ca, certificate, key] = ["ca.pem", "me.pem", "me.key"].map(|name| world.path(name));
    let ours = ["--tls-ca", &ca, "--tls-cert", &certificate, "--tls-key", &key];
    run(&world.url(), &ours).end().await.expect(0);
    let by_environment = run(&world.url(), &[]).env("QUORLOCK_TLS_CA", &ca);
    let by_environment = by_environment.env("QUORLOCK_TLS_CERT", &certificate).env("QUORLOCK_TLS_KEY", &key);
    by_environment.end().await.expect(0);
    let examined = Quorlock::new([&["doctor", "--json", "--restart-guard", "off"], &ours[..]].concat());
    let examined = examined.env("QUORLOCK_NODES", &world.url()).end().await;
    assert!(examined.stdout.contains(r#""vote":"yes""#), "{examined:?}");

    // The server says why, or resets the connection before that has arrived.
    world.refused(&world.url(), &["--tls-ca", &ca], &["requires a client certificate", "--tls-cert"]).await;
    Authority::new("theirs").issue(world.folder.path(), "me", |_| {});
    world.refused(&world.url(), &ours, &["certificate"]).await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_a_matter_of_settings() {
    let (authority, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
    let issued = |name| authority.issue(folder.path(), name, |_| {}).map(|file| file.display().to_string());
    let ([me, key], [_, other]) = (issued("me"), issued("other"));
    for (options, word, code) in [
        (vec!["--tls-ca", "nowhere.pem"], "nowhere.pem", 78),
        (vec!["--tls-ca", &key], "it has none in PEM form", 78),
        (vec!["--tls-cert", &me], "--tls-key", 64),
        (vec!["--tls-cert", &me, "--tls-key", &me], "private key", 78),
        (vec!["--tls-cert", &me, "--tls-key", &other], "other.key", 78),
        (vec!["--tls-server-name", "no name"], "no name", 78),
    ] {
        let words = [&["status", "job", "--nodes", "rediss://localhost:1"], &options[..]].concat();
        let refused = Quorlock::new(words).end().await.expect(code).says(word);
        assert!(!refused.stderr.contains("BEGIN"), "a key is shown: {refused:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_was_renewed_is_used_without_a_restart() {
    let Some(world) = World::start("yes", |_| {}).await else { return };
    let good = ["me.pem", "me.key"].map(|name| fs::read(world.file(name)).unwrap());
    Authority::new("theirs").issue(world.folder.path(), "me", |_| {});
    let tls = Tls::new().authority(world.file("ca.pem")).identity(world.file("me.pem"), world.file("me.key"));
    let coordinator = Coordinator::builder()
        .nodes([world.url()])
        .tls(tls)
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap();
    let lock = coordinator.lock("job");
    assert!(lock.try_acquire().await.is_err(), "a stranger's certificate");
    for (name, text) in ["me.pem", "me.key"].into_iter().zip(good) {
        fs::write(world.file(name), text).unwrap();
    }
    let held = async || lock.try_acquire().await.is_ok_and(|lease| lease.is_some());
    until("a connection with the new certificate", held).await;
}
