//! Servers that are broken or hostile: whatever they send, a node answers each question in time, its
//! memory stays bounded, and the other nodes are not affected.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quorlock::{
    AcquireError, Address, Clock, Coordinator, Dial, Outlook, RestartGuard, Standing, Stream, SystemClock,
    Wait,
};
use quorlock_testkit::memory_nodes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// As much as a server may make its client take in with one answer, with room for what the client
/// reads ahead and for the pipe between them.
const MEMORY: usize = 1 << 20;
/// As much as an endless server sends before it is called unbounded.
const ENDLESS: usize = 16 << 20;

/// What a server sends instead of an answer.
#[derive(Clone, Debug)]
struct Attack {
    name: &'static str,
    first: Vec<u8>,
    /// What follows again and again.
    then: Vec<u8>,
    /// Whether the client may take in all of it, because it keeps none of it.
    harmless: bool,
}

fn attack(name: &'static str, first: impl Into<Vec<u8>>, then: impl Into<Vec<u8>>) -> Attack {
    Attack { name, first: first.into(), then: then.into(), harmless: false }
}

fn attacks() -> Vec<Attack> {
    let filler = vec![b'x'; 1000];
    let push = ">2\r\n+invalidate\r\n*1\r\n$3\r\nkey\r\n";
    vec![
        attack("a text of ten gigabytes", "$9999999999\r\n", filler.clone()),
        attack("a text of a negative length", "=-1\r\n", filler.clone()),
        attack("a list of a thousand million", "*1000000000\r\n", "_\r\n".repeat(300)),
        attack("a map of a thousand million", "%1000000000\r\n", "_\r\n".repeat(300)),
        attack("attributes without end", "|4611686018427387903\r\n", "_\r\n".repeat(300)),
        attack("lists in lists", "", "*1\r\n".repeat(100)),
        attack("lists of many lists", "*2\r\n", "*4000\r\n".to_owned() + &"*0\r\n".repeat(4000)),
        attack("a line without end", "+", filler.clone()),
        attack("an error without end", "-ERR ", filler.clone()),
        attack("an error of a megabyte", format!("-ERR {}\r\n", "x".repeat(1 << 20)), ""),
        attack("a number without end", ":", "1".repeat(1000)),
        attack("a length without end", "$", "1".repeat(1000)),
        attack("half an answer, and silence", "$100\r\nabc", ""),
        attack("half a line, and silence", "*3\r\n$4\r\nhe", ""),
        attack("silence", "", ""),
        attack("nothing but line ends", "", "\r\n".repeat(100)),
        attack("zeros", "", vec![0; 1000]),
        Attack { harmless: true, ..attack("pushes without end", "", push.repeat(20)) },
        Attack { harmless: true, ..attack("empty pushes without end", "", ">0\r\n".repeat(100)) },
        Attack {
            harmless: true,
            ..attack("subscriptions", "", ">3\r\n+subscribe\r\n+a\r\n:1\r\n".repeat(20))
        },
        attack("answers without questions", "", "+OK\r\n".repeat(100)),
        attack("errors without questions", "", "-ERR no\r\n".repeat(100)),
        attack("lists without questions", "", "*2\r\n+held\r\n$1\r\na\r\n".repeat(100)),
    ]
}

/// When a server begins to misbehave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// As soon as it is connected.
    Connected,
    /// Instead of its answer to HELLO.
    Login,
    /// Instead of its answer to INFO.
    Introduction,
    /// Instead of its first vote.
    Vote,
    /// As soon as it hears this word, in a check-up.
    Asked(&'static str),
}

const PHASES: [Phase; 4] = [Phase::Connected, Phase::Login, Phase::Introduction, Phase::Vote];

#[derive(Clone, Debug)]
struct Hostile {
    phase: Phase,
    attack: Attack,
    /// The most that was taken in over one connection.
    taken: Arc<AtomicUsize>,
}

impl Hostile {
    fn new(phase: Phase, attack: Attack) -> Hostile {
        Hostile { phase, attack, taken: Arc::default() }
    }
}

