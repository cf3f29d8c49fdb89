//! Shared locks: readers hold them together, a writer alone.

use nix::sys::signal::Signal;
use quorlock::protocol::{Claim, readers_key};
use quorlock::{Coordinator, Renewal, RestartGuard};
use quorlock_testkit::{Servers, until};

use crate::support::{Quorlock, Running, STAYS, keys, run, servers, status};

/// Starts a client whose command runs until the file `enough` exists.
async fn reader(servers: &Servers, label: &str) -> Running {
    let script = "echo \"$QUORLOCK_TOKEN\"; while [ ! -e enough ]; do sleep 0.05; done";
    run(servers, &["--shared", "-t", "5s", "--label", label], script).prints(1).await
}

#[tokio::test]
async fn readers_share_the_lock_and_exclude_writers() {
    let Some(servers) = servers(3).await else { return };
    let (one, two) = (reader(&servers, "the one").await, reader(&servers, "the other").await);
    let writer = run(&servers, &["-n"], "echo ran").end().await.expect(75);
    assert_eq!(writer.stdout, "", "a writer ran with readers");
    for reader in [one, two] {
        reader.enough().await.expect(0);
    }
    assert_eq!(keys(&servers).await, [""; 0], "the last reader has left the lock behind");

    let writer = run(&servers, &[], STAYS).prints(1).await;
    let reader = run(&servers, &["--shared", "-n"], "echo ran").end().await.expect(75);
    assert_eq!(reader.stdout, "", "a reader ran with a writer");
    writer.ends_by(Signal::SIGTERM).await.expect(143);
}

#[tokio::test]
async fn a_writer_that_waits_comes_when_the_last_reader_has_gone() {
    let Some(servers) = servers(3).await else { return };
    let (one, two) = (reader(&servers, "the one").await, reader(&servers, "the other").await);
    let writer = run(&servers, &["-w", "forever", "-vv"], "echo mine").waits().await;
    one.enough().await.expect(0);
    assert_eq!(writer.stdout(), "", "there is a reader left");
    two.enough().await.expect(0);
    assert_eq!(writer.end().await.expect(0).stdout, "mine\n");
}

#[tokio::test]
async fn the_status_names_the_readers() {
    let Some(servers) = servers(3).await else { return };
    let _readers = (reader(&servers, "the one").await, reader(&servers, "the other").await);
    until("both readers", async || {
        status(&servers, "job").await["holder"]["readers"]
            .as_array()
            .is_some_and(|readers| readers.len() == 2)
    })
    .await;
    let words = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0).stdout;
    for word in ["is held by 2 readers: ", "the one", "the other"] {
        assert!(words.contains(word), "{word}: {words}");
    }
}

#[tokio::test]
async fn a_reader_that_is_revoked_loses_its_share_and_the_others_keep_theirs() {
    let Some(servers) = servers(3).await else { return };
    let (one, two) = (reader(&servers, "the one").await, reader(&servers, "the other").await);
    let token = one.lines(1).await.remove(0);
    Quorlock::new(["release", "job", "--token", &token]).on(&servers).end().await.expect(0);
    one.end().await.expect(76);
    run(&servers, &["-n"], "echo ran").end().await.expect(75);
    let forced = Quorlock::new(["release", "job", "--force", "--yes"]).on(&servers).end().await.expect(0);
    assert!(forced.stderr.contains("the other") && !forced.stderr.contains("the one"), "{forced:?}");
    two.end().await.expect(76);
    assert_eq!(keys(&servers).await, [""; 0], "a share was stored again");
}

/// A node names a hundred readers; renewals of the others must not restore their shares.
#[tokio::test]
async fn a_lock_of_more_readers_than_a_node_names_is_taken_from_each_of_them() {
    let Some(servers) = servers(3).await else { return };
    let coordinator = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = coordinator.build().unwrap();
    let lock = coordinator.lock("job").shared().renewal(Renewal::Manual);
    let mut readers = Vec::new();
    for _ in 0..150 {
        readers.push(lock.acquire().await.unwrap());
    }
    // On each node, since a share may arrive after the lease was granted.
    for server in servers.iter() {
        let count = async || server.command(&["ZCARD", &readers_key("job")]).await.unwrap().to_string();
        until("all shares", async || count().await == "150").await;
    }
    Quorlock::new(["release", "job", "--force", "--yes"]).on(&servers).end().await.expect(0);
    for reader in &readers {
        for server in servers.iter() {
            let tombstone = Claim::new("job".into(), reader.token().clone()).tombstone();
            let there = server.command(&["EXISTS", &tombstone]).await.unwrap().to_string();
            assert_eq!(there, "1", "a renewal of {} would be let in", reader.token());
        }
    }
    for reader in &readers {
        assert!(reader.renew().await.is_err(), "a share that was taken was renewed");
    }
    assert_eq!(keys(&servers).await, [""; 0], "a share was stored again");
}

#[tokio::test]
async fn hold_shares_a_lock_too() {
    let Some(servers) = servers(3).await else { return };
    let holder = Quorlock::new(["hold", "--shared", "job"]).on(&servers).prints(4).await;
    run(&servers, &["--shared", "-n"], "echo ran").end().await.expect(0);
    run(&servers, &["-n"], "echo ran").end().await.expect(75);
    holder.ends_by(Signal::SIGTERM).await.expect(0);
}
