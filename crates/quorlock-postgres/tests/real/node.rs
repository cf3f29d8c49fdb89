//! Properties of PostgreSQL nodes: crashes, promotions, stopped processes, and errors of a database.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::WaiterId;
use quorlock::{
    Coordinator,
    doctor::Check,
    node::{Hint, HintListener, Node, NodeError, NodeErrorKind, NodeKind as _, Request, Response, Vote, ask},
};
use quorlock_postgres::PostgresKind;
use quorlock_testkit::{BuiltinServer, until};
use tokio::io::{self, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::requests::{TTL, acquire, cancel, claim, inspect, is_held_by, release};
use crate::support::{Server, backends, coordinator, node, rules, server, sql, waits};

/// Retries until there is an answer.
pub(crate) async fn answered(node: &dyn Node, key: &str) -> Response {
    let mut found = None;
    until("the server answers", async || {
        found = inspect(node, key).await.ok();
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn excludes(nodes: &[String]) {
    exclude(&coordinator(nodes.to_vec()), &coordinator(nodes.to_vec())).await;
}

/// Two clients hold a lock in turn, and the second is notified by the first.
pub(crate) async fn exclude(anna: &Coordinator, ben: &Coordinator) {
    let first = anna.lock("orders/42").acquire().await.unwrap();
    let waiting = ben.lock("orders/42");
    assert!(waiting.try_acquire().await.unwrap().is_none(), "another client holds it");
    let number = first.fencing_token();
    let (second, ()) = futures::join!(waiting.acquire(), async { drop(first.release().await) });
    let second = second.unwrap();
    assert!(second.fencing_token() > number, "a later holder has a larger number");
    second.check().unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
async fn two_redis_servers_and_a_database_are_a_quorum() {
    let Some(server) = server() else { return };
    let mut nodes = vec![server.url("")];
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        nodes.push(format!("redis://{}", listener.local_addr().unwrap()));
        drop(tokio::spawn(async move { BuiltinServer::new().serve(listener).await }));
    }
    excludes(&nodes).await;
    server.kill();
    excludes(&nodes).await;
}

#[tokio::test]
async fn with_fsync_off_each_start_is_a_new_history() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["fsync=off"]);
    let node = server.node();
    let before = acquire(&*node, &claim("a")).await.unwrap();
    server.kill();
    server.start_again();
    let after = answered(&*node, "a").await;
    assert_ne!(after.identity.id, before.identity.id, "it may have forgotten the lock");
    assert!(after.identity.age < TTL, "{:?}", after.identity);
}

#[tokio::test]
async fn a_promoted_standby_has_a_new_history_and_its_old_primary_no_vote() {
    let Some(primary) = server() else { return };
    let node = primary.node();
    let before = acquire(&*node, &claim("a")).await.unwrap();
    let standby = primary.standby();
    let refused = inspect(&*standby.node(), "a").await.unwrap_err();
    assert!(refused.kind() == NodeErrorKind::ReadOnly && refused.is_permanent(), "{refused:#}");
    assert!(refused.to_string().contains("the address of the primary"), "{refused:#}");
    // One address that always leads to the current primary.
    let (proxy, url) = primary.behind_proxy().await;
    let moving = crate::support::node(&url);
    assert_eq!(answered(&*moving, "a").await.identity.id, before.identity.id);
    standby.promote();
    proxy.lead_to(standby.address());
    let after = answered(&*moving, "a").await;
    assert_ne!(after.identity.id, before.identity.id, "what was granted may not have reached it");
    assert!(after.identity.age < TTL, "{:?}", after.identity);
    // The old primary keeps running, without what its successor has granted.
    proxy.lead_to(primary.address());
    until("the old primary is refused", async || {
        inspect(&*moving, "a").await.is_err_and(|error| error.kind() == NodeErrorKind::WrongServer)
    })
    .await;
}

#[tokio::test]
async fn late_statements_of_a_stopped_process_are_refused() {
    let Some(server) = server() else { return };
    // One connection, so that all requests use the one that stops.
    let node = node(&server.url("&connections=1"));
    inspect(&*node, "a").await.unwrap();
    let client = server.client().await;
    let pid = backends(&client).await[0];
    server.stop_backend(pid).unwrap();
    let late = claim("a");
    let unanswered = acquire(&*node, &late).await.unwrap_err();
    assert!(unanswered.may_have_acted(), "{unanswered:#}");
    let mut cancelled = None;
    until("another connection cancels it", async || {
        cancelled = cancel(&*node, &late).await.ok();
        cancelled.is_some()
    })
    .await;
    assert_eq!(cancelled.unwrap().vote, Vote::Free);
    server.continue_backend(pid).unwrap();
    until("the process has ended", async || !backends(&client).await.contains(&pid)).await;
    assert_eq!(inspect(&*node, "a").await.unwrap().vote, Vote::Free, "no late request was executed");
}

#[tokio::test]
async fn a_cut_connection_is_terminated_before_the_next_one_votes() {
    let Some(server) = server() else { return };
    let (proxy, url) = server.behind_proxy().await;
    let node = crate::support::node(&url);
    let before = claim("a");
    acquire(&*node, &before).await.unwrap();
    release(&*node, &before).await;
    let (client, other) = (server.client().await, server.client().await);
    let pid = backends(&client).await[0];
    // Another transaction locks the row, so that the request blocks in the server.
    other.batch_execute("BEGIN; SELECT FROM quorlock.locks FOR UPDATE").await.unwrap();
    let late = claim("a");
    let (cut, ()) = futures::join!(acquire(&*node, &late), async {
        until("the request waits for the row", async || waits(&client).await).await;
        proxy.cut();
    });
    let cut = cut.unwrap_err();
    assert!(matches!(cut, NodeError::Disconnected { .. }), "{cut:#}");
    assert!(cut.may_have_acted());
    // Once it answers again, the previous backend is gone, though the row is still locked.
    answered(&*node, "b").await;
    assert!(!backends(&client).await.contains(&pid), "its requests can no longer be executed");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(!is_held_by(&inspect(&*node, "a").await.unwrap(), &late));
}

#[tokio::test]
async fn a_locked_row_delays_only_its_own_lock_and_briefly() {
    let Some(server) = server() else { return };
    let node = server.node();
    let before = claim("a");
    acquire(&*node, &before).await.unwrap();
    release(&*node, &before).await;
    let other = server.client().await;
    other.batch_execute("BEGIN; SELECT FROM quorlock.locks FOR UPDATE").await.unwrap();
    let busy = acquire(&*node, &claim("a")).await.unwrap_err();
    assert!(busy.kind() == NodeErrorKind::Busy && !busy.may_have_acted(), "{busy:#}");
    let coordinator = coordinator(vec![server.url("")]);
    until("the error says why before a client with a short TTL has stopped listening", async || {
        let error = coordinator.lock("a").ttl(Duration::from_secs(2)).try_acquire().await.unwrap_err();
        format!("{error:#}").contains("another transaction")
    })
    .await;
    assert_eq!(acquire(&*node, &claim("b")).await.unwrap().vote, Vote::Granted);
}

#[tokio::test]
async fn a_pooler_is_refused() {
    if server().is_none() {
        return;
    }
    // It forwards no password.
    let rules = "local all all trust\nhost all all 127.0.0.1/32 trust\n";
    let server = Server::with_files(&[], &[("pg_hba.conf", rules)]);
    let pooler = pooler(server.address()).await;
    let refused = inspect(&*node(&server.engine().url(pooler)), "a").await.unwrap_err();
    assert_eq!(refused.kind(), NodeErrorKind::WrongServer, "{refused:#}");
    assert!(refused.to_string().contains("a pooler is in between"), "{refused:#}");
}

/// Starts a proxy that greets with the PID of another process than the server's.
async fn pooler(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            drop(tokio::spawn(async move { drop(pool(client, server).await) }));
        }
    }));
    address
}

