//! Servers with nonsensical numbers in INFO, TIME, HELLO, notes and votes. Nothing panics, and the
//! other nodes are unaffected.
//!
//! `QUORLOCK_HOSTILE` sets how many servers are tried on each runtime, `QUORLOCK_SEED` selects them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use quorlock::{
    Coordinator, RestartGuard, Wait,
    runtime::{Clock as _, Entropy, SystemClock},
};
use quorlock_testkit::{SeededEntropy, memory_nodes};

use crate::world::Ahead;

use super::server::{Hostile, Words, bulk};
use super::{THREADS, babble, in_time, on_both_runtimes};

on_both_runtimes! {
    no_number_causes_a_panic_or_affects_other_nodes
}

/// How many servers run concurrently.
const TOGETHER: usize = 100;

/// Numbers that no server should send, and some that are not numbers.
fn number(entropy: &SeededEntropy) -> String {
    const ODD: [&str; 24] = [
        "0",
        "1",
        "-1",
        "2",
        "59",
        "",
        " 5",
        "+5",
        "0x10",
        "1e9",
        "1.5",
        "NaN",
        "N/A",
        "-0",
        "9007199254740991",
        "9007199254740992",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551610",
        "18446744073709551614",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
    ];
    let half = entropy.next_u64();
    match half % 8 {
        0 => (half >> 3).to_string(),
        1 => (half >> (half % 61)).to_string(),
        _ => pick(entropy, &ODD).to_owned(),
    }
}

fn pick<'a, T: ?Sized>(entropy: &SeededEntropy, all: &[&'a T]) -> &'a T {
    all[usize::try_from(entropy.next_u64() % all.len() as u64).unwrap()]
}

/// A number in protocol encoding. Most of them are valid numbers.
fn integer(entropy: &SeededEntropy) -> String {
    let number = number(entropy);
    format!(":{}\r\n", if number.parse::<i128>().is_ok() { number } else { "7".into() })
}

/// A server whose numbers are all from that list, and which sometimes answers with random bytes.
fn odd(entropy: &SeededEntropy, babble: &str) -> Words {
    let mut words = Words::sound();
    let number = || number(entropy);
    let role = if entropy.next_u64().is_multiple_of(16) {
        pick(entropy, &["slave", "active-replica", "king", "", "Master"])
    } else {
        "master"
    };
    words.info = format!(
        "run_id:abc{}\r\nuptime_in_seconds:{}\r\neventloop_cycles:{}\r\nrole:{role}\r\nconnected_slaves:{}\r\nmaxmemory:{}\r\n\
         used_memory:{}\r\nevicted_keys:{}\r\nmaxmemory_policy:noeviction\r\nmaster_replid:f00\r\nsecond_repl_offset:{}\r\n\
         redis_version:{}.{}.{}\r\nloading:0\r\naof_enabled:{}\r\n",
        entropy.next_u64() % 3,
        number(),
        number(),
        number(),
        number(),
        number(),
        number(),
        if entropy.next_u64().is_multiple_of(4) { number() } else { "-1".into() },
        number(),
        number(),
        number(),
        number(),
    );
    let time = format!("*2\r\n{}{}", bulk(&number()), bulk(&number()));
    let held = format!("*4\r\n+held\r\n$1\r\na\r\n{}{}", integer(entropy), integer(entropy));
    let granted = format!("*2\r\n+granted\r\n{}", integer(entropy));
    let script = match entropy.next_u64() % 4 {
        0 => held,
        1 => integer(entropy),
        _ => granted,
    };
    // Most report the counter as raised, and so are votes.
    let raised =
        if entropy.next_u64().is_multiple_of(4) { integer(entropy) } else { words.answers["ZADD"].clone() };
    let id = integer(entropy);
    for (command, answer) in [
        ("HELLO", format!("%1\r\n$2\r\nid\r\n{id}")),
        ("CLIENT ID", id),
        ("CLIENT KILL", integer(entropy)),
        ("TIME", time),
        ("GET", bulk(&format!("abc{} {}", entropy.next_u64() % 3, number()))),
        ("EVAL", script),
        ("ZADD", raised),
    ] {
        words.answers.insert(command, answer);
    }
    if entropy.next_u64().is_multiple_of(8) {
        let commands: Vec<_> = words.answers.keys().copied().collect();
        words.answers.insert(pick(entropy, &commands), babble.to_owned());
    }
    words
}

