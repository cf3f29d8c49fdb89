//! `ShedLock`'s table as the locks of a node, in every database that has them. What includes this has a [`Db`] beside
//! it: a server, and its SQL.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::{Claim, Token};
use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    doctor::Finding,
    node::{Expiry, Node, NodeErrorKind, NodeKind as _, Request, Seams, Vote, ask},
    runtime::SystemClock,
};
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Value, WrappedNode, until};

use super::{Db, Kind};

#[path = "../interop/shedlock.rs"]
mod java;

const TTL: Duration = Duration::from_secs(60);
/// The table, for an administrator.
const TABLE: &str = Db::TABLE;

async fn with_table() -> Option<Db> {
    let db = Db::start().await?;
    db.sql(&format!("CREATE TABLE {TABLE} ({})", Db::COLUMNS)).await;
    Some(db)
}

/// Opens a node of this address.
pub(crate) fn node(url: &str) -> Arc<dyn Node> {
    Kind::new().parse(url).unwrap().node(&Seams::default()).unwrap()
}

pub(crate) fn claim(key: &str, random: u128) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(random, "db-7:4121")))
}

pub(crate) fn acquire(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: TTL, fence_hint: None }
}

pub(crate) async fn vote(node: &dyn Node, request: Request) -> Vote {
    ask(node, request).await.unwrap().vote
}

fn coordinator(db: &Db) -> Coordinator {
    let builder = Coordinator::builder().kind(Kind::new()).restart_guard(RestartGuard::Off);
    builder.nodes([db.url("")]).build().unwrap()
}

/// Executes the statements of a Java service, as its provider with `usingDbTime()` writes them. Returns how many rows
/// it has changed.
async fn theirs(db: &Db, statements: &[&str]) -> u64 {
    let mut changed = 0;
    for statement in statements {
        changed += db.changed(&statement.replace("{later}", &Db::later(TTL))).await;
    }
    changed
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

/// Another client, which changes rows without going through the node.
impl Plant for Db {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let Value::Text(token) = value else { return Err(io::ErrorKind::Unsupported.into()) };
            let token = str::from_utf8(&token).map_err(|_| io::ErrorKind::Unsupported)?;
            let ends = match expiry {
                Expiry::In(left) => Db::later(left),
                Expiry::Never => Db::FOREVER.ok_or(io::ErrorKind::Unsupported)?.to_owned(),
            };
            let (key, now, token) = (Db::literal(key), Db::later(Duration::ZERO), Db::literal(token));
            self.sql(&format!("DELETE FROM {TABLE} WHERE name = {key}")).await;
            self.sql(&format!("INSERT INTO {TABLE} VALUES ({key}, {ends}, {now}, {token})")).await;
            Ok(())
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.sql(&format!("DELETE FROM {TABLE} WHERE name = {}", Db::literal(key))).await;
            Ok(())
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move { Ok(self.left(&Db::literal(key)).await) })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            self.start_again().await;
            Ok(())
        })
    }
}

