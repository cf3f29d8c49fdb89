//! Properties of SQLite nodes: boots, power loss, bad files, and other programs that use the file.

use std::fs;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::{FenceHint, FencingToken};
use quorlock::{
    Coordinator, RestartGuard, Wait,
    node::{
        AddressError, Expiry, Hint, HintListener, Kinds, Node as _, NodeError, NodeErrorKind, NodeKind,
        Request, Responder, Seams, SharedRequest, Vote, ask,
    },
    runtime::{Clock as _, Mutex, SystemClock},
};
use quorlock_sqlite::{SqliteKind, SqliteNode};
use quorlock_testkit::{Disk, eventually, until};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::requests::{TTL, acquire, cancel, claim, inspect, is_held_by, release};

/// Returns where a database may be created, in a folder of its own.
pub(crate) fn new_file() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    (directory, path)
}

pub(crate) fn node(path: &Path) -> SqliteNode {
    booted(path, "this")
}

pub(crate) fn booted(path: &Path, boot: &str) -> SqliteNode {
    SqliteNode::booted_as(boot, "sqlite", path.to_owned(), &Seams::default()).unwrap()
}

#[tokio::test]
async fn one_of_many_handles_gets_a_key() {
    let (_directory, path) = new_file();
    for round in 0..20 {
        let nodes: Vec<_> = (0..4).map(|_| node(&path)).collect();
        let claims: Vec<_> = nodes.iter().map(|_| claim(&format!("orders/{round}"))).collect();
        let asked = nodes.iter().zip(&claims).map(|(node, claim)| acquire(node, claim));
        let votes = join_all(asked).await.into_iter().map(|response| response.unwrap().vote);
        assert_eq!(votes.filter(|vote| *vote == Vote::Granted).count(), 1);
    }
}

#[tokio::test]
async fn locks_outlive_the_process_and_not_the_boot() {
    let (_directory, path) = new_file();
    let (holder, cancelled) = (claim("a"), claim("b"));
    let first = acquire(&booted(&path, "one"), &holder).await.unwrap();
    cancel(&booted(&path, "one"), &cancelled).await.unwrap();
    let refused = acquire(&booted(&path, "one"), &claim("a")).await.unwrap();
    assert!(is_held_by(&refused, &holder), "{refused:?}");
    assert_eq!(acquire(&booted(&path, "one"), &cancelled).await.unwrap().vote, Vote::Free);
    let after = acquire(&booted(&path, "two"), &claim("a")).await.unwrap();
    assert_eq!(after.vote, Vote::Granted);
    assert_ne!(after.identity.id, first.identity.id);
    assert!(after.identity.age > TTL * 1000, "no earlier grant has a holder");
    assert!(after.fencing_token > first.fencing_token);
}

/// Simulates a host without a battery for its clock that has lost power.
#[tokio::test]
async fn fencing_tokens_grow_over_a_boot_that_has_lost_counters_and_the_time() {
    let (_directory, path) = new_file();
    let first = acquire(&booted(&path, "one"), &claim("a")).await.unwrap().fencing_token.unwrap();
    let database = Connection::open(&path).unwrap();
    // Rows written without a flush may be lost.
    assert_eq!(database.execute("DELETE FROM locks", []).unwrap(), 2, "a lock and a counter");
    let reserve: u64 = database.query_row("SELECT reserve FROM about", [], |row| row.get(0)).unwrap();
    assert!(first.get() < reserve);
    let behind = SystemClock::default().wall().saturating_sub(Duration::from_secs(120));
    let fence_hint = Some(FenceHint::at(behind, None, TTL));
    let request = Request::Acquire { claim: claim("a"), ttl: TTL, fence_hint };
    let after = ask(&booted(&path, "two"), request).await.unwrap();
    assert_eq!(after.fencing_token, FencingToken::new(reserve + 1));
}

