//! `ShedLock`'s table as the locks of a node: `?layout=shedlock`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::{Claim, Token};
use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    node::{Expiry, Node, NodeErrorKind, Request, Vote, ask},
    runtime::SystemClock,
};
use quorlock_postgres::PostgresKind;
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Value, WrappedNode, until};

use crate::support::{Server, node, server};

/// As in `ShedLock`'s documentation, but with room for the long names of the contract suite.
const TABLE: &str = "CREATE TABLE shedlock (name varchar(1024) PRIMARY KEY, lock_until timestamp NOT NULL, \
                     locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)";
const TTL: Duration = Duration::from_secs(60);

async fn sql(server: &Server, text: &str) {
    server.client().await.batch_execute(text).await.unwrap();
}

async fn with_table() -> Option<Server> {
    let server = server()?;
    sql(&server, TABLE).await;
    Some(server)
}

fn shedlock(server: &Server) -> Arc<dyn Node> {
    node(&server.url("&layout=shedlock"))
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

/// Executes a statement of a Java service, as its provider with `usingDbTime()` writes it.
async fn theirs(server: &Server, text: &str) -> u64 {
    server.client().await.execute(text, &[]).await.unwrap()
}

const THEY_LOCK: &str = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('job', \
    timezone('utc', CURRENT_TIMESTAMP) + cast('60000 milliseconds' as interval), timezone('utc', CURRENT_TIMESTAMP), 'web-1') \
    ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + cast('60000 milliseconds' as \
    interval), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'web-1' WHERE shedlock.name = 'job' AND \
    shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)";
const THEY_UNLOCK: &str = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = 'job' AND \
    locked_by = 'web-1'";

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

/// Another client, which changes rows without going through the node.
struct Editor<'a>(&'a Server);

impl Plant for Editor<'_> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let Value::Text(token) = value else { return Err(io::ErrorKind::Unsupported.into()) };
            let token = String::from_utf8(token).map_err(|_| io::ErrorKind::Unsupported)?;
            let ends = match expiry {
                Expiry::In(left) => format!("timezone('utc', now()) + interval '{} ms'", left.as_millis()),
                Expiry::Never => "'infinity'".to_owned(),
            };
            let text = format!(
                "INSERT INTO shedlock VALUES ($1, {ends}, timezone('utc', now()), $2) ON CONFLICT (name) DO UPDATE SET
                lock_until = excluded.lock_until, locked_by = excluded.locked_by"
            );
            let done = self.0.client().await.execute(&text, &[&key, &token]).await;
            done.map(drop).map_err(io::Error::other)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let done = self.0.client().await.execute("DELETE FROM shedlock WHERE name = $1", &[&key]).await;
            done.map(drop).map_err(io::Error::other)
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let text = "SELECT CASE WHEN isfinite(lock_until) THEN
                    (extract(epoch FROM lock_until - timezone('utc', clock_timestamp())) * 1000)::int8 END
                FROM shedlock WHERE name = $1 AND lock_until > timezone('utc', clock_timestamp())";
            let row = self.0.client().await.query_opt(text, &[&key]).await.map_err(io::Error::other)?;
            let left = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
            Ok(row.map(|row| row.get::<_, Option<i64>>(0).map_or(Expiry::Never, |ms| Expiry::In(left(ms)))))
        })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        self.0.kill();
        self.0.start_again();
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Clauses that the table cannot keep: numbers, values that are not text, and names with a zero byte.
const NOT_KEPT: [&str; 4] = [
    "a key of the wrong type fails until it is deleted",
    "tokens are reported byte for byte",
    // Its last request is for the counter.
    "every answer names the same history: the table `shedlock` of ShedLock has no counter",
    "any key can be locked and cancelled: key ",
];
/// Words in the names of the clauses about drawn numbers.
const OF_NUMBERS: [&str; 7] =
    ["number", "counter", "draw", "write back", "asking again", "hint", "without fencing"];

#[tokio::test]
async fn a_table_of_shedlock_keeps_the_contract_it_has_columns_for() {
    let Some(server) = with_table().await else { return };
    let node = unfenced(shedlock(&server));
    let breach = check_contract(&node, &Editor(&server), &SystemClock::default()).await.unwrap_err();
    let breach = breach.to_string();
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
    assert!(broken.iter().all(|line| !line.contains("any key") || line.contains("\\0")), "{broken:#?}");
}

