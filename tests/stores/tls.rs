//! TLS with client certificates, for tests of etcd and of ZooKeeper, which include this file.

use std::path::PathBuf;

use quorlock::node::NodeKind;
use quorlock::transport::Tls;
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_testkit::until;
use tempfile::TempDir;

mod authority;

use authority::Authority;

/// What a member and a client prove themselves with.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
    pub(crate) authority: PathBuf,
    /// The certificate and the key of the member.
    pub(crate) member: [PathBuf; 2],
    client: [PathBuf; 2],
}

impl Files {
    pub(crate) fn new() -> Files {
        let (ours, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
        let issue = |name| ours.issue(folder.path(), name, |_| {});
        let (authority, member, client) =
            (ours.file(folder.path(), "ca.pem"), issue("server"), issue("client"));
        Files { folder, authority, member, client }
    }

    /// Expects that the member at `url` votes only for who has both the authority and a certificate of it.
    pub(crate) async fn are_demanded(&self, kind: impl NodeKind + Copy, url: &str) {
        let client = |url: &str, tls: Tls| {
            let builder = Coordinator::builder().kind(kind).nodes([url]).tls(tls);
            builder.restart_guard(RestartGuard::Off).build()
        };
        let (scheme, plain) = (url.split_inclusive("://").next().unwrap(), url.replacen("s://", "://", 1));
        let trusting = Tls::new().authority(&self.authority);
        let proven = trusting.clone().identity(&self.client[0], &self.client[1]);
        let lock = client(url, proven.clone()).unwrap().lock("a").wait(Wait::Never);
        let acquired = async || lock.acquire().await.is_ok();
        until("a lock over TLS", acquired).await;
        // Without a certificate of its own, without the authority, and without TLS.
        for (url, tls) in [(url, trusting), (url, Tls::new()), (&plain, Tls::new())] {
            let lock = client(url, tls).unwrap().lock("a").wait(Wait::Never);
            let error = lock.acquire().await.unwrap_err().to_string();
            assert!(error.contains("TLS") || error.contains(scheme), "{url}: {error}");
        }
        let error = client(&plain, proven).unwrap_err().to_string();
        assert!(error.contains(&format!("write `{scheme}`")), "{error}");
    }
}
