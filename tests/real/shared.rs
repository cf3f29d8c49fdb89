//! The scripts for shared locks, compared with a small model, on a node in memory and on a real server:
//! any requests in any order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Token, WaiterId};
use quorlock::{
    node::{Node, Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{MemoryNode, Servers};

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire,
    Renew,
    Release,
    Cancel,
    Intend,
    Desist,
}

/// The caller, as a writer or as a reader.
type Done = (Act, u128, bool);

fn acts() -> impl Strategy<Value = Vec<Done>> {
    let act = prop_oneof![
        4 => Just(Act::Acquire),
        3 => Just(Act::Renew),
        3 => Just(Act::Release),
        1 => Just(Act::Cancel),
        1 => Just(Act::Intend),
        1 => Just(Act::Desist),
    ];
    prop::collection::vec((act, 0..5_u128, prop::bool::weighted(0.7)), 1..40)
}

/// The expected state of a node. Nothing expires here.
#[derive(Default)]
struct Model {
    writer: Option<u128>,
    readers: BTreeSet<u128>,
    intents: BTreeSet<u128>,
    cancelled: BTreeSet<u128>,
}

impl Model {
    fn say(&mut self, (act, who, shares): Done) -> &'static str {
        let alone = self.writer == Some(who);
        let is_free = self.writer.is_none() && self.readers.is_empty();
        let cancelled = self.cancelled.contains(&who);
        match act {
            Act::Intend => {
                self.intents.insert(who);
                "granted"
            }
            Act::Desist => {
                if self.intents.remove(&who) {
                    "granted"
                } else {
                    "free"
                }
            }
            Act::Acquire if cancelled => "free",
            Act::Acquire if shares && self.writer.is_some() => "held",
            Act::Acquire if shares && self.readers.contains(&who) => "granted",
            Act::Acquire if shares && !self.intents.is_empty() => "behind",
            Act::Acquire if shares => {
                self.readers.insert(who);
                "granted"
            }
            Act::Acquire if is_free => {
                self.writer = Some(who);
                "granted"
            }
            Act::Acquire => {
                if alone {
                    "granted"
                } else {
                    "held"
                }
            }
            Act::Renew if shares && alone => {
                self.writer = None;
                self.readers.insert(who);
                "granted"
            }
            Act::Renew if shares && self.writer.is_none() && self.readers.contains(&who) => "granted",
            Act::Renew if shares && self.writer.is_some() => "held",
            Act::Renew if !shares && alone => "granted",
            Act::Renew if !shares && !is_free => "held",
            Act::Renew if cancelled => "free",
            Act::Renew => {
                if shares {
                    self.readers.insert(who);
                } else {
                    self.writer = Some(who);
                }
                "restored"
            }
            Act::Release | Act::Cancel => {
                let went = if alone {
                    self.writer = None;
                    true
                } else {
                    shares && self.readers.remove(&who)
                };
                if matches!(act, Act::Cancel) {
                    self.cancelled.insert(who);
                }
                if went { "granted" } else { "free" }
            }
        }
    }
}

fn request(key: &str, (act, who, shares): Done) -> Request {
    let claim = Claim::new(key.into(), Token::new(who, "other"));
    let claim = Arc::new(if shares { claim.shared() } else { claim });
    let waiter = WaiterId::new(u64::try_from(who).unwrap());
    match act {
        Act::Acquire => {
            let fence_hint =
                Some(FenceHint::at(SystemClock::default().wall(), Some(FencingToken::ZERO), LONG));
            Request::Acquire { claim, ttl: LONG, fence_hint }
        }
        Act::Renew => Request::Renew { claim, ttl: LONG, fencing_token: None },
        Act::Release => Request::Release { claim },
        Act::Cancel => Request::Cancel { claim, linger: LONG },
        Act::Intend => Request::AnnounceWriter { key: key.into(), waiter, patience: LONG },
        Act::Desist => Request::WithdrawWriter { key: key.into(), waiter },
    }
}

fn word(vote: &Vote) -> &'static str {
    match vote {
        // The vote also tells a refused caller whether the next holder is notified of a release.
        Vote::Granted | Vote::ReleasedContended => "granted",
        Vote::Restored => "restored",
        Vote::Held(_) => "held",
        Vote::NotYourTurn => "behind",
        Vote::Free => "free",
        Vote::FenceAhead | _ => "something else",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_requests_are_answered_as_by_the_model() {
    let servers = Servers::start(1).await.unwrap();
    let real = RedisNode::new(Address::parse(&servers[0].url()).unwrap());
    let memory = MemoryNode::new("memory");
    let nodes: [&dyn Node; 2] = [&real, &memory];
    let mut runner = TestRunner::new(Config::default());
    let mut behind = 0;
    for round in 0..300 {
        let acts = acts().new_tree(&mut runner).unwrap().current();
        for node in nodes {
            let (key, mut model) = (format!("any/{round}"), Model::default());
            for (step, done) in acts.iter().enumerate() {
                let reply = ask(node, request(&key, *done)).await.unwrap();
                let wanted = model.say(*done);
                let found = word(&reply.vote);
                assert_eq!(found, wanted, "{} at step {step} of {acts:?}", node.name());
                behind += usize::from(found == "behind");
            }
            let held = ask(node, Request::inspect(key.as_str())).await.unwrap().vote;
            let readers = if let Vote::Held(holding) = held { holding.readers.len() } else { 0 };
            assert_eq!(readers, model.readers.len(), "{} after {acts:?}", node.name());
        }
    }
    assert!(behind > 50, "{behind} times in 600 runs a reader met an intent: too few to prove anything");
}
