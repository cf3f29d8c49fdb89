//! The fencing check for data in Redis, on every real server found.

#[path = "../memory/fence/page.rs"]
mod page;
mod postgres;

use std::io::Write as _;

use quorlock::fence::{self, Stale};
use quorlock::{FencingToken, runtime::Entropy as _};
use quorlock_testkit::{Kind, Resp, SeededEntropy, Server, Servers};

async fn every_server() -> Vec<Servers> {
    let mut all = Vec::new();
    for kind in Kind::all_found() {
        all.push(Servers::setup().kind(kind).start(1).await.unwrap());
    }
    if all.is_empty() {
        // Not with `eprintln`, which the harness captures while a test passes.
        let why =
            "skipped: the script for fenced data needs a real server; install redis-server or valkey-server";
        drop(writeln!(std::io::stderr(), "{why}"));
    }
    all
}

async fn eval(server: &Server, words: &[&str]) -> Resp {
    server.command(&[&["EVAL", *page::SCRIPT, "1", "account/7"], words].concat()).await.unwrap()
}

async fn write(server: &Server, number: u64, fields: &[&str]) -> Result<(), Stale> {
    let token = FencingToken::new(number).unwrap();
    let Resp::Number(newest) = eval(server, &[&[&*token.to_string()], fields].concat()).await else {
        panic!("the script answers with a number")
    };
    fence::check(FencingToken::new(u64::try_from(newest).unwrap()), token)
}

async fn field(server: &Server, name: &str) -> String {
    server.command(&["HGET", "account/7", name]).await.unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_is_refused_and_changes_nothing() {
    for servers in every_server().await {
        let server = &servers[0];
        write(server, 33, &["balance", "100", "owner", "Anna"]).await.unwrap();
        write(server, 33, &["balance", "90"]).await.expect("the same holder again");
        write(server, 34, &[]).await.expect("a reader shows its token");
        let stale = write(server, 33, &["balance", "70"]).await.unwrap_err();
        assert_eq!(stale.newest, FencingToken::new(34));
        assert_eq!(
            (field(server, "balance").await, field(server, "owner").await),
            ("90".into(), "Anna".into())
        );

        server.command(&["HSET", "account/7", "balance", "70"]).await.unwrap();
        assert_eq!(field(server, "balance").await, "70", "without the script it is not refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_tokens_are_distinct() {
    for servers in every_server().await {
        let most = FencingToken::MAX.get();
        write(&servers[0], most, &["balance", "1"]).await.unwrap();
        let stale = write(&servers[0], most - 1, &["balance", "2"]).await.unwrap_err();
        assert_eq!(stale.newest, Some(FencingToken::MAX));
        assert_eq!(field(&servers[0], "fencing_token").await, most.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_write_nothing() {
    for servers in every_server().await {
        let server = &servers[0];
        write(server, 34, &["balance", "100"]).await.unwrap();
        for words in [&["35", "balance"][..], &["9007199254740992"], &["nan"], &["-1"], &["3e9"], &[""]] {
            assert!(matches!(eval(server, words).await, Resp::Error(_)), "{words:?}");
            assert_eq!(
                (field(server, "balance").await, field(server, "fencing_token").await),
                ("100".into(), "34".into())
            );
        }
        write(server, 35, &["fencing_token", "0"]).await.unwrap();
        assert_eq!(field(server, "fencing_token").await, "35", "the script reserves a field of that name");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_tokens_never_decrease_in_any_order() {
    for servers in every_server().await {
        let seed = std::process::id().into();
        println!("seed {seed}");
        let entropy = SeededEntropy::new(seed);
        // They grow slowly, so that early and late ones meet.
        let arrivals: Vec<u64> = (0..200).map(|place| place / 10 + entropy.next_u64() % 10).collect();
        let mut accepted = Vec::new();
        // Two concurrently: the server decides which of them is first.
        for pair in arrivals.chunks(2) {
            let outcomes = futures::future::join_all(pair.iter().map(|&number| {
                let server = &servers[0];
                async move { write(server, number, &["balance", &number.to_string()]).await }
            }))
            .await;
            let mut granted: Vec<u64> = pair
                .iter()
                .zip(outcomes)
                .filter_map(|(number, outcome)| outcome.is_ok().then_some(*number))
                .collect();
            granted.sort_unstable();
            accepted.extend(granted);
            assert_eq!(field(&servers[0], "balance").await, accepted.last().unwrap().to_string());
        }
        assert!(accepted.is_sorted(), "{accepted:?}");
    }
}

/// Reads or writes, the token, and whether it is accepted.
const READERS_AND_WRITERS: [(&str, u64, bool); 9] = [
    ("read", 30, true),
    ("write", 33, true),
    ("read", 30, false),
    ("read", 36, true),
    ("read", 35, true),
    ("write", 35, false),
    ("write", 40, true),
    ("read", 36, false),
    ("read", 40, true),
];

#[tokio::test(flavor = "multi_thread")]
async fn with_two_marks_late_writes_are_refused_and_readers_are_not() {
    for servers in every_server().await {
        let server = &servers[0];
        let eval = async |words: &[&str]| {
            server
                .command(&[&["EVAL", *page::SHARED_SCRIPT, "1", "account/7"], words].concat())
                .await
                .unwrap()
        };
        for (what, number, is_let_in) in READERS_AND_WRITERS {
            let text = number.to_string();
            let words = if what == "write" { &[what, &text, "balance", &text][..] } else { &[what, &text] };
            let Resp::Number(mark) = eval(words).await else { panic!("the script answers with a number") };
            let mark = FencingToken::new(u64::try_from(mark).unwrap());
            let shown = fence::check(mark, FencingToken::new(number).unwrap());
            assert_eq!(shown.is_ok(), is_let_in, "{what} {number}: {shown:?}");
        }
        assert_eq!(field(server, "balance").await, "40", "the last accepted write");
        for words in
            [&["read", "41", "balance"][..], &["look", "41"], &["read", "nan"], &["write", "41", "balance"]]
        {
            assert!(matches!(eval(words).await, Resp::Error(_)), "{words:?}");
        }
        assert_eq!(field(server, "fencing_token").await, "40");
    }
}
