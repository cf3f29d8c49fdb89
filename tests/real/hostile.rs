//! Broken and hostile servers: whatever they send, a node answers each request in time, its memory
//! stays bounded, and the other nodes are unaffected.

mod flood;
mod numbers;
mod server;

use std::time::Duration;

use futures::future::{Either, join_all, select};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Coordinator, RestartGuard, Wait,
    doctor::{Standing, Summary},
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{memory_nodes, patience, scaled};
use server::{Attack, Hostile, Phase};

/// Runs a test on a runtime with one thread, which a busy task would block for all others, and on one
/// with two.
macro_rules! on_both_runtimes {
    ($($name:ident)*) => {
        mod with_one_thread {
            $(#[tokio::test]
            async fn $name() {
                super::$name().await;
            })*
        }

        mod with_two_threads {
            $(#[test]
            fn $name() {
                $crate::hostile::on_two_threads(super::$name());
            })*
        }
    };
}
pub(crate) use on_both_runtimes;

on_both_runtimes! {
    a_hostile_server_gets_no_vote_memory_or_time
    doctor_ends_in_time_and_trusts_no_hostile_server
    random_bytes_of_a_server_cause_no_panic_or_harm
}

/// What the names of all threads of these tests begin with, by which a panic hook knows them.
pub(crate) const THREADS: &str = "hostile";

fn on_two_threads(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).thread_name(THREADS).enable_all().build().unwrap().block_on(test);
}

/// The most that a server may make its client take in with one answer, including the read-ahead and the
/// pipe.
const MEMORY: usize = 1 << 20;

/// The same for one connection that began then: a server may push as much as this each second.
pub(crate) fn memory_since(began: Moment, memory: usize) -> usize {
    let passed = SystemClock::default().now().since(began);
    memory + (1 << 20) * usize::try_from(passed.as_millis()).unwrap() / 1000
}

pub(crate) fn attack(name: &'static str, first: impl Into<Vec<u8>>, then: impl Into<Vec<u8>>) -> Attack {
    Attack { name, first: first.into(), then: then.into() }
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
        attack("endless pushes", "", push.repeat(20)),
        attack("empty pushes without end", "", ">0\r\n".repeat(100)),
        attack("subscriptions", "", ">3\r\n+subscribe\r\n+a\r\n:1\r\n".repeat(20)),
        attack("answers without requests", "", "+OK\r\n".repeat(100)),
        attack("errors without requests", "", "-ERR no\r\n".repeat(100)),
        attack("lists without requests", "", "*2\r\n+held\r\n$1\r\na\r\n".repeat(100)),
    ]
}

const PHASES: [Phase; 4] = [Phase::Connected, Phase::Login, Phase::Introduction, Phase::Vote];

pub(crate) fn deployment(server: &Hostile, hostile: usize) -> Coordinator {
    let urls = (0..hostile).map(|number| format!("redis://hostile-{number}"));
    Coordinator::builder()
        .nodes(urls)
        .custom_nodes(memory_nodes(3 - hostile))
        .dial(server.clone())
        .connect_timeout(scaled(Duration::from_millis(300)))
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap()
}

/// Ends the test if `work` hangs.
pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let clock = SystemClock::default();
    let late = clock.sleep_until(clock.now() + patience());
    match select(std::pin::pin!(work), late).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it hangs: {what}"),
    }
}

/// Sends requests to hostile servers, twice: one next to two honest nodes, and only hostile ones.
async fn survive(phase: Phase, attack: Attack) {
    let (what, began) = (format!("{} at {phase:?}", attack.name), SystemClock::default().now());
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
    // A malformed vote counts as none: no server here has ever granted anything.
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{what}: {error}");
    let message = error.to_string();
    assert!(message.len() < 4096 && !message.chars().any(char::is_control), "{what}: {message}");
    in_time(&what, coordinator.close(Duration::from_millis(100))).await;

    let taken = Hostile::count(&server.taken);
    assert!(taken <= memory_since(began, MEMORY), "{what}: {taken} bytes were taken in");
    assert!(Hostile::count(&server.attacks) > 0, "{what}: it never misbehaved");
}

async fn a_hostile_server_gets_no_vote_memory_or_time() {
    for phase in PHASES {
        join_all(attacks().into_iter().map(|attack| tokio::spawn(survive(phase, attack))))
            .await
            .into_iter()
            .for_each(|survived| survived.unwrap());
    }
}

/// The requests of the doctor, in order: a word of each.
const QUESTIONS: [&str; 7] = ["HELLO", "INFO", "TIME", "CONFIG", "TRACKING", "ZADD", "tonumber"];

/// Examines servers that attack at this request. Returns whether the doctor got that far: on a busy
/// machine it may end before.
async fn examined(request: &'static str, attack: Attack) -> bool {
    let (what, began) = (format!("{} at {request}", attack.name), SystemClock::default().now());
    let server = Hostile::new(Phase::Asked(request), attack.clone());
    let examination = in_time(&what, deployment(&server, 3).doctor()).await;
    assert_eq!(examination.summary(), Summary::NoQuorum, "{what}: {examination:#?}");
    assert!(
        examination.nodes.iter().all(|node| node.standing != Standing::Votes),
        "{what}: {examination:#?}"
    );
    for finding in &examination.findings {
        let message = finding.to_string();
        assert!(message.len() < 2048 && !message.chars().any(char::is_control), "{what}: {message}");
    }
    let taken = Hostile::count(&server.taken);
    assert!(taken <= memory_since(began, MEMORY), "{what}: {taken} bytes were taken in");
    Hostile::count(&server.attacks) > 0
}

async fn doctor_ends_in_time_and_trusts_no_hostile_server() {
    for request in QUESTIONS {
        let examined = attacks().into_iter().map(|attack| tokio::spawn(examined(request, attack)));
        let attacked = join_all(examined).await.into_iter().filter(|outcome| *outcome.as_ref().unwrap());
        assert!(attacked.count() > attacks().len() / 2, "hardly any server was asked for {request}");
    }
}

/// Random values of a broken server: of every kind, nested, with wrong lengths.
pub(crate) fn babble() -> impl Strategy<Value = Vec<u8>> {
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

async fn random_bytes_of_a_server_cause_no_panic_or_harm() {
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