/// Sends requests to a deployment with one such node, now and later. Returns how many requests that
/// node answered, and how many of them with a vote.
async fn ask(words: Words, what: &str) -> (usize, usize) {
    let (server, clock) = (Hostile::saying(words), Ahead::default());
    let guard = if what.len().is_multiple_of(2) { RestartGuard::On } else { RestartGuard::Off };
    let coordinator = Coordinator::builder()
        .nodes(["redis://odd"])
        .custom_nodes(memory_nodes(2))
        .dial(server.clone())
        .clock(clock.clone())
        .connect_timeout(Duration::from_millis(200))
        .restart_guard(guard)
        .build()
        .unwrap();
    let lock = || coordinator.lock("orders/42").wait(Wait::Never);
    for step in [1, 1, 3_600] {
        let lease = lock()
            .acquire()
            .await
            .unwrap_or_else(|error| panic!("two of three are correct: {error}; {what}"));
        assert!(lease.renew().await.is_ok(), "{what}");
        drop(lock().inspect().await);
        drop(coordinator.health());
        lease.release().await.unwrap_or_else(|lost| panic!("{lost}; {what}"));
        clock.jump(Duration::from_secs(step));
    }
    let examination = coordinator.doctor().await;
    assert!(
        examination.findings.iter().all(|finding| !finding.to_string().chars().any(char::is_control)),
        "{what}"
    );
    coordinator.close(Duration::from_millis(20)).await;
    (Hostile::count(&server.replies), Hostile::count(&server.votes))
}

/// The number of panics in the tests of hostile servers, including those caught by a runtime. Other tests of
/// this program panic on purpose.
fn panics() -> &'static AtomicUsize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Without threads for each test, all of them are on the main thread.
            let thread = std::thread::current();
            let is_ours = |name: &str| name.starts_with(THREADS) || name == "main";
            PANICS.fetch_add(usize::from(thread.name().is_some_and(is_ours)), Ordering::Relaxed);
            before(panic);
        }));
    });
    &PANICS
}

async fn no_number_causes_a_panic_or_affects_other_nodes() {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = of("QUORLOCK_SEED")
        .unwrap_or_else(|| u64::try_from(SystemClock::default().wall().as_micros()).unwrap());
    let servers = usize::try_from(of("QUORLOCK_HOSTILE").unwrap_or(300)).unwrap();
    println!("QUORLOCK_SEED={seed} QUORLOCK_HOSTILE={servers}");
    let before = panics().load(Ordering::Relaxed);
    let entropy = SeededEntropy::new(seed);
    let seed = seed.to_le_bytes().repeat(4);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(proptest::test_runner::Config::default(), rng);
    let (mut tried, mut replies, mut voting) = (0, 0, 0);
    while tried < servers {
        let asked: Vec<_> = (0..TOGETHER)
            .map(|_| {
                let babble = babble().new_tree(&mut runner).unwrap().current();
                let words = odd(&entropy, &String::from_utf8_lossy(&babble));
                let what = format!("{words:?}");
                tokio::spawn(async move { in_time(&what, ask(words, &what)).await })
            })
            .collect();
        tried += asked.len();
        for outcome in join_all(asked).await {
            let (answers, votes) = outcome.unwrap();
            (replies, voting) = (replies + answers, voting + usize::from(votes > 0));
        }
        assert_eq!(panics().load(Ordering::Relaxed), before, "a panic");
    }
    println!("{tried} servers gave {replies} replies, and {voting} of them votes");
    assert!(voting > tried / 4, "too few votes: {voting} of {tried}");
}
