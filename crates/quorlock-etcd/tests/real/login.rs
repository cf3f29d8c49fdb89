//! Users of a cluster, and logins that end.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{
    ConnectionState, ListedKeys, Node, NodeError, Request, Seams, StatusListener, Vote, ask,
};
use quorlock::protocol::WaiterId;
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock::{AcquireError, Coordinator, Wait};
use quorlock_etcd::{EtcdKind, EtcdNode};
use quorlock_testkit::{EtcdCluster, EtcdPrograms, patience, until};
use tempfile::TempDir;

use crate::ordered::{TTL, acquire, claim, refusal, renew};
use crate::support::{newest, programs};

#[path = "../../../../tests/stores/rotation.rs"]
mod rotation;

use rotation::{PasswordFile, costs_no_lock, is_refused, password};

/// The life of the token of a login.
const LOGIN: Duration = Duration::from_secs(1);

/// Whether a connection has been lost.
#[derive(Default, Debug)]
struct Losses(Mutex<Vec<String>>);

impl StatusListener for Losses {
    fn on_status(&self, state: ConnectionState) {
        if let ConnectionState::Lost(error) = state {
            self.0.lock().push(format!("{error:#}"));
        }
    }
}

/// Runs `etcdctl`, as the administrator where there is one.
fn ctl(cluster: &EtcdCluster, arguments: &[&str]) {
    let done = cluster.ctl(arguments).unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

/// Starts a cluster with the users `root`, with the password `secret`, and `jobs`, with `pass`, who may use the keys below
/// `jobs/`.
async fn with_users(programs: &EtcdPrograms, options: &[&str]) -> EtcdCluster {
    // The least work for a password: on a busy machine the usual takes seconds.
    let options = [options, &["--bcrypt-cost", "4"]].concat();
    let cluster = programs.start_with(1, &options).await.unwrap();
    ctl(&cluster, &["user", "add", "root:secret"]);
    ctl(&cluster, &["user", "grant-role", "root", "root"]);
    ctl(&cluster, &["user", "add", "jobs:pass"]);
    ctl(&cluster, &["role", "add", "jobs"]);
    ctl(&cluster, &["role", "grant-permission", "jobs", "--prefix=true", "readwrite", "jobs/"]);
    ctl(&cluster, &["role", "grant-permission", "jobs", "--prefix=true", "readwrite", "quorlock/"]);
    ctl(&cluster, &["user", "grant-role", "jobs", "jobs"]);
    ctl(&cluster, &["auth", "enable"]);
    cluster
}

fn url(cluster: &EtcdCluster) -> String {
    format!("etcd://jobs:pass@{}", cluster.endpoints())
}

#[tokio::test]
async fn what_a_user_may_not_do_says_why() {
    let Some(programs) = newest() else { return };
    let cluster = with_users(&programs, &[]).await;
    let at = |url: &str| EtcdNode::new(url, &Seams::default()).unwrap();
    let error = refusal(&at(&url(&cluster).replace("pass", "wrong"))).await;
    assert!(error.contains("refuses the password of the user `jobs`") && !error.contains("wrong"), "{error}");
    let error = refusal(&at(&cluster.url())).await;
    assert!(error.contains("etcd has users"), "{error}");
    let node = at(&url(&cluster));
    assert_eq!(refusal(&node).await, "connected");
    assert_eq!(ask(&node, acquire(&claim("jobs/a", 7))).await.unwrap().vote, Vote::Granted);
    let enqueue = Request::enqueue("other".into(), WaiterId::new(7), Duration::ZERO, TTL, TTL);
    for request in [acquire(&claim("other", 7)), enqueue] {
        let error = ask(&node, request).await.unwrap_err();
        assert!(
            matches!(error, NodeError::Failed { .. }) && format!("{error:#}").contains("readwrite"),
            "{error:#}"
        );
    }
}

#[tokio::test]
async fn every_request_logs_in_again_when_the_login_has_ended() {
    for programs in programs() {
        let folder = TempDir::new().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "a key of the tests").unwrap();
        let token = format!("jwt,priv-key={},sign-method=HS256,ttl={}s", key.display(), LOGIN.as_secs());
        let cluster = with_users(&programs, &["--auth-token", &token]).await;
        let (node, losses) =
            (EtcdNode::new(&url(&cluster), &Seams::default()).unwrap(), Arc::<Losses>::default());
        node.observe(losses.clone());
        let clock = SystemClock::default();
        let after_the_login = async |request: Request| {
            clock.sleep_until(clock.now() + LOGIN * 2).await;
            let shown = format!("{programs}: {request:?}");
            ask(&node, request).await.unwrap_or_else(|error| panic!("{shown}: {error:#}")).vote
        };
        let (holder, other, waiter) = (claim("jobs/a", 1), claim("jobs/a", 2), WaiterId::new(7));
        let enqueue = Request::enqueue("jobs/a".into(), waiter, Duration::ZERO, patience(), TTL);
        let ttl = patience();
        let long = Request::Acquire { claim: holder.clone(), ttl, fence_hint: None };
        assert_eq!(after_the_login(long).await, Vote::Granted);
        // From here on the lock is watched.
        assert!(matches!(after_the_login(acquire(&other)).await, Vote::Held(_)));
        assert_eq!(after_the_login(renew(&holder)).await, Vote::Granted);
        assert!(matches!(after_the_login(enqueue).await, Vote::Queued(_)));
        assert!(matches!(
            after_the_login(Request::ListWaiters { key: "jobs/a".into() }).await,
            Vote::Waiters(_)
        ));
        assert!(matches!(after_the_login(Request::inspect("jobs/b")).await, Vote::Free));
        assert_eq!(after_the_login(Request::Cancel { claim: other, linger: TTL }).await, Vote::Free);
        let left = Request::LeaveQueue { key: "jobs/a".into(), waiter };
        assert!(matches!(after_the_login(left).await, Vote::Granted | Vote::Notified));
        assert_eq!(after_the_login(Request::Release { claim: holder }).await, Vote::Granted);
        let mut listed = node.list_keys("jobs/".into(), ListedKeys::Locks);
        while let Some(page) = listed.next().await {
            assert!(page.unwrap().is_empty());
        }
        assert_eq!(*losses.0.lock(), Vec::<String>::new(), "{programs}");
    }
}

