//! `ShedLock`'s table as the locks of a node: `?layout=shedlock`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::{Claim, Token};
use quorlock::{
    Coordinator,
    node::{Expiry, Node, NodeErrorKind, Request, Seams, Vote, ask},
    runtime::SystemClock,
};
use quorlock_mysql::{MysqlKind, MysqlNode};
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Value, WrappedNode, until};
use tokio::sync::Mutex;

use crate::server::Server;

#[path = "../../../../tests/interop/shedlock.rs"]
mod java;

/// As in `ShedLock`'s documentation, but with names that fit the contract suite.
const TABLE: &str = "CREATE TABLE locks.shedlock (name VARCHAR(700) COLLATE utf8mb4_nopad_bin NOT NULL, lock_until \
                     TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by \
                     VARCHAR(255) NOT NULL, PRIMARY KEY (name)) CHARACTER SET utf8mb4";
const TTL: Duration = Duration::from_secs(60);

/// In its own time zone, like servers that were not configured.
async fn with_table() -> Option<Server> {
    let server = Server::start(&["--default-time-zone=+05:30"]).await?;
    server.sql(TABLE).await;
    Some(server)
}

fn url(server: &Server) -> String {
    format!("{}?layout=shedlock", server.url())
}

fn shedlock(server: &Server) -> MysqlNode {
    MysqlNode::new(&url(server), &Seams::default()).unwrap()
}

fn claim(key: &str, random: u128) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(random, "db-7:4121")))
}

fn acquire(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: TTL, fence_hint: None }
}

async fn vote(node: &dyn Node, request: Request) -> Vote {
    ask(node, request).await.unwrap().vote
}

/// The node without fencing, as it is used in practice: strips the numbers from the suite's requests.
fn unfenced(node: impl Node) -> WrappedNode {
    WrappedNode::new(node).on_request(|request, responder, inner| {
        let request = if let Request::Acquire { claim, ttl, .. } = &*request {
            Request::Acquire { claim: Arc::clone(claim), ttl: *ttl, fence_hint: None }.into()
        } else if let Request::Transfer { from, to, ttl, .. } = &*request {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            Request::Transfer { from, to, ttl: *ttl, fence_hint: None }.into()
        } else {
            request
        };
        inner.ask(request, responder);
    })
}

/// Another client: an administrator with a console.
struct Console(Mutex<Server>);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

impl Plant for Console {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (Value::Text(token), Expiry::In(left)) = (value, expiry) else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let (key, token, left) = (hex(key.as_bytes()), hex(&token), left.as_micros());
            let text = format!(
                "REPLACE INTO locks.shedlock VALUES (x'{key}', TIMESTAMPADD(MICROSECOND, {left}, UTC_TIMESTAMP(3)), \
                 UTC_TIMESTAMP(3), x'{token}')"
            );
            self.0.lock().await.sql(text).await;
            Ok(())
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let key = hex(key.as_bytes());
            self.0
                .lock()
                .await
                .sql(format!("DELETE FROM locks.shedlock WHERE name = _utf8mb4 x'{key}'"))
                .await;
            Ok(())
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let text = format!(
                "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) FROM locks.shedlock WHERE name = _utf8mb4 \
                 x'{}' AND lock_until > UTC_TIMESTAMP(6)",
                hex(key.as_bytes())
            );
            let rows = self.0.lock().await.sql(text).await;
            Ok(rows
                .first()
                .and_then(|row| row.get::<u64, _>(0))
                .map(|left| Expiry::In(Duration::from_micros(left))))
        })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { self.0.lock().await.restart_with_data().await })
    }
}

/// Clauses that the table cannot keep: numbers, missing expiries, values that are not text, and long names.
const NOT_KEPT: [&str; 6] = [
    "a key of the wrong type fails until it is deleted",
    "data without expiry is held forever",
    "a renewal gives an expiry to a key without one",
    "tokens are reported byte for byte",
    "any key can be locked and cancelled: key ",
    // Its last request is for the counter.
    "every answer names the same history: the table `shedlock` of ShedLock has no counter",
];
/// Words in the names of the clauses about drawn numbers.
const OF_NUMBERS: [&str; 7] =
    ["number", "counter", "draw", "write back", "asking again", "hint", "without fencing"];

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_shedlock_keeps_the_contract_it_has_columns_for() {
    let Some(server) = with_table().await else { return };
    let node = unfenced(shedlock(&server));
    let console = Console(Mutex::new(server));
    let breach = check_contract(&node, &console, &SystemClock::default()).await.unwrap_err().to_string();
    let broken: Vec<_> = breach.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let unexpected: Vec<_> = broken
        .iter()
        .filter(|line| !NOT_KEPT.iter().any(|known| line.starts_with(known)))
        .filter(|line| {
            let name = line.split(':').next().unwrap_or_default();
            !OF_NUMBERS.iter().any(|word| name.contains(word))
        })
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert!(broken.iter().all(|line| !line.contains("any key") || line.contains("takes 700")), "{broken:#?}");
}