impl Dial for Hostile {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        tokio::spawn(async move { server.serve(far).await });
        Box::pin(async { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

impl Hostile {
    async fn serve(self, mut stream: DuplexStream) -> io::Result<()> {
        const INFO: &str = "run_id:abc\r\nuptime_in_seconds:900000\r\nrole:master\r\n";
        let mut heard = vec![0; 16 * 1024];
        let mut phase = Phase::Connected;
        while phase != self.phase {
            let length = stream.read(&mut heard).await?;
            let words = String::from_utf8_lossy(&heard[..length]).into_owned();
            if length == 0 {
                return Ok(());
            }
            phase = if matches!(self.phase, Phase::Asked(word) if words.contains(word)) {
                self.phase
            } else if words.contains("HELLO") {
                Phase::Login
            } else if words.contains("INFO") {
                Phase::Introduction
            } else {
                Phase::Vote
            };
            if phase == self.phase {
                break;
            }
            let answer = match phase {
                Phase::Login => "%0\r\n+OK\r\n+OK\r\n".to_owned(),
                Phase::Introduction => {
                    let oks = "+OK\r\n".repeat(words.matches("CLIENT").count());
                    format!("{oks}${}\r\n{INFO}\r\n", INFO.len())
                }
                Phase::Vote if words.contains("TIME") => "*2\r\n$1\r\n7\r\n$1\r\n7\r\n".to_owned(),
                // One for each command, however many came at once.
                Phase::Vote => "+OK\r\n".repeat(words.matches("\r\n*").count() + 1),
                Phase::Connected | Phase::Asked(_) => String::new(),
            };
            stream.write_all(answer.as_bytes()).await?;
        }
        stream.write_all(&self.attack.first).await?;
        let mut sent = self.attack.first.len();
        // Whoever stands here for long is not read from, and that is fine.
        while !self.attack.then.is_empty() && sent < ENDLESS {
            self.taken.fetch_max(sent, Ordering::Relaxed);
            stream.write_all(&self.attack.then).await?;
            sent += self.attack.then.len();
        }
        self.taken.fetch_max(sent, Ordering::Relaxed);
        while stream.read(&mut heard).await? > 0 {}
        Ok(())
    }
}

fn deployment(server: &Hostile, hostile: usize) -> Coordinator {
    let urls = (0..hostile).map(|number| format!("redis://hostile-{number}"));
    Coordinator::builder()
        .nodes(urls)
        .custom_nodes(memory_nodes(3 - hostile))
        .dial(server.clone())
        .connect_limit(Duration::from_millis(300))
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap()
}

/// Ends the test if `work` hangs.
async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let clock = SystemClock::default();
    let late = clock.sleep_until(clock.now() + Duration::from_secs(120));
    match select(std::pin::pin!(work), late).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it hangs: {what}"),
    }
}

/// Asks servers that attack, twice: with two honest nodes beside one of them, and all alone.
async fn survive(phase: Phase, attack: Attack) {
    let what = format!("{} at {phase:?}", attack.name);
    let server = Hostile::new(phase, attack.clone());
    let coordinator = deployment(&server, 1);
    for _ in 0..3 {
        let lease = in_time(&what, coordinator.lock("orders/42").wait(Wait::Never).acquire()).await;
        let lease = lease.unwrap_or_else(|error| panic!("{what}: two of three are honest: {error}"));
        in_time(&what, lease.release()).await.unwrap_or_else(|lost| panic!("{what}: {lost}"));
    }
    in_time(&what, coordinator.close(Duration::from_millis(100))).await;

    let coordinator = deployment(&server, 3);
    let error = in_time(&what, coordinator.lock("orders/42").wait(Wait::Never).acquire()).await.unwrap_err();
    // A vote that cannot be understood is none: no server here has ever granted anything.
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{what}: {error}");
    let said = error.to_string();
    assert!(said.len() < 4096 && !said.chars().any(char::is_control), "{what}: {said}");
    in_time(&what, coordinator.close(Duration::from_millis(100))).await;

    let taken = server.taken.load(Ordering::Relaxed);
    assert!(attack.harmless || taken <= MEMORY, "{what}: {taken} bytes were taken in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_server_gets_no_vote_no_memory_and_no_time() {
    for phase in PHASES {
        join_all(attacks().into_iter().map(|attack| tokio::spawn(survive(phase, attack))))
            .await
            .into_iter()
            .for_each(|survived| survived.unwrap());
    }
}

/// What a check-up asks, in its order: a word of each question.
const QUESTIONS: [&str; 7] = ["HELLO", "INFO", "TIME", "CONFIG", "TRACKING", "ZADD", "tonumber"];

/// Examines servers that attack at this question.
async fn examined(question: &'static str, attack: Attack) {
    let what = format!("{} at {question}", attack.name);
    let server = Hostile::new(Phase::Asked(question), attack.clone());
    let examination = in_time(&what, deployment(&server, 3).examine()).await;
    assert_eq!(examination.outlook(), Outlook::NoQuorum, "{what}: {examination:#?}");
    assert!(
        examination.nodes.iter().all(|node| node.standing != Standing::Votes),
        "{what}: {examination:#?}"
    );
    for finding in &examination.findings {
        let said = finding.to_string();
        assert!(said.len() < 2048 && !said.chars().any(char::is_control), "{what}: {said}");
    }
    let taken = server.taken.load(Ordering::Relaxed);
    assert!(attack.harmless || taken <= MEMORY, "{what}: {taken} bytes were taken in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_of_hostile_servers_calls_none_of_them_fit_and_ends_in_time() {
    for question in QUESTIONS {
        join_all(attacks().into_iter().map(|attack| tokio::spawn(examined(question, attack))))
            .await
            .into_iter()
            .for_each(|examined| examined.unwrap());
    }
}

/// Values as a broken server may send them: of every kind, nested, with lengths that are wrong.
fn babble() -> impl Strategy<Value = Vec<u8>> {
    let length = || prop_oneof![4 => 0..4_i64, 1 => Just(-1), 1 => any::<i64>()];
    let line = ("[+:_,#(-]", "\\PC{0,8}").prop_map(|(kind, text)| format!("{kind}{text}\r\n").into_bytes());
    let text = ("[$=!]", length(), prop::collection::vec(any::<u8>(), 0..8))
        .prop_map(|(kind, length, text)| [format!("{kind}{length}\r\n").as_bytes(), &text, b"\r\n"].concat());
    let list = ("[*%~|>]", length()).prop_map(|(kind, length)| format!("{kind}{length}\r\n").into_bytes());
    let word =
        prop::sample::select(vec!["+granted\r\n", "+held\r\n", "$-1\r\n", ":5\r\n", "*2\r\n", "+OK\r\n"]);
    let word = word.prop_map(|word| word.as_bytes().to_vec());
    prop::collection::vec(prop_oneof![line, text, list, word], 1..20).prop_map(|parts| parts.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_babbles_makes_nobody_panic_and_spoils_nothing() {
    let mut runner = TestRunner::default();
    let cases: Vec<_> = (0..64).map(|_| babble().new_tree(&mut runner).unwrap().current()).collect();
    for (number, cases) in cases.chunks(16).enumerate() {
        let rounds = cases.iter().map(|words| async move {
            let server = Hostile::new(PHASES[number % 4], attack("babble", words.clone(), ""));
            let what = format!("{:?}", String::from_utf8_lossy(words));
            let coordinator = deployment(&server, 1);
            let lease = in_time(&what, coordinator.lock("orders/42").wait(Wait::Never).acquire()).await;
            in_time(&what, lease.unwrap().release()).await.unwrap_or_else(|lost| panic!("{what}: {lost}"));
            in_time(&what, coordinator.close(Duration::from_millis(50))).await;
            let coordinator = deployment(&server, 3);
            drop(in_time(&what, coordinator.lock("orders/42").wait(Wait::Never).acquire()).await);
            in_time(&what, coordinator.close(Duration::from_millis(50))).await;
        });
        join_all(rounds).await;
    }
}
