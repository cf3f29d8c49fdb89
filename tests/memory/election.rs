//! Leader election: who leads, who follows, and what those are told who only watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Bench, MS, TTL, bench, client, unnotified};
use crate::way::Way;
use futures::future::select;
use quorlock::protocol::Token;
use quorlock::{
    AcquireError, ConfigError, Coordinator, Election, LossReason, Observer, Wait, election::Observed,
    node::Expiry,
};
use quorlock_testkit::{MemoryNode, SeededEntropy, Value};

fn election(coordinator: &Coordinator) -> Election {
    coordinator.election("r").ttl(TTL)
}

/// An election in a process of its own.
fn elsewhere(bench: &Bench) -> Election {
    election(&client(bench))
}

fn leader_of(observed: &Observed) -> Option<&str> {
    match observed {
        Observed::Leader(leader) => Some(&leader.value),
        Observed::NoLeader | Observed::Unknown(_) => None,
    }
}

/// The next leader that is observed, skipping the time without one.
async fn next_leader(observer: &mut Observer) -> String {
    loop {
        if let Some(value) = leader_of(&observer.changed().await) {
            return value.to_owned();
        }
    }
}

/// What is observed within this time, if anything.
async fn observed_within(bench: &Bench, time: Duration, observer: &mut Observer) -> Option<Observed> {
    tokio::select! {
        biased;
        next = observer.changed() => Some(next),
        () = bench.pass(time) => None,
    }
}