#[tokio::test]
async fn an_answered_number_is_never_above_the_one_on_disk() {
    let (_directory, path) = new_file();
    let node = node(&path);
    for ahead in [0, 1, 20] {
        let (claim, lead) = (claim(&format!("{ahead}")), Duration::from_secs(60 * ahead));
        let fence_hint = Some(FenceHint::at(SystemClock::default().wall() + lead, None, lead));
        let request = Request::Acquire { claim, ttl: TTL, fence_hint };
        let number = ask(&node, request).await.unwrap().fencing_token.unwrap();
        let database = Connection::open(&path).unwrap();
        let reserve: u64 = database.query_row("SELECT reserve FROM about", [], |row| row.get(0)).unwrap();
        assert!(number.get() <= reserve, "{number} was answered, but {reserve} is on disk");
    }
}

#[tokio::test]
async fn a_database_replaced_during_use_has_a_new_identity() {
    let (directory, path) = new_file();
    let node = node(&path);
    let first = acquire(&node, &claim("a")).await.unwrap();
    for file in ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db-alive"] {
        fs::remove_file(directory.path().join(file)).unwrap();
    }
    let second = acquire(&node, &claim("a")).await.unwrap();
    assert_eq!(second.vote, Vote::Granted);
    assert_ne!(second.identity.id, first.identity.id);
    assert!(second.identity.age < TTL, "the lock may still be held: {second:?}");
}

/// As by someone who takes the files for leftovers. SQLite itself goes on with those that it has open.
#[tokio::test]
async fn a_log_deleted_under_a_holder_is_noticed_and_begins_a_new_history() {
    for is_in_the_database in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        let node = node(&path);
        let first = acquire(&node, &claim("a")).await.unwrap();
        if is_in_the_database {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            Connection::open(&path).unwrap().query_row(checkpoint, [], |_| Ok(())).unwrap();
            acquire(&node, &claim("b")).await.unwrap();
        }
        for file in ["locks.db-wal", "locks.db-shm"] {
            fs::remove_file(directory.path().join(file)).unwrap();
        }
        let second = acquire(&node, &claim("b")).await.unwrap();
        assert_eq!(second.vote, Vote::Granted, "what was not in the database is gone");
        assert!(second.identity.id != first.identity.id && second.identity.age < TTL, "{second:?}");
    }
}

#[tokio::test]
async fn an_index_deleted_under_a_holder_is_made_anew_from_the_log() {
    let (directory, path) = new_file();
    let node = node(&path);
    let first = acquire(&node, &claim("a")).await.unwrap();
    fs::remove_file(directory.path().join("locks.db-shm")).unwrap();
    let second = acquire(&node, &claim("a")).await.unwrap();
    assert!(matches!(second.vote, Vote::Held(_)) && second.identity.id == first.identity.id, "{second:?}");
    assert!(directory.path().join("locks.db-shm").exists(), "others see what it writes");
}

/// Its last program copies the log into it, and deletes it.
#[tokio::test]
async fn a_log_that_sqlite_has_deleted_begins_no_new_history() {
    let (directory, path) = new_file();
    let earlier = node(&path);
    let first = acquire(&earlier, &claim("a")).await.unwrap();
    drop(earlier);
    // The node's thread ends some time after it is dropped.
    until("the log is deleted", async || {
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM locks", [], |_| Ok(())).unwrap();
        !directory.path().join("locks.db-wal").exists()
    })
    .await;
    let second = acquire(&node(&path), &claim("a")).await.unwrap();
    assert!(matches!(second.vote, Vote::Held(_)) && second.identity.id == first.identity.id, "{second:?}");
}

#[tokio::test]
async fn a_backup_of_an_earlier_boot_that_is_restored_in_this_one_lacks_its_locks() {
    let (directory, path) = new_file();
    acquire(&booted(&path, "before"), &claim("a")).await.unwrap();
    let kept = directory.path().join("kept.db");
    Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [kept.to_str()]).unwrap();
    let node = booted(&path, "now");
    let first = acquire(&node, &claim("a")).await.unwrap().identity;
    assert!(first.age > TTL, "locks of an earlier boot are void: {first:?}");
    for file in ["locks.db-wal", "locks.db-shm"] {
        fs::remove_file(directory.path().join(file)).unwrap();
    }
    fs::rename(kept, &path).unwrap();
    for node in [node, booted(&path, "now")] {
        let after = acquire(&node, &claim("b")).await.unwrap().identity;
        assert!(after.id != first.id && after.age < TTL, "{after:?}, {first:?}");
    }
}

