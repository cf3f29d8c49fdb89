//! `rediss://`, against a real server with a certificate of its own.

#![expect(clippy::unwrap_used, reason = "what does not go as expected fails the test")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use quorlock_testkit::{Kind, eventually};

use crate::support::{Quorlock, SOON};

/// A server that speaks TLS only. The test kit's own do not.
struct TlsServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl TlsServer {
    /// `None`, and a word, where no server can do it.
    fn start() -> Option<TlsServer> {
        let Some(Kind::Program { path, .. }) = Kind::all_found().into_iter().next() else { return None };
        let folder = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, certified.cert.pem()).unwrap();
        std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let process = Command::new(path)
            .args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--tls-auth-clients", "no"])
            .args(["--tls-port", &port.to_string(), "--tls-cert-file"])
            .arg(&cert)
            .arg("--tls-key-file")
            .arg(&key)
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(TlsServer { process, port, folder })
    }

    fn certificate(&self) -> std::path::PathBuf {
        self.folder.path().join("cert.pem")
    }

    fn run(&self, trusted: &Path) -> Quorlock {
        Quorlock::new(["run", "--restart-guard", "off", "-n", "job", "--", "echo", "ran"])
            .env("QUORLOCK_NODES", &format!("rediss://localhost:{}", self.port))
            .env("SSL_CERT_FILE", &trusted.display().to_string())
            .env("SSL_CERT_DIR", "/nonexistent")
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[tokio::test]
async fn a_certificate_is_trusted_when_its_authority_is_and_only_then() {
    let Some(mut server) = TlsServer::start() else {
        println!("skipped: no real server here that could speak TLS");
        return;
    };
    let up = eventually("the server", SOON, async || {
        server.process.try_wait().unwrap().is_some()
            || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).is_ok()
    });
    up.await.unwrap();
    if server.process.try_wait().unwrap().is_some() {
        println!("skipped: the server found here was built without TLS");
        return;
    }
    let ended = server.run(&server.certificate()).end().await.expect(0);
    assert_eq!(ended.stdout, "ran\n");

    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let trusted = server.folder.path().join("other.pem");
    std::fs::write(&trusted, stranger.cert.pem()).unwrap();
    let ended = server.run(&trusted).end().await.expect(69);
    assert!(ended.stderr.to_lowercase().contains("certificate"), "{ended:?}");
    assert_eq!(ended.stdout, "", "it ran although nobody knows whose server that is");
}
