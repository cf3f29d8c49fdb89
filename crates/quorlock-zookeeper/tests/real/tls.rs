//! TLS, with client certificates.

use std::path::Path;
use std::process::Command;

use quorlock_zookeeper::ZooKeeperKind;

use crate::foreign::BASE;
use crate::support::{SESSION, programs};

#[path = "../../../../tests/stores/tls.rs"]
mod files;

use files::Files;

/// Makes a store of the certificate and the key, as Java reads it.
fn store(store: &Path, certificate: &Path, key: &Path) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["pkcs12", "-export", "-passout", "pass:secret", "-out"]).arg(store);
    openssl.arg("-in").arg(certificate).arg("-inkey").arg(key);
    openssl.output().is_ok_and(|made| made.status.success())
}

#[tokio::test]
async fn members_and_clients_prove_who_they_are() {
    let Some(programs) = programs() else { return };
    let files = Files::new();
    let [certificate, key] = &files.member;
    let keys = files.folder.path().join("server.p12");
    if !store(&keys, certificate, key) {
        return eprintln!("skipped: no openssl, which makes the certificate a store for Java");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let secure = port.local_addr().unwrap().port();
    drop(port);
    let settings = [
        format!("secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1"),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        format!("ssl.keyStore.location={}\nssl.keyStore.type=PKCS12", keys.display()),
        "ssl.keyStore.password=secret".to_owned(),
        format!("ssl.trustStore.location={}\nssl.trustStore.type=PEM", files.authority.display()),
        "ssl.clientAuth=need".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let cluster = programs.start_with(1, &settings).await.unwrap();

    let url = format!("zookeepers://localhost:{secure}{BASE}?session={SESSION}s");
    files.are_demanded(ZooKeeperKind::new(), &url).await;
    drop(cluster);
}
