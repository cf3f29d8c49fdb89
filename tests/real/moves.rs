//! Operators move the data of servers that keep running: clients that were connected notice (rule I-51).

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select};
use quorlock::{
    Builder, Coordinator, Lease, Renewal, RestartGuard, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Kind, Server, Servers, SkewedClock, patience, until};

use crate::world::{client, quarantined, run_command, wait_for_info};

/// Short, to keep the quarantine short, but longer than it takes to follow another master.
const MAX_TTL: Duration = Duration::from_secs(5);

/// How the data of a server are replaced.
#[derive(Clone, Copy, Debug)]
enum Move {
    Flush,
    /// An older dump is loaded.
    Reload,
    /// It follows an empty master for a while.
    Follow,
}

fn is_builtin(kind: &Kind) -> bool {
    matches!(kind, Kind::BuiltinTask | Kind::BuiltinProcess)
}

impl Move {
    /// Returns servers on which it is possible, of which the first is for the others to follow; `None` if there are none.
    async fn servers(self, count: usize) -> Option<Servers> {
        let kind = Kind::choose().unwrap();
        println!("{self:?} on {kind}: a built-in server can only be emptied");
        if is_builtin(&kind) {
            return match self {
                Move::Flush => Some(Servers::start(count).await.unwrap()),
                Move::Reload | Move::Follow => None,
            };
        }
        let allowed = kind.to_string().contains("redis-server 6.");
        let options: &[&str] = if allowed { &[] } else { &["--enable-debug-command", "yes"] };
        let servers = Servers::setup().options(&["--repl-diskless-sync-delay", "0"]).options(options);
        Some(servers.start(count).await.unwrap())
    }

    async fn prepare(self, server: &Server) {
        if matches!(self, Move::Reload) {
            run_command(server, &["SAVE"]).await;
        }
    }

    async fn make(self, server: &Server, other: &Server) {
        match self {
            Move::Flush => run_command(server, &["FLUSHALL"]).await,
            Move::Reload => run_command(server, &["DEBUG", "RELOAD", "NOSAVE"]).await,
            Move::Follow => {
                run_command(server, &["REPLICAOF", "127.0.0.1", &other.port().to_string()]).await;
                wait_for_info(server, "master_link_status:up").await;
                run_command(server, &["REPLICAOF", "NO", "ONE"]).await;
            }
        }
    }
}

fn guarded(servers: &[Server]) -> Coordinator {
    with(servers, |builder| builder)
}

fn with(servers: &[Server], set: impl FnOnce(Builder) -> Builder) -> Coordinator {
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    client(&urls, |builder| set(builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(RestartGuard::On)))
}

/// Holds the lock, once the servers are old enough to vote.
async fn hold(client: &Coordinator, name: &str) -> Lease {
    let held = || client.lock(name).wait(Wait::UpTo(patience())).renewal(Renewal::Manual);
    held().acquire().await.unwrap()
}

/// How many nodes are too young to vote, if no quorum votes.
async fn too_young(client: &Coordinator, name: &str) -> usize {
    client.lock(name).try_acquire().await.err().map_or(0, |error| quarantined(&error))
}

/// Whether it has reached the servers again.
fn is_connected(client: &Coordinator) -> bool {
    client.health().now().iter().all(|node| node.identity.is_some())
}