#[tokio::test]
async fn their_locks_and_ours_exclude_each_other() {
    let Some(server) = with_table().await else { return };
    let node = shedlock(&server);
    let ours = claim("job", 7);
    assert_eq!(theirs(&server, THEY_LOCK).await, 1);
    let Vote::Held(holding) = vote(&*node, acquire(&ours)).await else { panic!("not refused") };
    assert_eq!(holding.token.as_bytes(), b"web-1");
    assert!(matches!(holding.expiry, Expiry::In(left) if left > TTL / 2 && left <= TTL), "{holding:?}");
    // Rows of other holders are neither released nor extended.
    for request in [
        Request::Release { claim: Arc::clone(&ours) },
        Request::Cancel { claim: claim("job", 8), linger: TTL },
        Request::Renew { claim: Arc::clone(&ours), ttl: TTL * 9, fencing_token: None },
    ] {
        let answer = vote(&*node, request).await;
        assert!(matches!(answer, Vote::Free | Vote::Held(_)), "{answer:?}");
    }
    let left = Editor(&server).expiry("job").await.unwrap();
    assert!(matches!(left, Some(Expiry::In(left)) if left <= TTL), "{left:?}");
    assert_eq!(theirs(&server, THEY_UNLOCK).await, 1);
    assert_eq!(vote(&*node, acquire(&ours)).await, Vote::Granted);
    assert_eq!(theirs(&server, THEY_LOCK).await, 0);
    assert_eq!(theirs(&server, THEY_UNLOCK).await, 0, "their unlock finds its own rows only");
    assert_eq!(vote(&*node, Request::Release { claim: ours }).await, Vote::Granted);
    assert_eq!(theirs(&server, THEY_LOCK).await, 1);
}

#[tokio::test]
async fn a_lock_is_held_renewed_and_kept_for_its_least_time_by_the_library() {
    let Some(server) = with_table().await else { return };
    let builder = Coordinator::builder().kind(PostgresKind::new()).restart_guard(RestartGuard::Off);
    let coordinator = builder.nodes([server.url("&layout=shedlock")]).build().unwrap();
    let lock = coordinator.lock("job").fencing(Fencing::Off).wait(Wait::Never);
    let lease = lock.acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert_eq!(theirs(&server, THEY_LOCK).await, 0);
    lease.retain(Duration::from_secs(3600), "ran").await.unwrap();
    assert_eq!(theirs(&server, THEY_LOCK).await, 0, "as with their lockAtLeastFor");
    let left = Editor(&server).expiry("job").await.unwrap();
    assert!(matches!(left, Some(Expiry::In(left)) if left > Duration::from_secs(3000)), "{left:?}");
    // Without the flag, the error names it.
    let refused = coordinator.lock("other").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(format!("{refused:#}").contains("--fencing off"), "{refused:#}");
}

#[tokio::test]
async fn a_missing_or_wrong_table_is_refused_with_a_remedy() {
    let Some(server) = server() else { return };
    let refused = async |options: &str| {
        let error = node(&server.url(&format!("&layout=shedlock{options}"))).ready().await.unwrap_err();
        assert!(error.is_permanent(), "{error:?}");
        (error.kind(), error.to_string())
    };
    let (kind, output) = refused("").await;
    assert_eq!(kind, NodeErrorKind::Misconfigured);
    assert!(output.contains("CREATE TABLE shedlock (name varchar(64) PRIMARY KEY"), "{output}");
    for (name, columns, cure) in [
        (
            "a",
            "name varchar(64), lock_until timestamp, locked_at timestamp, locked_by text",
            "ADD PRIMARY KEY",
        ),
        ("b", "name text PRIMARY KEY, lock_until timestamptz, locked_at timestamp, locked_by text", "zone"),
        (
            "c",
            "name text PRIMARY KEY, lock_until timestamp(0), locked_at timestamp, locked_by text",
            "timestamp(3)",
        ),
        (
            "d",
            "name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by varchar(20)",
            "varchar(255)",
        ),
        ("e", "name text PRIMARY KEY", "CREATE TABLE e"),
    ] {
        sql(&server, &format!("CREATE TABLE {name} ({columns})")).await;
        let (kind, output) = refused(&format!("&table={name}")).await;
        assert!(kind == NodeErrorKind::Misconfigured && output.contains(cure), "{output}");
    }
    // A table of any name in any schema works, and the user needs three privileges.
    let create = TABLE.replace("shedlock", "jobs.locks");
    sql(
        &server,
        &format!("CREATE SCHEMA jobs; {create}; CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA jobs TO app"),
    )
    .await;
    let as_app = server.url("&layout=shedlock&table=jobs.locks").replace("postgres@", "app@");
    let output = node(&as_app).ready().await.unwrap_err();
    assert!(output.to_string().contains("GRANT SELECT, INSERT, UPDATE ON jobs.locks TO \"app\""), "{output}");
    sql(&server, "GRANT SELECT, INSERT, UPDATE ON jobs.locks TO app").await;
    let node = node(&as_app);
    assert_eq!(vote(&*node, acquire(&claim("job", 1))).await, Vote::Granted);
    let long = ask(&*node, acquire(&claim(&"n".repeat(1025), 1))).await.unwrap_err();
    assert!(long.to_string().contains("1025 characters"), "{long}");
}