fn inspections(nodes: &[MemoryNode]) -> usize {
    nodes.iter().map(|node| node.requests().inspect).sum()
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_resigning_elects_the_next() {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    let first = elsewhere(&bench).campaign("first").await.unwrap();
    let (second, clock) = (elsewhere(&bench), bench.clock.clone());
    let second = tokio::spawn(async move { (second.campaign("second").await.unwrap(), clock.now()) });
    bench.pass(TTL * 3).await;
    first.check().expect("it is renewed");
    assert!(!second.is_finished(), "two leaders");
    let resigned = bench.clock.now();
    let before = first.fencing_token();
    first.resign().await.unwrap();
    let (second, elected) = second.await.unwrap();
    assert!(second.fencing_token() > before);
    // To the nodes, the hints back, one round to the preferred node, one to the rest.
    assert!(elected.since(resigned) <= 40 * MS, "{:?}", elected.since(resigned));
}

#[tokio::test(start_paused = true)]
async fn an_observer_yields_each_leader_with_value_and_token() {
    let bench = bench(5);
    bench.delay(2 * MS, 2 * MS);
    let mut observer = elsewhere(&bench).observe().unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
    for round in 0..5 {
        let value = format!("http://10.0.0.{round}:80");
        let leadership = elsewhere(&bench).campaign(&value).await.unwrap();
        let elected = bench.clock.now();
        let Observed::Leader(leader) = observer.changed().await else { panic!("there is a leader") };
        assert_eq!(leader.value, value);
        assert_eq!(leader.token, *leadership.token());
        assert_eq!(leader.fencing_token, Some(leadership.fencing_token()));
        assert!(
            (Expiry::In(TTL * 9 / 10)..=Expiry::In(TTL)).contains(&leader.remaining),
            "{:?}",
            leader.remaining
        );
        assert!(
            bench.clock.now().since(elected) <= 30 * MS,
            "it is notified, and does not wait for its heartbeat"
        );
        bench.pass(Duration::from_secs(1)).await;
        let resigned = bench.clock.now();
        leadership.resign().await.unwrap();
        assert_eq!(observer.changed().await, Observed::NoLeader);
        assert!(bench.clock.now().since(resigned) <= 30 * MS, "{:?}", bench.clock.now().since(resigned));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_stays_taken_after_its_lease_has_no_leader() {
    let bench = bench(5);
    let mut observer = elsewhere(&bench).observe().unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
    let leadership = elsewhere(&bench).campaign("first").await.unwrap();
    assert_eq!(next_leader(&mut observer).await, "first");
    leadership.into_lease().retain(TTL, "note").await.unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn an_observer_on_the_coordinator_of_the_candidates_is_not_late() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let election = election(&client);
    let mut observer = election.observe().unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
    let mut expect_leader = async |expected: Option<&str>| {
        let now = observed_within(&bench, 30 * MS, &mut observer).await.expect("it waits for its heartbeat");
        assert_eq!(leader_of(&now), expected);
    };
    for _ in 0..3 {
        let first = election.campaign("first").await.unwrap();
        expect_leader(Some("first")).await;
        let next = tokio::spawn({
            let election = election.clone();
            async move { election.campaign("next").await.unwrap() }
        });
        bench.settle().await;
        // It is passed on, and free at no moment.
        first.resign().await.unwrap();
        let next = next.await.unwrap();
        expect_leader(Some("next")).await;
        bench.pass(TTL).await;
        next.resign().await.unwrap();
        expect_leader(None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_an_expired_leader_and_silent_nodes() {
    let bench = bench(5);
    for node in &bench.nodes {
        node.hints(false);
    }
    let mut observer = elsewhere(&bench).observe().unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
    let leadership = elsewhere(&bench).max_hold(TTL / 2).campaign("a").await.unwrap();
    let elected = bench.clock.now();
    assert_eq!(leader_of(&observer.changed().await), Some("a"));
    assert!(bench.clock.now().since(elected) <= Duration::from_secs(4), "the heartbeat is there for that");
    assert_eq!(leadership.lost().await.reason, LossReason::MaxHold);
    assert_eq!(observer.changed().await, Observed::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn no_leader_is_not_reported_without_a_quorum() {
    let bench = bench(5);
    let leadership = elsewhere(&bench).campaign("a").await.unwrap();
    let mut observer = elsewhere(&bench).observe().unwrap();
    assert_eq!(leader_of(&observer.changed().await), Some("a"));
    for node in &bench.nodes[..2] {
        node.hang();
    }
    let still = observed_within(&bench, TTL, &mut observer).await;
    assert_eq!(still, None, "three of five are a quorum");
    bench.nodes[2].hang();
    let Observed::Unknown(report) = observer.changed().await else { panic!("two may not speak for five") };
    assert_eq!(report.votes().len(), 5);
    drop(leadership);
    bench.pass(3 * TTL).await;
    for node in &bench.nodes {
        node.resume();
    }
    assert_eq!(observer.changed().await, Observed::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_reported_once_though_its_caller_cancels() {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    let mut observer = elsewhere(&bench).observe().unwrap();
    let leadership = elsewhere(&bench).campaign("a").await.unwrap();
    let before = inspections(&bench.nodes);
    let mut next = Vec::new();
    for _ in 0..2_000 {
        tokio::select! {
            biased;
            new = observer.changed() => next.push(new),
            () = bench.pass(MS) => {}
        }
    }
    assert_eq!(next.iter().map(leader_of).collect::<Vec<_>>(), [Some("a")]);
    let asked = inspections(&bench.nodes) - before;
    assert!(asked <= 5 * 5, "giving up is no reason to ask again: {asked} requests in 2 s");
    leadership.resign().await.unwrap();
    loop {
        tokio::select! {
            biased;
            new = observer.changed() => break assert_eq!(new, Observed::NoLeader),
            () = bench.pass(MS) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_a_closed_coordinator_asks_nothing_more() {
    let bench = bench(5);
    let coordinator = client(&bench);
    let mut observer = election(&coordinator).observe().unwrap();
    assert_eq!(observer.changed().await, Observed::NoLeader);
    coordinator.close(Duration::ZERO).await;
    let before = inspections(&bench.nodes);
    let _leadership = elsewhere(&bench).campaign("a").await.unwrap();
    assert_eq!(observed_within(&bench, TTL, &mut observer).await, None);
    assert_eq!(inspections(&bench.nodes), before);
}

#[tokio::test(start_paused = true)]
async fn an_observer_asks_at_renewals_and_heartbeats() {
    let bench = bench(5);
    let _leadership = elsewhere(&bench).campaign("a").await.unwrap();
    let mut observer = elsewhere(&bench).observe().unwrap();
    observer.changed().await;
    let before = inspections(&bench.nodes);
    assert_eq!(
        observed_within(&bench, Duration::from_secs(60), &mut observer).await,
        None,
        "nothing has changed"
    );
    let rounds = (inspections(&bench.nodes) - before) / 5;
    // 18 renewals, and a heartbeat a second at the most.
    assert!((18..=18 + 60).contains(&rounds), "{rounds} rounds in a minute");
}

#[tokio::test(start_paused = true)]
async fn an_observer_stays_cheap_though_leaders_change_constantly() {
    let bench = bench(5);
    let mut observer = elsewhere(&bench).observe().unwrap();
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = changes.clone();
    let observing = tokio::spawn(async move {
        loop {
            observer.changed().await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    bench.settle().await;
    let (before, end) = (inspections(&bench.nodes), bench.clock.now() + Duration::from_secs(2));
    let election = elsewhere(&bench);
    let mut terms = 0;
    while bench.clock.now() < end {
        let leadership = election.campaign("a").await.unwrap();
        bench.pass(MS).await;
        leadership.resign().await.unwrap();
        terms += 1;
    }
    observing.abort();
    let rounds = (inspections(&bench.nodes) - before) / 5;
    assert!(terms > 300, "{terms} leaders are too few to keep an observer busy");
    assert!(rounds <= 200 + 2, "{rounds} rounds in 2 s for {terms} leaders");
    assert!(changes.load(Ordering::Relaxed) > 20, "it goes on telling");
}

#[tokio::test(start_paused = true)]
async fn work_is_repeated_until_it_ends_within_one_leadership() {
    let bench = bench(5);
    let begun = Arc::new(AtomicUsize::new(0));
    let (election, clock, counted) = (elsewhere(&bench), bench.clock.clone(), begun.clone());
    let leading = tokio::spawn(async move {
        election
            .lead("a", async |leadership| {
                counted.fetch_add(1, Ordering::Relaxed);
                clock.sleep_until(clock.now() + TTL).await;
                leadership.check().unwrap();
                42
            })
            .await
    });
    bench.pass(TTL / 2).await;
    for node in &bench.nodes {
        node.restart_empty();
        node.age(TTL * 100);
    }
    assert_eq!(leading.await.unwrap().unwrap(), 42);
    assert_eq!(begun.load(Ordering::Relaxed), 2, "once before the loss, and once after");
    bench.settle().await;
    assert_eq!(bench.keys(), 0, "it has resigned");
}

#[tokio::test(start_paused = true)]
async fn inspect_finds_the_leader() {
    let bench = bench(5);
    let election = election(&bench.coordinator);
    assert_eq!(election.leader().await.unwrap(), Observed::NoLeader);
    let _leadership = elsewhere(&bench).campaign("a b").await.unwrap();
    let observed = election.leader().await.unwrap();
    assert_eq!(leader_of(&observed), Some("a b"));
    assert!(
        observed.to_string().starts_with("led by ") && observed.to_string().ends_with(" a b"),
        "{observed}"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_refused_before_any_request() {
    let bench = bench(5);
    let nameless = bench.coordinator.election("");
    assert!(matches!(nameless.observe(), Err(ConfigError::Resource(_))));
    let endless = "x".repeat(201);
    let refused = election(&bench.coordinator).campaign(&endless).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Config(ConfigError::LabelTooLong { length: 201, .. })));
    let _leadership = elsewhere(&bench).campaign("a").await.unwrap();
    let impatient = election(&bench.coordinator).wait(Wait::Never);
    assert!(matches!(impatient.campaign("b").await, Err(AcquireError::Contended { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_leader_stops_before_the_next_begins() {
    for seed in 1..=20 {
        let bench = bench(5);
        let way = Way::default();
        let isolated = way.client(&bench, |builder| builder.entropy(SeededEntropy::new(1_000 + seed)));
        let leadership = election(&isolated).campaign("ann").await.unwrap();
        let others = ["bob", "cid"].map(|name| {
            let election = elsewhere(&bench);
            tokio::spawn(async move { election.campaign(name).await.unwrap() })
        });
        bench.pass(TTL + MS * u32::try_from(seed).unwrap() * 173).await;
        assert!(leadership.check().is_ok() && others.iter().all(|other| !other.is_finished()), "seed {seed}");
        way.cut();
        let (watch, clock) = (leadership.watch(), bench.clock.clone());
        let stopped = tokio::spawn(async move {
            watch.lost().await;
            clock.now()
        });
        let [bob, cid] = others;
        let (next, _) = select(bob, cid).await.factor_first();
        let begins = bench.clock.now();
        assert!(leadership.check().is_err() && stopped.await.unwrap() < begins, "seed {seed}");
        next.unwrap().check().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn data_of_another_program_is_no_leader() {
    let bench = bench(5);
    bench.nodes.iter().for_each(|node| node.set_data("r", "an invoice", Expiry::Never));
    let seen = elsewhere(&bench).observe().unwrap().changed().await;
    assert!(matches!(seen, Observed::Unknown(_)), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_as_soon_as_its_keys_expire() {
    let bench = bench(5);
    let died = bench.clock.now();
    for node in &bench.nodes {
        let left = Token::new(7, "db-7:4121 the late").as_bytes().to_vec();
        node.set_data("r", Value::Text(left), Expiry::In(TTL));
    }
    let mut observer = elsewhere(&bench).observe().unwrap();
    assert_eq!(leader_of(&observer.changed().await), Some("the late"));
    let _leadership = elsewhere(&bench).campaign("next").await.unwrap();
    let elected = bench.clock.now().since(died);
    assert!((TTL..=TTL + 50 * MS).contains(&elected), "{elected:?}");
    assert_eq!(next_leader(&mut observer).await, "next");
    assert!(bench.clock.now().since(died) <= TTL + 100 * MS);
}
