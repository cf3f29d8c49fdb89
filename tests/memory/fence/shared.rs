//! The check with two marks, for data that is read under shared leases: the same table of cases, in
//! memory and in SQLite.

use std::sync::Barrier;
use std::thread;

use quorlock::fence::{SharedGuarded, Stale};
use quorlock::{Coordinator, FencingToken, Lease};
use quorlock_testkit::memory_nodes;
use rusqlite::{Connection, params};

use super::page::{CREATE_SHARED_TABLE, READ_GUARD, WRITE_GUARD, written};
use super::story::STORY;
use super::token;

fn check_cases(what: &str, mut show: impl FnMut(bool, FencingToken) -> Result<(), Stale>) {
    for (step, (writes, number, is_let_in)) in STORY.into_iter().enumerate() {
        let shown = show(writes, token(number));
        assert_eq!(shown.is_ok(), is_let_in, "{what}, step {step}: {number} {shown:?}");
    }
}

#[test]
fn in_memory_readers_and_writers_enter_in_lock_order() {
    let guarded = SharedGuarded::new(0);
    check_cases("in memory", |writes, token| {
        if writes { guarded.write(token, |data| *data += 1) } else { guarded.read(token, |_| ()) }
    });
    assert_eq!(guarded.read(token(40), |data| *data).unwrap(), 3, "one write per accepted token");
}

#[test]
fn in_sqlite_readers_and_writers_enter_in_lock_order() {
    let database = Connection::open_in_memory().unwrap();
    database.execute_batch(&CREATE_SHARED_TABLE).unwrap();
    database.execute_batch(&CREATE_SHARED_TABLE).unwrap();
    check_cases("in SQLite", |writes, token| {
        let guard = if writes { &WRITE_GUARD } else { &READ_GUARD };
        written(database.execute(guard, params!["account/7", i64::from(token)]).unwrap() as u64, token)
    });
    let other = database.execute(&WRITE_GUARD, params!["account/8", 1]).unwrap();
    assert_eq!(other, 1, "tokens of another lock are independent");
}

#[test]
fn readers_in_memory_enter_together() {
    let (guarded, meeting) = (SharedGuarded::new(7), Barrier::new(2));
    thread::scope(|scope| {
        for number in [33, 34] {
            let (guarded, meeting) = (&guarded, &meeting);
            // Each waits for the other inside: one at a time would wait forever.
            scope.spawn(move || guarded.read(token(number), |_| meeting.wait()).unwrap());
        }
    });
}

/// The tokens of real leases: late writes and late reads are refused, current readers are not.
#[tokio::test]
async fn tokens_of_real_leases_are_accepted_until_superseded() {
    let coordinator = Coordinator::builder().custom_nodes(memory_nodes(5)).build().unwrap();
    let (alone, together) = (coordinator.lock("r"), coordinator.lock("r").shared());
    let store = SharedGuarded::new(0);
    let of = |lease: &Lease| lease.fencing_token();

    let writer = alone.acquire().await.unwrap();
    let first = of(&writer);
    store.write(first, |data| *data = 1).unwrap();
    let reader = writer.downgrade().await.unwrap();
    let beside = together.acquire().await.unwrap();
    assert_eq!(store.read(of(&beside), |data| *data).unwrap(), 1);
    assert_eq!(store.read(of(&reader), |data| *data).unwrap(), 1, "it reads on");
    assert!(store.write(first, |data| *data = 2).is_err(), "a late write must be refused");
    let late = of(&beside);
    reader.release().await.unwrap();
    beside.release().await.unwrap();
    let next = alone.acquire().await.unwrap();
    store.write(of(&next), |data| *data = 3).unwrap();
    assert!(store.read(late, |data| *data).is_err(), "a read after a newer write must be refused");
    next.release().await.unwrap();
}
