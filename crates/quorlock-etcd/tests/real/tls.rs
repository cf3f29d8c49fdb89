//! TLS, with client certificates.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use quorlock::transport::Tls;
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_etcd::EtcdKind;
use quorlock_testkit::{eventually, patience};

use crate::support::newest;

#[path = "../../../../tests/stores/authority.rs"]
mod authority;

use authority::Authority;

/// A member that ends when this is dropped.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn client(url: &str, tls: Tls) -> Result<Coordinator, quorlock::ConfigError> {
    let builder = Coordinator::builder().kind(EtcdKind::new()).nodes([url]).tls(tls);
    builder.restart_guard(RestartGuard::Off).build()
}

#[tokio::test]
async fn members_and_clients_prove_who_they_are() {
    let Some(programs) = newest() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let [certificate, key] = ours.issue(folder.path(), "server", |_| {});
    let [of_client, its_key] = ours.issue(folder.path(), "client", |_| {});
    let authority = ours.file(folder.path(), "ca.pem");
    let ports: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [port, peer] = [0, 1].map(|at| ports[at].local_addr().unwrap().port());
    drop(ports);
    let (here, peer) = (format!("https://localhost:{port}"), format!("http://127.0.0.1:{peer}"));
    let mut etcd = Command::new(programs.program("etcd"));
    etcd.args(["--name", "a", "--log-level", "error", "--data-dir"]).arg(folder.path().join("data"));
    etcd.args([
        "--listen-client-urls",
        &format!("https://127.0.0.1:{port}"),
        "--advertise-client-urls",
        &here,
    ]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("a={peer}"), "--client-cert-auth", "--trusted-ca-file"]);
    etcd.arg(&authority).arg("--cert-file").arg(&certificate).arg("--key-file").arg(&key);
    let _member = Own(etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

    let url = format!("etcds://localhost:{port}");
    let trusting = Tls::new().authority(&authority);
    let proven = trusting.clone().identity(&of_client, &its_key);
    let lock = client(&url, proven.clone()).unwrap().lock("a").wait(Wait::Never);
    let acquired = async || lock.acquire().await.is_ok();
    eventually("a lock over TLS", patience(), acquired).await.unwrap();
    // Without a certificate of its own, without the authority, and without TLS.
    for (url, tls) in
        [(url.as_str(), trusting), (&url, Tls::new()), (&url.replace("etcds", "etcd"), Tls::new())]
    {
        let error =
            client(url, tls).unwrap().lock("a").wait(Wait::Never).acquire().await.unwrap_err().to_string();
        assert!(error.contains("TLS") || error.contains("etcds://"), "{url}: {error}");
    }
    let error = client(&url.replace("etcds", "etcd"), proven).unwrap_err().to_string();
    assert!(error.contains("write `etcds://`"), "{error}");
}
