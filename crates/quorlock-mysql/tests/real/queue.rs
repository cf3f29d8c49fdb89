//! Waiters in several processes: each node simulates a process, as nodes share nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Hint, HintListener, Node, Queued, Request, Seams, Vote, ask};
use quorlock::protocol::{WaiterId, turn_key};
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock_mysql::MysqlNode;
use quorlock_testkit::{Proxy, until};

use crate::faults::node;
use crate::requests::{acquire, claim, release};
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_secs(30);

/// Collects the hints of a node.
#[derive(Debug, Default)]
struct HintRecorder(Mutex<BTreeSet<String>>);

impl HintRecorder {
    fn to(node: &MysqlNode) -> Arc<HintRecorder> {
        let ear = Arc::<HintRecorder>::default();
        node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
        ear
    }

    fn heard(&self, what: &str) -> bool {
        self.0.lock().contains(what)
    }
}

impl HintListener for HintRecorder {
    fn on_hint(&self, hint: Hint<'_>) {
        let word = match hint {
            Hint::Subscribed => "hearing".to_owned(),
            Hint::Unsubscribed => "deaf".to_owned(),
            Hint::Flushed => "all".to_owned(),
            Hint::Invalidated(key) => String::from_utf8_lossy(key).into_owned(),
        };
        self.0.lock().insert(word);
    }
}

async fn enqueue(node: &MysqlNode, key: &str, waiter: u64, turn: Duration) -> Vote {
    let request = Request::enqueue(key.into(), WaiterId::new(waiter), Duration::ZERO, PATIENCE, turn);
    ask(node, request).await.unwrap().vote
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_notifies_only_the_first_process_in_the_queue() {
    let Some(server) = Server::start(&[]).await else { return };
    let [holder, first, second] = [(); 3].map(|()| node(&server));
    let listeners = [HintRecorder::to(&first), HintRecorder::to(&second)];
    let held = claim("a");
    acquire(&holder, &held).await.unwrap();
    enqueue(&first, "a", 1, TURN).await;
    enqueue(&second, "a", 2, TURN).await;
    assert_eq!(release(&holder, &held).await, Vote::Notified);
    let turns = [1, 2].map(|waiter| turn_key("a", WaiterId::new(waiter)));
    until("the first is notified of its turn", async || listeners[0].heard(&turns[0])).await;
    until("the second, that the lock has changed", async || listeners[1].heard("a")).await;
    assert!(!listeners[1].heard(&turns[1]), "it is not its turn");
    // A waiter that has the turn leaves, and the turn goes to the next.
    let leave = Request::LeaveQueue { key: "a".into(), waiter: WaiterId::new(1) };
    assert_eq!(ask(&first, leave).await.unwrap().vote, Vote::Notified);
    until("the second is notified of its turn", async || listeners[1].heard(&turns[1])).await;
}

/// A waiter asks again from time to time. It does not miss a turn that has begun a moment before.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_asks_again_learns_that_its_turn_has_come() {
    let Some(server) = Server::start(&[]).await else { return };
    let [holder, other] = [(); 2].map(|()| node(&server));
    let held = claim("a");
    acquire(&holder, &held).await.unwrap();
    for waiter in [1, 2] {
        assert!(matches!(enqueue(&other, "a", waiter, TURN).await, Vote::Queued(_)));
    }
    assert_eq!(release(&holder, &held).await, Vote::Notified);
    assert_eq!(enqueue(&other, "a", 2, TURN).await, Queued::new(0, None).into());
    assert_eq!(enqueue(&other, "a", 1, TURN).await, Vote::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_notified_of_a_lost_and_a_new_connection() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let ear = HintRecorder::to(&node);
    assert!(!ear.heard("hearing"), "no server is contacted yet");
    acquire(&node, &claim("a")).await.unwrap();
    assert!(ear.heard("hearing") && !ear.heard("deaf"));
    let ours = "SELECT id FROM information_schema.PROCESSLIST WHERE user = 'locks'";
    let id: u64 = mysql_async::from_row(server.sql(ours).await.remove(0));
    ear.0.lock().clear();
    server.sql(format!("KILL {id}")).await;
    until("the node answers again", async || acquire(&node, &claim("b")).await.is_ok()).await;
    assert!(ear.heard("deaf") && ear.heard("hearing"));
}

/// A thread that keeps anything of each lost connection on its stack, which has 2 MiB, has none left after some of these.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlives_any_number_of_idle_connections() {
    let Some(server) = Server::start(&[]).await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let through = server.url().replace(&server.port().to_string(), &proxy.address().port().to_string());
    let waiting = MysqlNode::new(&through, &Seams::default()).unwrap();
    acquire(&node(&server), &claim("a")).await.unwrap();
    let ear = HintRecorder::to(&waiting);
    for _ in 0..200 {
        // The thread reads the row from now on, and so notices by itself that the connection is cut.
        assert!(matches!(enqueue(&waiting, "a", 1, TURN).await, Vote::Queued(_)));
        ear.0.lock().clear();
        proxy.cut();
        until("there is another connection", async || ear.heard("deaf") && ear.heard("hearing")).await;
    }
}

/// Cached rows may be stale: they are never an answer.
#[tokio::test(flavor = "multi_thread")]
async fn changes_by_other_clients_are_read_before_an_answer() {
    let Some(server) = Server::start(&[]).await else { return };
    let [one, other] = [(); 2].map(|()| node(&server));
    for _ in 0..8 {
        let (first, second, third) = (claim("a"), claim("a"), claim("a"));
        let before = acquire(&one, &first).await.unwrap();
        assert_eq!((before.vote, release(&one, &first).await), (Vote::Granted, Vote::Granted));
        let held = acquire(&other, &second).await.unwrap();
        assert_eq!(held.vote, Vote::Granted);
        assert!(held.fencing_token > before.fencing_token);
        let refused = acquire(&one, &third).await.unwrap();
        assert!(matches!(&refused.vote, Vote::Held(by) if by.token == *second.token()), "{refused:?}");
        assert_eq!(release(&one, &third).await, Vote::Free);
        assert_eq!(release(&other, &second).await, Vote::Granted);
        // A lock released by another client is not reported as held.
        assert_eq!(release(&other, &second).await, Vote::Free);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_no_other_process_wants_is_written_without_being_read() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let cycle = async || {
        let claim = claim("a");
        assert_eq!(acquire(&node, &claim).await.unwrap().vote, Vote::Granted);
        assert_eq!(release(&node, &claim).await, Vote::Granted);
    };
    cycle().await;
    let count = async |statements: &str| -> u64 {
        let status = format!("SHOW GLOBAL STATUS LIKE 'Com_{statements}'");
        let (_, count): (String, u64) = mysql_async::from_row(server.sql(status).await.remove(0));
        count
    };
    let updates = async || count("update").await + count("update_multi").await;
    let (reads, writes) = (count("select").await, updates().await);
    let began = SystemClock::default().now();
    for _ in 0..100 {
        cycle().await;
    }
    let seconds = SystemClock::default().now().since(began).as_secs();
    let (reads, writes) = (count("select").await - reads, updates().await - writes);
    // One by what was known two seconds ago may miss its row, on a busy machine often.
    assert!((200..210 + 5 * seconds).contains(&writes), "{writes} statements have written");
    // Some for dead rows, and some for the clock after two seconds.
    assert!(reads < 100, "{reads} statements have read");
}