/// The statements of `ShedLock`'s provider with `usingDbTime()`.
#[tokio::test(flavor = "multi_thread")]
async fn their_locks_and_ours_exclude_each_other() {
    let Some(server) = with_table().await else { return };
    let theirs = async |text: &str| {
        let counted = server.sql(format!("BEGIN NOT ATOMIC {text}; SELECT ROW_COUNT(); END")).await;
        counted[0].get::<u64, _>(0).unwrap()
    };
    let until = "TIMESTAMPADD(MICROSECOND, 60000000, UTC_TIMESTAMP(3))";
    let insert = format!(
        "INSERT IGNORE INTO locks.shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {until}, UTC_TIMESTAMP(3), \
         'web-1')"
    );
    let update = format!(
        "UPDATE locks.shedlock SET lock_until = {until}, locked_at = UTC_TIMESTAMP(3), locked_by = 'web-1' WHERE name = 'job' \
         AND lock_until <= UTC_TIMESTAMP(3)"
    );
    let unlock = "UPDATE locks.shedlock SET lock_until = IF (TIMESTAMPADD(MICROSECOND, 0, locked_at) > UTC_TIMESTAMP(3), \
                  TIMESTAMPADD(MICROSECOND, 0, locked_at), UTC_TIMESTAMP(3)) WHERE name = 'job' AND locked_by = 'web-1'";
    let (node, ours) = (shedlock(&server), claim("job", 7));
    assert_eq!(theirs(&insert).await, 1);
    let Vote::Held(holding) = vote(&node, acquire(&ours)).await else { panic!("not refused") };
    assert_eq!(holding.token.as_bytes(), b"web-1");
    assert!(matches!(holding.expiry, Expiry::In(left) if left > TTL / 2 && left <= TTL), "{holding:?}");
    // Rows of other holders are neither released nor extended.
    for request in [
        Request::Release { claim: Arc::clone(&ours) },
        Request::Cancel { claim: claim("job", 8), linger: TTL },
        Request::Renew { claim: Arc::clone(&ours), ttl: TTL * 9, fencing_token: None },
    ] {
        let answer = vote(&node, request).await;
        assert!(matches!(answer, Vote::Free | Vote::Held(_)), "{answer:?}");
    }
    assert_eq!(theirs(unlock).await, 1);
    assert_eq!(vote(&node, acquire(&ours)).await, Vote::Granted);
    assert_eq!((theirs(&insert).await, theirs(&update).await, theirs(unlock).await), (0, 0, 0));
    assert_eq!(vote(&node, Request::Release { claim: Arc::clone(&ours) }).await, Vote::Granted);
    assert_eq!(theirs(&update).await, 1);
    let number = quorlock::protocol::FencingToken::ZERO;
    let fenced = ask(&node, Request::WriteBack { claim: ours, fencing_token: number }).await.unwrap_err();
    assert!(fenced.to_string().contains("--fencing off"), "{fenced}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_table_is_refused_with_a_remedy() {
    let Some(server) = Server::start(&[]).await else { return };
    let refused = async |options: &str| {
        let node = MysqlNode::new(&format!("{}{options}", url(&server)), &Seams::default()).unwrap();
        node.ready().await.unwrap_err()
    };
    let message = refused("").await;
    assert_eq!(message.kind(), NodeErrorKind::Misconfigured);
    assert!(message.to_string().contains("CREATE TABLE shedlock (name VARCHAR(64)"), "{message}");
    let usual = "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3), locked_at TIMESTAMP(3), locked_by VARCHAR(255)";
    for (name, columns, cure) in [
        ("a", usual.replace(" PRIMARY KEY", ""), "ADD PRIMARY KEY"),
        (
            "b",
            usual.replace("lock_until TIMESTAMP(3)", "lock_until TIMESTAMP"),
            "MODIFY lock_until timestamp(3)",
        ),
        (
            "c",
            usual.replace("locked_by VARCHAR(255)", "locked_by VARCHAR(20)"),
            "MODIFY locked_by VARCHAR(255)",
        ),
        ("d", usual.replace("lock_until TIMESTAMP(3)", "lock_until BIGINT"), "CREATE TABLE d"),
        ("e", "name VARCHAR(64) PRIMARY KEY".to_owned(), "no column `lock_until`"),
    ] {
        server.sql(format!("CREATE TABLE locks.{name} ({columns})")).await;
        let message = refused(&format!("&table={name}")).await;
        assert!(message.is_permanent() && message.to_string().contains(cure), "{message}");
    }
    server.sql("CREATE DATABASE jobs").await;
    server.sql(format!("CREATE TABLE jobs.locks ({usual})")).await;
    server.sql("GRANT SELECT ON jobs.locks TO 'locks'@'%'").await;
    let message = refused("&table=jobs.locks").await.to_string();
    assert!(message.contains("GRANT SELECT, INSERT, UPDATE ON jobs.locks TO 'locks'@'%'"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn late_statements_of_a_lost_connection_are_not_executed() {
    let Some(server) = with_table().await else { return };
    let node = shedlock(&server);
    assert_eq!(vote(&node, acquire(&claim("job", 1))).await, Vote::Granted);
    server.sql("UPDATE locks.shedlock SET lock_until = locked_at").await;
    // The stopped server executes what it was sent when it continues: the node has given up by then.
    server.freeze().unwrap();
    let late = claim("job", 2);
    assert!(ask(&node, acquire(&late)).await.unwrap_err().may_have_acted());
    server.thaw().unwrap();
    until("it is cancelled over another connection", async || {
        ask(&node, Request::Cancel { claim: Arc::clone(&late), linger: TTL }).await.is_ok()
    })
    .await;
    assert_eq!(vote(&node, acquire(&late)).await, Vote::Free, "cancelled");
    assert_eq!(vote(&node, acquire(&claim("job", 3))).await, Vote::Granted, "no late statement was executed");
    let named = server.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'locks'").await;
    assert_eq!(named[0].get::<u64, _>(0), Some(1), "the previous connection has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_the_clocks_of_others_and_finds_one_ahead() {
    let Some(server) = with_table().await else { return };
    let found = async || {
        let coordinator =
            Coordinator::builder().kind(MysqlKind::new()).nodes([url(&server)]).build().unwrap();
        let findings = coordinator.doctor().await.findings;
        assert!(!findings.iter().any(|finding| finding.check.code() == "lock-fails"), "{findings:#?}");
        findings.into_iter().find(|finding| finding.check.code() == "client-clocks").unwrap()
    };
    let finding = found().await;
    assert_eq!(finding.severity.word(), "note");
    assert!(finding.to_string().contains("usingDbTime()"), "{finding}");
    // As written by a client with a session in another time zone, or one whose clock is ahead.
    server
        .sql(
            "INSERT INTO locks.shedlock VALUES ('import', UTC_TIMESTAMP(3) + INTERVAL 2 HOUR, UTC_TIMESTAMP(3) + INTERVAL 1 \
             HOUR, 'web-2')",
        )
        .await;
    let finding = found().await;
    assert_eq!(finding.severity.word(), "unsafe");
    assert!(finding.evidence.contains("`import`") && finding.evidence.contains("`web-2`"), "{finding}");
}

async fn with_java(theirs: &'static str) -> Option<java::Outcome> {
    let jars = java::jars()?;
    let server = with_table().await?;
    let jdbc = format!("jdbc:mariadb://127.0.0.1:{}/locks?user=locks&password=secret", server.port());
    Some(java::run(jars, MysqlKind::new(), &url(&server), &jdbc, theirs).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_of_2000_is_lost_beside_a_shedlock_client() {
    let Some(outcome) = with_java("locked").await else { return };
    java::none_lost(&outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_lost_if_their_side_does_not_lock() {
    let Some(outcome) = with_java("unlocked").await else { return };
    java::is_wrong(&outcome);
}
