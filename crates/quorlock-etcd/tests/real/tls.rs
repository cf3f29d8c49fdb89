//! TLS, with client certificates.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use quorlock::node::{Node as _, Seams};
use quorlock_etcd::{EtcdKind, EtcdNode};

use crate::support::newest;

#[path = "../../../../tests/stores/tls.rs"]
mod files;

use files::Files;

/// A member that ends when this is dropped.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn members_and_clients_prove_who_they_are() {
    let Some(programs) = newest() else { return };
    let files = Files::new();
    let ports: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [port, peer] = [0, 1].map(|at| ports[at].local_addr().unwrap().port());
    drop(ports);
    let (here, peer) = (format!("https://localhost:{port}"), format!("http://127.0.0.1:{peer}"));
    let mut etcd = Command::new(programs.program("etcd"));
    etcd.args(["--name", "a", "--log-level", "error", "--data-dir"]).arg(files.folder.path().join("data"));
    etcd.args([
        "--listen-client-urls",
        &format!("https://127.0.0.1:{port}"),
        "--advertise-client-urls",
        &here,
    ]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("a={peer}"), "--client-cert-auth", "--trusted-ca-file"]);
    let [certificate, key] = &files.member;
    etcd.arg(&files.authority).arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
    let _member = Own(etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

    files.are_demanded(EtcdKind::new(), &here.replace("https", "etcds")).await;
}

#[tokio::test]
async fn a_port_without_tls_is_named() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let node = EtcdNode::new(&format!("etcds://{}", cluster.address(0)), &Seams::default()).unwrap();
    let error = node.ready().await.unwrap_err();
    assert!(format!("{error:#}").contains("write `etcd://`") && !error.is_permanent(), "{error:#}");
}