async fn pool(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    const OTHER: i32 = 4711;

    let mut server = TcpStream::connect(server).await?;
    // The startup message, and the answers up to the greeting.
    let length = client.read_u32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut startup).await?;
    server.write_u32(length).await?;
    server.write_all(&startup).await?;
    loop {
        let (kind, length) = (server.read_u8().await?, server.read_u32().await?);
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        server.read_exact(&mut body).await?;
        if kind == b'K' {
            body[..4].copy_from_slice(&OTHER.to_be_bytes());
        }
        client.write_u8(kind).await?;
        client.write_u32(length).await?;
        client.write_all(&body).await?;
        if kind == b'Z' {
            return io::copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
    }
}

/// The error of a first request to this address.
async fn refused(url: &str) -> NodeError {
    let refused = inspect(&*node(url), "a").await.unwrap_err();
    assert!(!refused.may_have_acted(), "{refused:#}");
    refused
}

#[tokio::test]
async fn each_fault_of_a_database_is_reported_with_a_remedy() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    let as_app = server.url("").replace("postgres@/", "app:hunter2@/");
    let assert_error = |error: &NodeError, kind: NodeErrorKind, words: &[&str]| {
        let message = format!("{error:#}");
        assert!(error.kind() == kind, "{kind:?}: {message}");
        assert!(words.iter().all(|word| message.contains(word)) && !message.contains("hunter2"), "{message}");
    };
    assert_error(&refused(&as_app).await, NodeErrorKind::Login, &["app"]);
    client.batch_execute("CREATE USER app").await.unwrap();
    let error = refused(&as_app).await;
    let right = NodeErrorKind::PermissionDenied(quorlock::node::Access::Operation);
    assert_error(&error, right, &["GRANT USAGE ON SCHEMA quorlock TO \"app\"", "docs/postgres.md"]);
    let missing = server.url("").replace("/postgres?", "/nowhere?");
    assert_error(&refused(&missing).await, NodeErrorKind::Misconfigured, &["create it"]);
    let nowhere = "postgres://postgres@/postgres?host=/nowhere";
    assert_error(&refused(nowhere).await, NodeErrorKind::Unreachable, &["`/nowhere/.s.PGSQL.5432`"]);
    client.batch_execute("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC").await.unwrap();
    assert_error(&refused(&as_app).await, right, &["`GRANT CONNECT ON DATABASE"]);
    client
        .batch_execute("GRANT CONNECT ON DATABASE postgres TO app; ALTER USER app CONNECTION LIMIT 0")
        .await
        .unwrap();
    assert_error(&refused(&as_app).await, NodeErrorKind::Busy, &["the connection limit of the role"]);
    client.batch_execute("ALTER USER app CONNECTION LIMIT -1").await.unwrap();
    client.batch_execute("CREATE DATABASE closed ALLOW_CONNECTIONS false").await.unwrap();
    let closed = server.url("").replace("/postgres?", "/closed?");
    assert_error(&refused(&closed).await, NodeErrorKind::Misconfigured, &["ALLOW_CONNECTIONS true"]);

    // The schema is created by another user, and the privileges in SECURITY.md suffice.
    inspect(&*server.node(), "a").await.unwrap();
    let right = NodeErrorKind::PermissionDenied(quorlock::node::Access::Key);
    assert_error(&refused(&as_app).await, right, &["GRANT USAGE ON SCHEMA quorlock"]);
    client.batch_execute("GRANT USAGE ON SCHEMA quorlock TO app").await.unwrap();
    assert_error(&refused(&as_app).await, right, &["GRANT SELECT, INSERT, UPDATE, DELETE"]);
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO app";
    client.batch_execute(grant).await.unwrap();
    excludes(std::slice::from_ref(&as_app)).await;

    // As for logical replication: it wants a key of each table that is updated.
    client.batch_execute("CREATE PUBLICATION everything FOR ALL TABLES").await.unwrap();
    excludes(std::slice::from_ref(&as_app)).await;

    client.batch_execute("ALTER TABLE quorlock.locks ENABLE ROW LEVEL SECURITY").await.unwrap();
    assert_error(&refused(&as_app).await, right, &["DISABLE ROW LEVEL SECURITY", "\"locks\""]);
    client.batch_execute("ALTER TABLE quorlock.locks DISABLE ROW LEVEL SECURITY").await.unwrap();

    client.batch_execute("UPDATE quorlock.meta SET version = 2").await.unwrap();
    assert_error(&refused(&as_app).await, NodeErrorKind::Unsupported, &["version 2", "update this program"]);
    client
        .batch_execute("UPDATE quorlock.meta SET version = 1; ALTER TABLE quorlock.locks SET UNLOGGED")
        .await
        .unwrap();
    assert_error(&refused(&as_app).await, NodeErrorKind::Misconfigured, &["unlogged", "SET LOGGED"]);
    client.batch_execute("ALTER TABLE quorlock.locks SET LOGGED").await.unwrap();
    let change = "UPDATE pg_proc SET prosrc = replace(prosrc, 'expires > t', 'expires >= t')
        WHERE proname LIKE '%is_cancelled'";
    assert_eq!(client.execute(change, &[]).await.unwrap(), 1);
    assert_error(
        &refused(&as_app).await,
        NodeErrorKind::Misconfigured,
        &[rules(), "were changed", "drop those that begin so"],
    );
    client.batch_execute("DROP SCHEMA quorlock CASCADE").await.unwrap();
    inspect(&*server.node(), "a").await.unwrap();
    client.batch_execute("ALTER TABLE quorlock.locks RENAME token TO owner").await.unwrap();
    assert_error(&refused(&server.url("")).await, NodeErrorKind::Misconfigured, &["rename it, or drop it"]);
    client.batch_execute("DROP SCHEMA quorlock CASCADE; CREATE SCHEMA quorlock").await.unwrap();
    assert_error(&refused(&server.url("")).await, NodeErrorKind::Misconfigured, &["rename it, or drop it"]);
}