/// A client that has used the lock, and one that waits for it, while a third holds it and the data of three of five
/// servers are replaced.
async fn none_gets_it_before_its_holder_has_ended(by: Move) {
    let Some(servers) = by.servers(6).await else { return };
    let (other, servers) = servers.split_first().unwrap();
    let (holder, idle, waiter) = (guarded(servers), guarded(servers), guarded(servers));
    for client in [&holder, &idle, &waiter] {
        drop(hold(client, "r").await.release().await);
    }
    for server in servers {
        by.prepare(server).await;
    }
    let held = hold(&holder, "r").await;
    let waiting = tokio::spawn(async move { (hold(&waiter, "r").await, waiter) });
    let waits = async || !idle.lock("r").waiters().await.unwrap().waiters.is_empty();
    until("another waits", waits).await;
    join_all(servers[..3].iter().map(|server| by.make(server, other))).await;
    println!("{by:?} while it was held: {}", held.check().is_ok());
    let idle = tokio::spawn(async move { (hold(&idle, "r").await, idle) });
    let (won, _other) = select(waiting, idle).await.factor_first();
    let (next, _client) = won.unwrap();
    assert!(held.check().is_err(), "{by:?}: two holders");
    assert!(next.check().is_ok(), "{by:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_an_emptied_quorum_lets_no_second_holder_in() {
    none_gets_it_before_its_holder_has_ended(Move::Flush).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_an_older_dump_on_a_quorum_lets_no_second_holder_in() {
    none_gets_it_before_its_holder_has_ended(Move::Reload).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_a_quorum_that_followed_another_master_lets_no_second_holder_in() {
    none_gets_it_before_its_holder_has_ended(Move::Follow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_a_client_that_comes_after_a_loss_is_told_by_those_that_have_noticed() {
    let Some(servers) = Move::Flush.servers(1).await else { return };
    let connected = guarded(&servers);
    drop(hold(&connected, "r").await.release().await);
    Move::Flush.make(&servers[0], &servers[0]).await;
    until("it notices", async || too_young(&connected, "r").await == 1).await;
    assert_eq!(too_young(&guarded(&servers), "r").await, 1);
    assert!(hold(&guarded(&servers), "r").await.check().is_ok(), "a while later it votes again");
}

/// Clients whose calendars differ by more than a lock lives.
#[tokio::test(flavor = "multi_thread")]
async fn i51_a_loss_is_as_old_for_a_client_with_another_calendar() {
    for (noticing, coming) in [(4, 0), (0, 4)] {
        let Some(servers) = Move::Flush.servers(1).await else { return };
        let dated = |times| {
            let clock = SkewedClock::new(Arc::new(SystemClock::default()), 1.0);
            clock.calendar_forward(MAX_TTL * times);
            with(&servers, |builder| builder.clock(clock))
        };
        let connected = dated(noticing);
        drop(hold(&connected, "r").await.release().await);
        // By its uptime alone it votes for long.
        let clock = SystemClock::default();
        clock.sleep_until(clock.now() + MAX_TTL).await;
        Move::Flush.make(&servers[0], &servers[0]).await;
        until("it notices", async || too_young(&connected, "r").await == 1).await;
        assert_eq!(too_young(&dated(coming), "r").await, 1, "calendars ahead by {noticing} and {coming}");
        assert_eq!(too_young(&guarded(&servers), "r").await, 1, "and the note has remained");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_emptying_another_database_or_one_of_five_servers_costs_nothing() {
    let Some(servers) = Move::Flush.servers(5).await else { return };
    let client = guarded(&servers);
    let held = hold(&client, "held").await;
    if !is_builtin(servers.kind()) {
        for server in servers.iter() {
            let emptied = "redis.call('SELECT', 3) return redis.call('FLUSHDB')";
            run_command(server, &["EVAL", emptied, "0"]).await;
        }
        until("it is connected again", async || is_connected(&client)).await;
        let granted = async || matches!(client.lock("r").try_acquire().await, Ok(Some(_)));
        until("it gets a lock", granted).await;
        held.renew().await.unwrap();
    }
    Move::Flush.make(&servers[0], &servers[0]).await;
    held.renew().await.unwrap();
    assert!(client.lock("other").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_inboxes_that_was_deleted_is_read_anew() {
    let Some(servers) = Move::Flush.servers(1).await else { return };
    let (old, key) = (guarded(&servers), quorlock::protocol::InboxId::secret_key(""));
    drop(hold(&old, "r").await.release().await);
    let before = servers[0].command(&["GET", &key]).await.unwrap().to_string();
    servers[0].command(&["DEL", &key]).await.unwrap();
    let left = async || {
        let now = servers[0].command(&["GET", &key]).await.unwrap().to_string();
        now.len() == before.len() && now != before
    };
    until("another one is there, which the client that was connected has left", left).await;
    assert!(old.lock("r").try_acquire().await.unwrap().is_some(), "which is no loss of locks");
}