/// Each change ends the logins of the user.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock() {
    let Some(programs) = newest() else { return };
    let (cluster, file) = (with_users(&programs, &[]).await, PasswordFile::new());
    let change_to = |number: usize| {
        let change = ["--user", "root:secret", "user", "passwd", "jobs", "--interactive=false"];
        let mut command = cluster.ctl_command(&change);
        let mut changing = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        changing.stdin.take().unwrap().write_all(format!("{}\n", password(number)).as_bytes()).unwrap();
        assert!(changing.wait().unwrap().success());
    };
    change_to(0);
    let builder = || {
        let url = format!("etcd://jobs@{}", cluster.endpoints());
        let builder = Coordinator::builder().kind(EtcdKind::new()).nodes([url]);
        builder.restart_guard(quorlock::RestartGuard::Off)
    };
    let coordinator = builder().password_file(file.path()).build().unwrap();
    costs_no_lock(&coordinator, async |number| {
        file.change_to(number);
        change_to(number);
    })
    .await;
    is_refused(&builder().password(password(0)).build().unwrap()).await;
}

#[tokio::test]
async fn a_waiter_whose_password_is_no_longer_valid_says_so() {
    let Some(programs) = newest() else { return };
    let cluster = with_users(&programs, &[]).await;
    let builder = Coordinator::builder().kind(EtcdKind::new()).nodes([url(&cluster)]);
    let client = builder.restart_guard(quorlock::RestartGuard::Off).build().unwrap();
    let holder = client.lock("jobs/a").acquire().await.unwrap();
    let other = Coordinator::builder().kind(EtcdKind::new()).nodes([url(&cluster)]);
    let other = other.restart_guard(quorlock::RestartGuard::Off).build().unwrap();
    let lock = other.lock("jobs/a").wait(Wait::UpTo(Duration::from_secs(90)));
    let waits = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let lock = client.lock("jobs/a");
    until("a waiter", async || !lock.waiters().await.unwrap().waiters.is_empty()).await;
    ctl(&cluster, &["--user", "root:secret", "user", "delete", "jobs"]);
    until("an error", async || waits.is_finished()).await;
    let error = waits.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error:?}");
    assert!(error.to_string().contains("refuses the password of the user `jobs`"), "{error}");
    drop(holder);
}