#[tokio::test]
async fn a_copy_beside_its_database_is_a_new_history() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("locks.db"), directory.path().join("copy.db"));
    let node = node(&path);
    let before = acquire(&node, &claim("a")).await.unwrap().identity;
    Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [copy.to_str()]).unwrap();
    let copied = acquire(&self::node(&copy), &claim("b")).await.unwrap().identity;
    assert!(copied.id != before.id && copied.age < TTL, "{copied:?}");
    assert_eq!(acquire(&node, &claim("c")).await.unwrap().identity.id, before.id);
}

#[tokio::test]
async fn a_file_with_a_second_name_is_refused_by_new_and_by_connected_clients() {
    let (directory, path) = new_file();
    let other = directory.path().join("other.db");
    let connected = node(&path);
    acquire(&connected, &claim("a")).await.unwrap();
    fs::hard_link(&path, &other).unwrap();
    for node in [&connected, &node(&path), &node(&other)] {
        let refused = acquire(node, &claim("b")).await.unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().contains("2 names"), "{refused:#}");
    }
    fs::remove_file(&other).unwrap();
    acquire(&connected, &claim("b")).await.unwrap();
}

/// The mark of the holder, by which others know that it is alive, outlives the opening of the database.
#[tokio::test]
async fn a_holder_that_has_opened_the_database_again_still_holds_its_locks() {
    let (directory, path) = new_file();
    let other = directory.path().join("other.db");
    let process = || {
        let builder =
            Coordinator::builder().kind(SqliteKind::new()).nodes([format!("sqlite://{}", path.display())]);
        builder.kept_by_children(true).build().unwrap()
    };
    let (holder, stranger) = (process(), process());
    let lease = holder.lock("a").acquire().await.unwrap();
    fs::hard_link(&path, &other).unwrap();
    holder.lock("b").wait(Wait::Never).acquire().await.unwrap_err();
    fs::remove_file(&other).unwrap();
    for process in [&stranger, &holder] {
        let refused = process.lock("a").wait(Wait::Never).acquire().await.unwrap_err();
        assert!(refused.to_string().contains("is held by"), "{refused}");
        let next = process.lock("b").wait(Wait::Never).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    lease.release().await.unwrap();
}

#[tokio::test]
async fn expired_rows_are_deleted_over_time() {
    let (_directory, path) = new_file();
    let node = node(&path);
    acquire(&node, &claim("first")).await.unwrap();
    let database = Connection::open(&path).unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) \
                  INSERT INTO locks (key, record, dead_at) SELECT 'old/' || i, '', 1 FROM n";
    database.execute(insert, []).unwrap();
    let left =
        || database.query_row("SELECT count(*) FROM locks WHERE dead_at = 1", [], |row| row.get::<_, u32>(0));
    let mut before = left().unwrap();
    for round in 0..10 {
        acquire(&node, &claim(&format!("new/{round}"))).await.unwrap();
        let now = left().unwrap();
        assert!(before - now <= 20, "one request deletes a few");
        before = now;
    }
    assert_eq!(before, 0);
}

pub(crate) async fn refused(path: &Path) -> NodeError {
    let error = acquire(&node(path), &claim("a")).await.unwrap_err();
    assert!(!error.may_have_acted(), "{error:#}");
    error
}