#[tokio::test]
async fn late_statements_of_a_lost_connection_are_not_executed() {
    let Some(server) = with_table().await else { return };
    let (proxy, url) = server.behind_proxy().await;
    let node = node(&format!("{url}&layout=shedlock"));
    assert_eq!(vote(&*node, acquire(&claim("job", 1))).await, Vote::Granted);
    sql(&server, "UPDATE shedlock SET lock_until = locked_at").await;
    // Another transaction locks the row, so that our statement has been sent and waits.
    let other = server.client().await;
    other.batch_execute("BEGIN; UPDATE shedlock SET name = name").await.unwrap();
    let late = claim("job", 2);
    let (asked, cut) = futures::join!(ask(&*node, acquire(&late)), async {
        until("the statement waits", async || {
            let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            server.client().await.query_opt(waits, &[]).await.unwrap().is_some()
        })
        .await;
        proxy.cut();
    });
    let () = cut;
    assert!(asked.unwrap_err().may_have_acted(), "the connection ended before the answer");
    until("it is cancelled over another connection", async || {
        // The new statement also waits for the row, until that transaction ends.
        other.batch_execute("ROLLBACK").await.unwrap();
        ask(&*node, Request::Cancel { claim: Arc::clone(&late), linger: TTL }).await.is_ok()
    })
    .await;
    assert_eq!(vote(&*node, acquire(&late)).await, Vote::Free, "cancelled");
    assert_eq!(
        vote(&*node, acquire(&claim("job", 3))).await,
        Vote::Granted,
        "no late statement was executed"
    );
}

#[tokio::test]
async fn doctor_reports_the_clocks_of_others_and_finds_one_ahead() {
    let Some(server) = with_table().await else { return };
    let builder = Coordinator::builder().kind(PostgresKind::new());
    let coordinator = builder.nodes([server.url("&layout=shedlock")]).build().unwrap();
    let found = async || {
        let findings = coordinator.doctor().await.findings;
        findings.into_iter().find(|finding| finding.check.code() == "client-clocks").unwrap()
    };
    let finding = found().await;
    assert!(finding.to_string().contains("usingDbTime()"), "{finding}");
    assert_eq!(finding.severity.word(), "note");
    sql(
        &server,
        "INSERT INTO shedlock VALUES ('import', timezone('utc', now()) + interval '2 h', timezone('utc', now()) + interval \
         '1 h', 'web-2')",
    )
    .await;
    let builder = Coordinator::builder().kind(PostgresKind::new());
    let coordinator = builder.nodes([server.url("&layout=shedlock")]).build().unwrap();
    let findings = coordinator.doctor().await.findings;
    let finding = findings.iter().find(|finding| finding.check.code() == "client-clocks").unwrap();
    assert_eq!(finding.severity.word(), "unsafe");
    assert!(finding.evidence.contains("`import`") && finding.evidence.contains("`web-2`"), "{finding}");
    assert!(!findings.iter().any(|finding| finding.check.code() == "lock-fails"), "{findings:#?}");
}
