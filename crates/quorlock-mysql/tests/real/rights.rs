//! Errors that keep a server from voting name their remedy: privileges, tables, settings, histories.

use mysql_async::prelude::Queryable as _;
use quorlock::{
    Coordinator,
    node::{Kinds, Node, NodeError, NodeErrorKind, NodeKind as _, Seams, Vote},
    transport::Tls,
};
use quorlock_mysql::{MysqlKind, MysqlNode};
use quorlock_testkit::until;

use crate::faults::node;
use crate::requests::{acquire, claim, release};
use crate::server::Server;

/// Returns why the node at this URL does not connect.
async fn refusal(url: &str) -> NodeError {
    let error = MysqlNode::new(url, &Seams::default()).unwrap().ready().await.unwrap_err();
    let shown = format!("{error:#} {error:?}");
    assert!(!shown.contains("secret"), "{shown}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_names_the_privileges_to_grant() {
    let Some(server) = Server::start(&[]).await else { return };
    server.sql("REVOKE ALL ON locks.* FROM 'locks'@'%'").await;
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO 'locks'@'%'").await;
    let error = refusal(&server.url()).await;
    assert!(matches!(error.kind(), NodeErrorKind::PermissionDenied(_)), "{error:#}");
    let words = error.to_string();
    let grant = "`GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `locks`.* TO 'locks'@'%'`";
    assert!(words.contains(grant), "{words}");
    // The statement that it names works.
    let (_, create) = words.split_once("as a user who may: ").unwrap();
    let mut other = server.other().await;
    other.query_drop(create).await.unwrap();
    assert_eq!(acquire(&node(&server), &claim("a")).await.unwrap().vote, Vote::Granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_privilege_is_named_when_connecting() {
    let Some(server) = Server::start(&[]).await else { return };
    node(&server).ready().await.unwrap();
    let rights = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    for missing in rights {
        server.sql("REVOKE ALL ON locks.* FROM 'locks'@'%'").await;
        let granted = rights.into_iter().filter(|right| *right != missing).collect::<Vec<_>>().join(", ");
        server.sql(format!("GRANT {granted} ON locks.* TO 'locks'@'%'")).await;
        let error = refusal(&server.url()).await;
        assert!(matches!(error.kind(), NodeErrorKind::PermissionDenied(_)), "{error:#}");
        assert!(error.to_string().contains(&format!("lacks the privilege {missing} on")), "{error:#}");
    }
    // No other privilege is needed from now on.
    server.sql(format!("GRANT {} ON locks.* TO 'locks'@'%'", rights.join(", "))).await;
    let (node, held) = (node(&server), claim("a"));
    assert_eq!(acquire(&node, &held).await.unwrap().vote, Vote::Granted);
    assert_eq!(release(&node, &held).await, Vote::Granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_login_or_database_is_named() {
    let Some(server) = Server::start(&[]).await else { return };
    let error = refusal(&server.url().replace("locks:secret", "locks:secretly")).await;
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (NodeErrorKind::Login, "the login was refused: check user and password")
    );
    server.sql("GRANT ALL ON *.* TO 'locks'@'%'").await;
    let [ours, others] = ["locks", "locks_of_others"].map(|name| format!(":{}/{name}", server.port()));
    let error = refusal(&server.url().replace(&ours, &others)).await;
    assert_eq!(error.kind(), NodeErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("CREATE DATABASE"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_shape_or_engine_is_refused() {
    let Some(server) = Server::start(&[]).await else { return };
    let mut other = server.other().await;
    // The tables of this engine survive no crash.
    let engine = if server.is_mysql() { "MyISAM" } else { "Aria" };
    let columns = if server.is_mysql() {
        "name VARBINARY(900) PRIMARY KEY"
    } else {
        "name VARBINARY(2048) PRIMARY KEY"
    };
    for (create, words) in [
        (
            "CREATE TABLE quorlock_locks (name VARCHAR(64) PRIMARY KEY)".to_owned(),
            "without `name` as varbinary(2048)",
        ),
        (
            format!("CREATE TABLE quorlock_locks ({columns}) ENGINE={engine}"),
            &*format!("has the engine {engine}"),
        ),
    ] {
        other.query_drop(create).await.unwrap();
        let error = refusal(&server.url()).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains(words), "{error:#}");
        other.query_drop("DROP TABLE quorlock_locks, quorlock_history").await.ok();
        other.query_drop("DROP TABLE IF EXISTS quorlock_locks, quorlock_history").await.unwrap();
    }
    assert!(node(&server).ready().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_does_not_vote() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    acquire(&node, &claim("a")).await.unwrap();
    server.sql("SET GLOBAL read_only = ON").await;
    let error = acquire(&node, &claim("b")).await.unwrap_err();
    assert!(matches!(error, NodeError::Unfit { kind: NodeErrorKind::ReadOnly, .. }), "{error:?}");
    let error = refusal(&server.url()).await;
    assert!(matches!(error, NodeError::Unfit { kind: NodeErrorKind::ReadOnly, .. }), "{error:?}");
    let facts = node.examine("doctor".into()).await.unwrap();
    assert!(facts.failure.is_some(), "{facts:?}");
    server.sql("SET GLOBAL read_only = OFF").await;
    until("it votes again", async || acquire(&node, &claim("c")).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_server_for_its_sessions_are_not_those_of_a_node() {
    let Some(server) = Server::start(&[]).await else { return };
    for restriction in ["TRANSACTION READ ONLY", "sql_select_limit = 1, max_join_size = 1, wait_timeout = 1"]
    {
        server.sql(format!("SET GLOBAL {restriction}")).await;
    }
    let node = node(&server);
    acquire(&node, &claim("a")).await.unwrap();
    server.sql("SET GLOBAL sql_select_limit = DEFAULT, max_join_size = DEFAULT").await;
    let connection = async || -> u64 {
        let asked = "SELECT id FROM information_schema.PROCESSLIST WHERE user = 'locks'";
        mysql_async::from_row(server.sql(asked).await.remove(0))
    };
    let before = connection().await;
    for _ in 0..2 {
        server.outlives_a_second().await;
    }
    acquire(&node, &claim("b")).await.unwrap();
    assert_eq!(connection().await, before, "a quiet connection stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_forget_has_a_new_history_after_each_start() {
    let Some(server) = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await else { return };
    let node = node(&server);
    let before = acquire(&node, &claim("a")).await.unwrap().identity;
    // As if it had been running for an hour.
    server.sql("UPDATE locks.quorlock_history SET started = started - 3600000000, noted_at = noted_at - 3600000000").await;
    server.restart_with_data().await.unwrap();
    until("the node answers again", async || acquire(&node, &claim("c")).await.is_ok()).await;
    let after = acquire(&node, &claim("b")).await.unwrap().identity;
    assert_ne!(before.id, after.id);
    assert!(after.age.as_secs() < 60, "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_no_fault_in_a_healthy_server() {
    let Some(server) = Server::start(&[]).await else { return };
    let program = if server.is_mysql() { "mysql" } else { "mariadb" };
    let facts = node(&server).examine("doctor".into()).await.unwrap();
    assert!(facts.failure.is_none() && facts.unfit.is_none(), "{facts:?}");
    assert_eq!(facts.lock, Some(Ok(())));
    assert_eq!(facts.software.as_ref().map(|software| software.name), Some(program));
    assert!(facts.round_trips.len() == 5 && facts.clock.is_some() && facts.identity.is_some(), "{facts:?}");
    let left: u64 = mysql_async::from_row(
        server.sql("SELECT COUNT(*) FROM locks.quorlock_locks WHERE token IS NOT NULL").await.remove(0),
    );
    assert_eq!(left, 0);
    assert!(server.folder().exists());
}

#[test]
fn urls_are_read_and_written_without_passwords() {
    let parse = |url: &str| MysqlKind::new().parse(url);
    let address = parse("MYSQL://anna:p%40ss@DB-1:3307/my%2Flocks?tls=off").unwrap();
    assert_eq!(address.to_string(), "mysql://db-1:3307/my/locks");
    assert_eq!(address.servers(), ["db-1:3307"]);
    assert!(!format!("{address:?}").contains("p@ss"));
    assert_eq!(parse("mariadb://[::1]/locks").unwrap().servers(), ["[::1]:3306"]);
    let kinds = Kinds::default().with(MysqlKind::new());
    assert_eq!(kinds.split("mysql://a/l,redis://b").unwrap(), ["mysql://a/l", "redis://b"]);
    for (url, problem) in [
        ("mysql://db-1", "names no database"),
        ("mysql:///locks", "has no host"),
        (
            "mysql://db-1/locks?ssl=1",
            "has a parameter other than `tls=on`, `tls-ca=FILE`, `cleartext-password=loopback`, `layout=shedlock` and `table=NAME`",
        ),
        ("mysql://db-1/locks?tls=maybe", "has a `tls` that is neither `on` nor `off`"),
        ("mysql://db-1/locks?tls-ca=/a", "has a `tls-ca` without `tls=on`"),
        ("mysql://anna:secret@db-1:99999/locks", "is not a URL"),
    ] {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains(problem) && !error.contains("secret"), "{url}: {error}");
    }
}

#[tokio::test]
async fn tls_settings_that_protect_nothing_are_refused() {
    let built = |url: &str| {
        let builder = Coordinator::builder().kind(MysqlKind::new()).nodes([url]);
        builder.tls(Tls::new().server_name("db.example")).build().map(drop)
    };
    let refused = built("mysql://locks@db-1/locks").unwrap_err();
    assert!(format!("{refused:#}").contains("`?tls=on`"), "{refused:#}");
    for options in ["tls=on", "tls=on&tls-ca=/etc/ca.pem", "tls=off"] {
        assert!(built(&format!("mysql://locks@db-1/locks?{options}")).is_ok(), "{options}");
    }
}