#[tokio::test]
async fn an_unsuitable_file_is_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text"), "this is no database. ".repeat(60)).unwrap();
    let other = Connection::open(at("other")).unwrap();
    other.execute_batch("CREATE TABLE orders (id INTEGER)").unwrap();
    acquire(&node(&at("newer")), &claim("a")).await.unwrap();
    Connection::open(at("newer")).unwrap().pragma_update(None, "user_version", 7).unwrap();
    acquire(&node(&at("changed")), &claim("a")).await.unwrap();
    Connection::open(at("changed")).unwrap().execute_batch("DROP TABLE locks").unwrap();
    fs::create_dir(at("folder")).unwrap();
    for (name, kind, words) in [
        ("text", NodeErrorKind::WrongServer, "is not a database of SQLite: name another file"),
        (
            "other",
            NodeErrorKind::WrongServer,
            "is the database of another program: name a file for locks alone",
        ),
        ("newer", NodeErrorKind::Unsupported, "its tables are of version 7, this program knows 1"),
        ("changed", NodeErrorKind::WrongServer, "when no lock is held, delete the file"),
        ("folder", NodeErrorKind::Misconfigured, "is a directory: name a file in it"),
        ("missing/locks.db", NodeErrorKind::Misconfigured, "there is no directory"),
    ] {
        let error = refused(&at(name)).await;
        assert!(error.kind() == kind && error.to_string().contains(words), "{name}: {error:#}");
    }
    assert_eq!(other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)), Ok(1));
}

/// Mounts a small disk over a folder. `None`, with a message, if the user may not mount one.
fn small_disk(folder: &TempDir) -> Option<Disk> {
    let disk = Disk::mount(folder.path(), 1);
    // Not `eprintln`, whose output the harness captures while a test passes.
    disk.inspect_err(|reason| drop(writeln!(std::io::stderr(), "skipped: {reason}"))).ok()
}

#[tokio::test]
async fn a_full_disk_is_reported_with_a_remedy_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = small_disk(&directory) else { return };
    let (node, holder) = (node(&directory.path().join("locks.db")), claim("a"));
    acquire(&node, &holder).await.unwrap();
    disk.fill().unwrap();
    let mut error = None;
    for round in 0..200 {
        error = acquire(&node, &claim(&format!("{round}"))).await.err();
        if error.is_some() {
            break;
        }
    }
    let error = error.unwrap();
    assert_eq!(error.kind(), NodeErrorKind::OutOfSpace, "{error:#}");
    assert!(error.to_string().contains("is full: make room there; nothing was changed"), "{error:#}");
    assert!(!error.may_have_acted());
    let seen = inspect(&node, "a").await.unwrap();
    assert!(is_held_by(&seen, &holder), "{seen:?}");
    disk.free().unwrap();
    assert_ne!(release(&node, &holder).await, Vote::Free);
}

#[tokio::test]
async fn a_read_only_file_system_is_reported_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = small_disk(&directory) else { return };
    // Its thread ends and closes the file some time after the node is dropped.
    let there = node(&directory.path().join("locks.db"));
    acquire(&there, &claim("a")).await.unwrap();
    drop(there);
    eventually("the file system takes no writes", TTL, async || disk.make_read_only()).await.unwrap();
    for name in ["locks.db", "new.db"] {
        let error = refused(&directory.path().join(name)).await;
        assert_eq!(error.kind(), NodeErrorKind::ReadOnly, "{name}: {error:#}");
        assert!(error.to_string().contains("takes no writes: make the file"), "{name}: {error:#}");
    }
}