/// As monitoring tools and ORMs set it: every name that the server prints is quoted.
#[tokio::test]
async fn a_server_that_quotes_all_names_has_the_same_schema() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["quote_all_identifiers=on"]);
    for node in [server.node(), server.node()] {
        acquire(&*node, &claim("a")).await.unwrap();
    }
}

#[tokio::test]
async fn synchronous_commit_is_enabled_where_it_is_off() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["synchronous_commit=off"]);
    let node = server.node();
    for _ in 0..3 {
        let holder = claim("a");
        acquire(&*node, &holder).await.unwrap();
        server.kill();
        server.start_again();
        let after = answered(&*node, "a").await;
        assert!(is_held_by(&after, &holder), "granted, and forgotten: {after:?}");
        release(&*node, &holder).await;
    }
}

async fn set(client: &tokio_postgres::Client, setting: &str) {
    client.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
}

#[tokio::test]
async fn a_grant_waits_for_a_synchronous_standby_also_where_others_do_not() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["synchronous_commit=local"]);
    let (node, client) = (server.node(), server.client().await);
    node.ready().await.unwrap();
    set(&client, "synchronous_standby_names = '*'").await;
    // The setting reaches the processes some time later, and each grant waits until it is taken back.
    let waits = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let waited = async {
        until("a grant waits for the standby, which is missing", async || {
            !client.query(waits, &[]).await.unwrap().is_empty()
        })
        .await;
    };
    let granting = async {
        for round in 0.. {
            drop(acquire(&*node, &claim(&format!("{round}"))).await);
        }
    };
    futures::future::select(Box::pin(waited), Box::pin(granting)).await;
    until("the next connection says why", async || {
        let error = acquire(&*node, &claim("a")).await.unwrap_err();
        error.kind() == NodeErrorKind::Busy && error.to_string().contains("synchronous standby")
    })
    .await;
    set(&client, "synchronous_standby_names = ''").await;
    answered(&*node, "a").await;
}

