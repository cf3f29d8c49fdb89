//! TLS, with client certificates.

use std::path::Path;
use std::process::Command;

use quorlock::transport::Tls;
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_testkit::{eventually, patience};
use quorlock_zookeeper::ZooKeeperKind;

use crate::foreign::BASE;
use crate::support::{SESSION, programs};

#[path = "../../../../tests/stores/authority.rs"]
mod authority;

use authority::Authority;

fn client(url: &str, tls: Tls) -> Result<Coordinator, quorlock::ConfigError> {
    let builder = Coordinator::builder().kind(ZooKeeperKind::new()).nodes([url]).tls(tls);
    builder.restart_guard(RestartGuard::Off).build()
}

/// Makes a store of the certificate and the key, as Java reads it.
fn store(folder: &Path, certificate: &Path, key: &Path) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["pkcs12", "-export", "-passout", "pass:secret", "-out"]).arg(folder.join("server.p12"));
    openssl.arg("-in").arg(certificate).arg("-inkey").arg(key);
    openssl.output().is_ok_and(|made| made.status.success())
}

#[tokio::test]
async fn members_and_clients_prove_who_they_are() {
    let Some(programs) = programs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let [certificate, key] = ours.issue(folder.path(), "server", |_| {});
    let [of_client, its_key] = ours.issue(folder.path(), "client", |_| {});
    let authority = ours.file(folder.path(), "ca.pem");
    if !store(folder.path(), &certificate, &key) {
        return eprintln!("skipped: no openssl, which makes the certificate a store for Java");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let secure = port.local_addr().unwrap().port();
    drop(port);
    let settings = [
        format!("secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1"),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        format!(
            "ssl.keyStore.location={}\nssl.keyStore.type=PKCS12",
            folder.path().join("server.p12").display()
        ),
        "ssl.keyStore.password=secret".to_owned(),
        format!("ssl.trustStore.location={}\nssl.trustStore.type=PEM", authority.display()),
        "ssl.clientAuth=need".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let cluster = programs.start_with(1, &settings).await.unwrap();

    let url = format!("zookeepers://localhost:{secure}{BASE}?session={SESSION}s");
    let trusting = Tls::new().authority(&authority);
    let proven = trusting.clone().identity(&of_client, &its_key);
    let lock = client(&url, proven.clone()).unwrap().lock("a").wait(Wait::Never);
    let acquired = async || lock.acquire().await.is_ok();
    eventually("a lock over TLS", patience(), acquired).await.unwrap();
    // Without a certificate of its own, without the authority, and without TLS.
    for (url, tls) in
        [(url.as_str(), trusting), (&url, Tls::new()), (&url.replace("keepers:", "keeper:"), Tls::new())]
    {
        let error =
            client(url, tls).unwrap().lock("a").wait(Wait::Never).acquire().await.unwrap_err().to_string();
        assert!(error.contains("TLS") || error.contains("zookeepers://"), "{url}: {error}");
    }
    let error = client(&url.replace("keepers:", "keeper:"), proven).unwrap_err().to_string();
    assert!(error.contains("write `zookeepers://`"), "{error}");
    drop(cluster);
}