#[tokio::test]
async fn an_endless_transaction_of_another_program_is_reported() {
    let (_directory, path) = new_file();
    let node = node(&path);
    acquire(&node, &claim("a")).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = acquire(&node, &claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Busy, "{error:#}");
    assert!(!error.may_have_acted() && error.to_string().contains("another program keeps"), "{error:#}");
    // Before a client with a short TTL has stopped listening.
    let coordinator =
        Coordinator::builder().kind(SqliteKind::new()).nodes([format!("sqlite://{}", path.display())]);
    let coordinator = coordinator.restart_guard(RestartGuard::Off).build().unwrap();
    eventually("the error says why", TTL, async || {
        let error = coordinator.lock("b").ttl(Duration::from_secs(2)).try_acquire().await.unwrap_err();
        format!("{error:#}").contains("another program keeps")
    })
    .await
    .unwrap();
    // A request that only reads does not wait.
    let seen = inspect(&node, "a").await.unwrap();
    assert!(matches!(&seen.vote, Vote::Held(holding) if matches!(holding.expiry, Expiry::In(_))), "{seen:?}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(acquire(&node, &claim("b")).await.unwrap().vote, Vote::Granted);
}

#[test]
fn urls_are_read_and_written() {
    let parse = |url| SqliteKind::new().parse(url);
    let address = parse("SQLITE:///var//lib/./locks%2Ca.db").unwrap();
    assert_eq!(address.to_string(), "sqlite:///var/lib/locks%2Ca.db");
    assert_eq!(address.servers(), ["/var/lib/locks,a.db"]);
    for same in ["sqlite:/var/lib/locks%2Ca.db", "sqlite:////var/lib/locks%2Ca.db"] {
        assert_eq!(parse(same).unwrap().to_string(), address.to_string(), "{same}");
    }
    let list = "sqlite:///a%2Cb,redis://c,sqlite:///d,sqlite:/e,sqlite:6379";
    let kinds = Kinds::default().with(SqliteKind::new());
    let urls = ["sqlite:///a%2Cb", "redis://c", "sqlite:///d", "sqlite:/e", "sqlite:6379"];
    assert_eq!(kinds.split(list).unwrap(), urls);
    for url in ["sqlite:locks.db", "sqlite://locks.db", "sqlite:./locks.db", "sqlite://~/locks.db"] {
        let refused =
            Coordinator::builder().kinds(kinds.clone()).nodes([url]).build().unwrap_err().to_string();
        assert!(refused.contains("leads to another file in every directory"), "{url}: {refused}");
        assert!(refused.contains("sqlite://$PWD/quorlock.db"), "{url}: {refused}");
    }
    for (url, problem) in [
        ("sqlite:", "has no path"),
        ("sqlite::memory:", "names a database in memory, which no other program sees"),
        ("sqlite://:memory:", "names a database in memory, which no other program sees"),
        ("sqlite:///a/../b", "has a `..` in its path"),
        ("sqlite:///a%2", "has a `%` that is not followed by two hex digits"),
        ("sqlite:///a/", "names a directory, and no file in it"),
    ] {
        let error = parse(url).unwrap_err();
        let cure = "write `sqlite:///var/lib/quorlock.db`";
        assert_eq!(error, AddressError::malformed("sqlite://…", problem, cure), "{url}");
    }
}

/// With its thread, the node lost the mark by which others know that the holder is alive.
#[tokio::test]
async fn i31_a_panic_of_what_a_node_calls_costs_one_request_and_no_lock() {
    let (_directory, path) = new_file();
    let (holds, other, held) = (node(&path), node(&path), claim("a"));
    acquire(&holds, &held).await.unwrap();
    let panics = |_| resume_unwind(Box::new("a panic that the test wants"));
    holds.ask(Request::inspect("a").into(), Responder::from_fn(panics));
    let answer = inspect(&holds, "a").await;
    let refused = acquire(&other, &claim("a")).await.unwrap();
    assert!(is_held_by(&refused, &held), "{refused:?}");
    assert!(is_held_by(&answer.unwrap(), &held));
}

/// As where a disk hangs: here it is a listener that does.
#[tokio::test]
async fn no_more_than_so_many_requests_wait_for_a_thread_that_hangs() {
    #[derive(Debug)]
    struct Hangs(Mutex<Receiver<()>>);

    impl HintListener for Hangs {
        fn on_hint(&self, _: Hint<'_>) {
            let _ = self.0.lock().recv();
        }
    }

    let (_directory, path) = new_file();
    let (node, (goes_on, hangs)) = (node(&path), channel());
    node.listen(Arc::new(Hangs(Mutex::new(hangs))));
    let (refused, request) = (Arc::new(AtomicUsize::new(0)), SharedRequest::from(Request::inspect("a")));
    for _ in 0..32_778 {
        let refused = Arc::clone(&refused);
        let count = move |answer| {
            if matches!(answer, Err(NodeError::Overloaded { .. })) {
                refused.fetch_add(1, Ordering::SeqCst);
            }
        };
        node.ask(request.clone(), Responder::from_fn(count));
    }
    assert_eq!(refused.load(Ordering::SeqCst), 10);
    drop(goes_on);
    until("the node answers again", async || inspect(&node, "a").await.is_ok()).await;
}