#[tokio::test]
async fn standbys_that_may_be_synchronous_are_not_counted_as_others() {
    let Some(server) = server() else { return };
    server.node().ready().await.unwrap();
    let user = "CREATE USER app; GRANT USAGE ON SCHEMA quorlock TO app;
        GRANT ALL ON ALL TABLES IN SCHEMA quorlock TO app";
    server.client().await.batch_execute(user).await.unwrap();
    // Restarts the server where its package cannot copy it.
    let _standby = server.standby();
    let client = server.client().await;
    let replicas = async |user: &str| {
        let node = node(&server.url("").replace("postgres@", &format!("{user}@")));
        node.examine("doctor".into()).await.unwrap().replicas
    };
    until("the standby follows", async || replicas("app").await == Some(1)).await;
    set(&client, "synchronous_standby_names = '*'").await;
    until("it is synchronous", async || replicas("postgres").await == Some(0)).await;
    assert_eq!(replicas("app").await, None, "this user may not know");
}

#[tokio::test]
async fn rows_of_unused_locks_are_deleted_in_time() {
    let Some(server) = server() else { return };
    let node = server.node();
    inspect(&*node, "a").await.unwrap();
    let client = server.client().await;
    // Leftovers of locks that are free, and some that are held.
    client
        .batch_execute(
            &sql("INSERT INTO quorlock.locks SELECT convert_to('old/' || i, 'UTF8'), NULL, NULL FROM generate_series(1, 1000) i;
             INSERT INTO quorlock.locks SELECT convert_to('held/' || i, 'UTF8'), '', rules.clock() + 600000000
                FROM generate_series(1, 10) i;
             INSERT INTO quorlock.tombstones SELECT convert_to('old/' || i, 'UTF8'), '', rules.clock()
                FROM generate_series(1, 1000) i;
             INSERT INTO quorlock.locks (key, told)
                VALUES ('turn/now', rules.clock()), ('turn/past', rules.clock() - 61000000);
             INSERT INTO quorlock.waiters (key, waiter, turn_key, channel, since, expires, context)
                VALUES ('turn/now', '1', '', 'c', 0, rules.clock(), ''),
                    ('turn/past', '1', '', 'c', 0, rules.clock() - 61000000, '')"),
        )
        .await
        .unwrap();
    let count = async |what: &str| -> i64 {
        client.query_one(&format!("SELECT count(*) FROM quorlock.{what}"), &[]).await.unwrap().get(0)
    };
    until("the old ones are gone", async || {
        inspect(&*node, "a").await.unwrap();
        count("locks WHERE substr(key, 1, 4) = 'old/' OR key = 'turn/past'").await == 0
            && count("waiters WHERE key = 'turn/past'").await == 0
            && count("tombstones").await == 0
    })
    .await;
    // The next in the queue would take the turn of the first, and one that is late would lose its place.
    assert_eq!((count("locks WHERE key = 'turn/now'").await, count("waiters").await), (1, 1));
    assert_eq!(count("locks WHERE substr(key, 1, 5) = 'held/'").await, 10);
}

#[tokio::test]
async fn a_release_notifies_only_the_client_whose_turn_it_is() {
    let Some(server) = server() else { return };
    let connected = async || {
        let node = server.node();
        until("a connection", async || node.ready().await.is_ok()).await;
        node
    };
    let (anna, holder) = (connected().await, claim("a"));
    acquire(&*anna, &holder).await.unwrap();
    let mut waiting = Vec::new();
    for waiter in 0..5 {
        let (node, ear) = (connected().await, Arc::new(HintRecorder::default()));
        node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
        assert!(is_held_by(&acquire(&*node, &claim("a")).await.unwrap(), &holder));
        let elapsed = TTL / (waiter + 1);
        let place = Request::enqueue("a".into(), WaiterId::new(u64::from(waiter)), elapsed, TTL, TTL);
        assert!(matches!(ask(&*node, place).await.unwrap().vote, Vote::Queued(_)));
        waiting.push((node, ear));
    }
    release(&*anna, &holder).await;
    until("the first is notified", async || waiting[0].1.changes() > 0).await;
    for (node, _) in &waiting {
        // Earlier notifications arrive before the answer to this.
        inspect(&**node, "b").await.unwrap();
    }
    assert_eq!(waiting.iter().map(|(_, ear)| ear.changes()).collect::<Vec<_>>(), [1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_reader_that_a_writer_hinders_hears_that_the_writer_has_withdrawn_at_that_moment() {
    let Some(server) = server() else { return };
    let (node, ear, waiter) = (server.node(), Arc::new(HintRecorder::default()), WaiterId::new(1));
    node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
    ask(&*node, Request::AnnounceWriter { key: "a".into(), waiter, patience: TTL }).await.unwrap();
    // The reader has seen the writer, and is not refused yet.
    let (client, reader) = (server.client().await, server.client().await);
    let share = "BEGIN; SELECT rules.acquire_shared('a', 'a', repeat('1', 40)::bytea, 60000000, NULL, NULL)";
    reader.batch_execute(&sql(share)).await.unwrap();
    let (withdraw, has_withdrawn) = (Request::WithdrawWriter { key: "a".into(), waiter }, Cell::new(false));
    let withdrawing = async {
        until("the writer withdraws", async || ask(&*node, withdraw.clone()).await.is_ok()).await;
        has_withdrawn.set(true);
    };
    let refused = async {
        let waits_or_not = async || has_withdrawn.get() || waits(&client).await;
        until("it waits for the reader, or does not", waits_or_not).await;
        reader.batch_execute("COMMIT").await.unwrap();
    };
    futures::join!(withdrawing, refused);
    until("the reader is notified", async || ear.changes() > 0).await;
}

/// Counts the changes of which it is notified.
#[derive(Debug, Default)]
pub(crate) struct HintRecorder(AtomicU64);

impl HintRecorder {
    pub(crate) fn changes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl HintListener for HintRecorder {
    fn on_hint(&self, hint: Hint<'_>) {
        if matches!(hint, Hint::Invalidated(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn a_refusal_that_is_repeated_writes_nothing() {
    let Some(server) = server() else { return };
    let node = server.node();
    let holder = claim("a");
    acquire(&*node, &holder).await.unwrap();
    assert!(is_held_by(&acquire(&*node, &claim("a")).await.unwrap(), &holder));
    let client = server.client().await;
    let row = async || -> (String, String) {
        let row = client.query_one("SELECT xmin::text, xmax::text FROM quorlock.locks", &[]).await.unwrap();
        (row.get(0), row.get(1))
    };
    let before = row().await;
    for _ in 0..10 {
        assert!(is_held_by(&acquire(&*node, &claim("a")).await.unwrap(), &holder));
    }
    assert_eq!(row().await, before, "refused requests only read");
}

#[tokio::test]
async fn a_refused_statement_has_a_kind_and_was_not_executed() {
    let Some(server) = server() else { return };
    let node = server.node();
    inspect(&*node, "a").await.unwrap();
    let client = server.client().await;
    for (code, kind, words) in [
        ("53100", NodeErrorKind::OutOfSpace, "no disk or memory left"),
        ("25006", NodeErrorKind::ReadOnly, "the address of the primary"),
        (
            "42501",
            NodeErrorKind::PermissionDenied(quorlock::node::Access::Key),
            "GRANT USAGE ON SCHEMA quorlock",
        ),
        ("40P01", NodeErrorKind::Busy, "another transaction"),
        ("QL001", NodeErrorKind::WrongData, "delete it"),
        ("QL002", NodeErrorKind::WrongData, "quorlock.counters"),
        ("XX000", NodeErrorKind::Other, "as it says"),
        // It ends the connection.
        ("42P01", NodeErrorKind::Misconfigured, "drop it while no lock is held"),
    ] {
        let broken = format!(
            "CREATE OR REPLACE FUNCTION rules.inspect(k bytea, c bytea) RETURNS rules.answer LANGUAGE plpgsql AS $$
             BEGIN RAISE 'as it says' USING ERRCODE = '{code}'; END $$"
        );
        client.batch_execute(&sql(&broken)).await.unwrap();
        let error = inspect(&*node, "a").await.unwrap_err();
        assert!(error.kind() == kind && !error.may_have_acted(), "{code}: {error:?}");
        let message = format!("{error:#}");
        assert!(message.contains(words) && message.contains("as it says"), "{message}");
    }
}

#[tokio::test]
async fn a_new_database_votes_once_it_is_older_than_any_lock_may_be() {
    let Some(server) = server() else { return };
    let builder = Coordinator::builder().kind(PostgresKind::new()).nodes([server.url("")]);
    let coordinator = builder.max_ttl(Duration::from_secs(3)).build().unwrap();
    let lock = coordinator.lock("orders/42");
    assert!(lock.try_acquire().await.is_err(), "an empty database may have replaced one that was lost");
    until("it is old enough", async || lock.try_acquire().await.is_ok_and(|lease| lease.is_some())).await;
    let client = server.client().await;
    let noted = client.query_one("SELECT millis FROM quorlock.max_ttls", &[]).await.unwrap();
    assert_eq!(noted.get::<_, i64>(0), 3000, "other clients must know how long to wait");
}

#[tokio::test]
async fn i37_a_larger_max_ttl_that_comes_later_is_learnt_by_those_who_are_connected() {
    let Some(server) = server() else { return };
    let with = |seconds| {
        let builder = Coordinator::builder().kind(PostgresKind::new()).nodes([server.url("")]);
        builder.ttl(Duration::from_secs(3)).max_ttl(Duration::from_secs(seconds)).build().unwrap()
    };
    let found = |coordinator: &Coordinator| {
        let noticed = coordinator.warnings().into_iter();
        noticed.filter(|finding| finding.check == Check::MaxTtl).map(|finding| finding.evidence).next()
    };
    let shorter = with(3);
    drop(shorter.lock("orders/42").inspect().await);
    assert_eq!(found(&shorter), None);
    let longer = with(3600);
    drop(longer.lock("orders/42").inspect().await);
    let evidence = found(&longer).unwrap();
    assert!(evidence.contains("max_ttl is 1h here, and another client has 3s"), "{evidence}");
    until("the other one learns of it", async || found(&shorter).is_some()).await;
    let evidence = found(&shorter).unwrap();
    assert!(evidence.contains("max_ttl is 3s here, and another client has 1h"), "{evidence}");
}

#[test]
fn two_addresses_of_one_server_are_one_node() {
    let one = PostgresKind::new().parse("postgres://anna@DB-7/a").unwrap();
    let other = PostgresKind::new().parse("postgresql://ben@db-7:5432/b?connections=1").unwrap();
    assert_eq!(one.servers(), other.servers());
    let error = Coordinator::builder()
        .kind(PostgresKind::new())
        .nodes(["postgres://db-7/a", "postgres://db-7/b"])
        .build();
    assert!(error.is_err());
}