/// Clauses that no such table can keep: numbers, values that are not text, and any name.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_shedlock_keeps_the_contract_it_has_columns_for() {
    let Some(db) = with_table().await else { return };
    let node = unfenced(node(&db.url("")));
    let breach = check_contract(&node, &db, &SystemClock::default()).await.unwrap_err().to_string();
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
    let why = |line: &&str| !line.contains("any key") || line.contains(Db::NO_NAME);
    assert!(broken.iter().all(why), "{broken:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn their_locks_and_ours_exclude_each_other() {
    let Some(db) = with_table().await else { return };
    let (node, ours) = (node(&db.url("")), claim("job", 7));
    assert_eq!(theirs(&db, Db::THEY_LOCK).await, 1);
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
    let left = db.left("'job'").await;
    assert!(matches!(left, Some(Expiry::In(left)) if left <= TTL), "{left:?}");
    assert_eq!(theirs(&db, Db::THEY_UNLOCK).await, 1);
    assert_eq!(vote(&*node, acquire(&ours)).await, Vote::Granted);
    assert_eq!(theirs(&db, Db::THEY_LOCK).await, 0);
    assert_eq!(theirs(&db, Db::THEY_UNLOCK).await, 0, "their unlock finds its own rows only");
    assert_eq!(vote(&*node, Request::Release { claim: ours }).await, Vote::Granted);
    assert_eq!(theirs(&db, Db::THEY_LOCK).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_renewed_and_kept_for_its_least_time_by_the_library() {
    let Some(db) = with_table().await else { return };
    let coordinator = coordinator(&db);
    let lock = coordinator.lock("job").fencing(Fencing::Off).wait(Wait::Never);
    let lease = lock.acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert_eq!(theirs(&db, Db::THEY_LOCK).await, 0);
    lease.retain(Duration::from_secs(3600), "ran").await.unwrap();
    assert_eq!(theirs(&db, Db::THEY_LOCK).await, 0, "as with their lockAtLeastFor");
    let left = db.left("'job'").await;
    assert!(matches!(left, Some(Expiry::In(left)) if left > Duration::from_secs(3000)), "{left:?}");
    // Without the flag, the error names it.
    let refused = coordinator.lock("other").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(format!("{refused:#}").contains("--fencing off"), "{refused:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_table_is_refused_with_a_remedy() {
    let Some(db) = Db::start().await else { return };
    let refused = async |url: String| {
        let error = node(&url).ready().await.unwrap_err();
        assert!(error.is_permanent(), "{error:?}");
        (error.kind(), error.to_string())
    };
    let (kind, output) = refused(db.url("")).await;
    assert_eq!(kind, NodeErrorKind::Misconfigured);
    assert!(output.contains("CREATE TABLE shedlock (name "), "{output}");
    for (name, columns, cure) in Db::WRONG {
        let place = TABLE.replace("shedlock", name);
        db.sql(&format!("CREATE TABLE {place} ({columns})")).await;
        let (kind, output) = refused(db.url(&format!("&table={name}"))).await;
        assert!(kind == NodeErrorKind::Misconfigured && output.contains(cure), "{output}");
    }
    // A table of any name in any schema works, and the user needs three privileges.
    db.sql(&format!("{}; CREATE TABLE jobs.locks ({}); {}", Db::PLACE, Db::COLUMNS, Db::USER)).await;
    let as_user = db.url_of_user("&table=jobs.locks");
    let (_, output) = refused(as_user.clone()).await;
    let (_, cure) = output.split_once('`').unwrap().1.split_once('`').unwrap().1.split_once('`').unwrap();
    let cure = cure.trim_end_matches('`');
    assert!(cure.starts_with("GRANT SELECT, INSERT, UPDATE ON jobs.locks TO "), "{output}");
    db.sql(cure).await;
    let node = node(&as_user);
    assert_eq!(vote(&*node, acquire(&claim("job", 1))).await, Vote::Granted);
    let long = ask(&*node, acquire(&claim(&"n".repeat(1025), 1))).await.unwrap_err();
    assert!(long.to_string().contains("1025 characters"), "{long}");
}

/// Cancels an attempt whose statement may be late, over another connection: it is not executed.
pub(crate) async fn cancels(node: &dyn Node, late: &Arc<Claim>, between: impl AsyncFn()) {
    until("it is cancelled over another connection", async || {
        between().await;
        ask(node, Request::Cancel { claim: Arc::clone(late), linger: TTL }).await.is_ok()
    })
    .await;
    assert_eq!(vote(node, acquire(late)).await, Vote::Free, "cancelled");
    let next = vote(node, acquire(&claim("job", 3))).await;
    assert_eq!(next, Vote::Granted, "no late statement was executed");
}

#[tokio::test(flavor = "multi_thread")]
async fn late_statements_of_a_lost_connection_are_not_executed() {
    let Some(db) = with_table().await else { return };
    db.loses_a_connection().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_the_clocks_of_others_and_finds_one_ahead() {
    let Some(db) = with_table().await else { return };
    let found = async || -> Finding {
        let findings = coordinator(&db).doctor().await.findings;
        assert!(!findings.iter().any(|finding| finding.check.code() == "lock-fails"), "{findings:#?}");
        findings.into_iter().find(|finding| finding.check.code() == "client-clocks").unwrap()
    };
    let finding = found().await;
    assert!(finding.to_string().contains("usingDbTime()"), "{finding}");
    assert_eq!(finding.severity.word(), "note");
    // As written by a client whose clock is ahead, or one with a session in another time zone.
    let [hour, two] = [1, 2].map(|hours| Db::later(Duration::from_secs(3600 * hours)));
    db.sql(&format!("INSERT INTO {TABLE} VALUES ('import', {two}, {hour}, 'web-2')")).await;
    let finding = found().await;
    assert_eq!(finding.severity.word(), "unsafe");
    assert!(finding.evidence.contains("`import`") && finding.evidence.contains("`web-2`"), "{finding}");
}

/// A client of `ShedLock` from Maven and our clients on one table.
async fn with_java(theirs: &'static str) -> Option<java::Outcome> {
    let jars = java::jars()?;
    let db = with_table().await?;
    Some(java::run(jars, Kind::new(), &db.url(""), &db.jdbc(), theirs).await)
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
