//! A command is left alone while its servers are sound, for ten TTLs and on each kind of node: no renewal may come so late,
//! or prove so little, that the command is asked to end before the next (rule I-50).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use futures::future::join_all;
use quorlock_testkit::{Engine, Servers, patience};

use crate::support::{CROWD, Quorlock, servers};
use crate::{etcd, zookeeper};

/// In seconds: on a machine with thirty times its work, servers need seconds for an answer.
const TTL: u64 = 5;

/// Other TTLs, in seconds, for a machine that has less to do: `QUORLOCK_STEADY=1,2,3,5,10,15` takes five minutes. What a kind
/// cannot keep is left out.
fn others() -> Option<Vec<u64>> {
    let asked = std::env::var("QUORLOCK_STEADY").ok()?;
    Some(asked.split(',').filter_map(|seconds| seconds.parse().ok()).collect())
}

/// A lock to hold: where, and with which TTL and for how long, in seconds.
struct Case {
    url: String,
    ttl: u64,
    time: u64,
}

impl Case {
    fn new(url: &str, ttl: u64) -> Case {
        Case { url: url.to_owned(), ttl, time: ttl * 10 }
    }

    /// On a session that is shorter than the TTL.
    fn on_session(self, session: u64) -> Case {
        Case { url: format!("{}?session={session}s", self.url), time: session.min(self.ttl) * 10, ..self }
    }

    /// Runs a command under a lock of its own. Returns why it ended before.
    async fn ends_early(&self, number: usize) -> Option<String> {
        let Case { url, ttl, time } = self;
        let [name, ttl, time] = [format!("steady/{number}"), format!("{ttl}s"), time.to_string()];
        let words = ["run", "-v", "-k", "1min", "-t", &ttl, "--max-ttl", "1min", &name, "--", "sleep", &time];
        let ended = Quorlock::new(words)
            .at(url)
            .start()
            .end_within(patience() + Duration::from_secs(self.time), || ())
            .await;
        (ended.code != Some(0)).then(|| format!("{url} with a TTL of {ttl}: {ended:#?}"))
    }
}

async fn all_last(cases: Vec<Case>) {
    let _no_crowd = CROWD.read().await;
    let ended = join_all(cases.iter().enumerate().map(|(number, case)| case.ends_early(number))).await;
    let ended: Vec<String> = ended.into_iter().flatten().collect();
    assert!(ended.is_empty(), "{} of {} were ended: {ended:#?}", ended.len(), cases.len());
}

/// Each TTL from the shortest on that the kind keeps.
fn on(url: &str, shortest: u64) -> Vec<Case> {
    let ttls = others().unwrap_or_else(|| vec![TTL]).into_iter().filter(|ttl| *ttl >= shortest);
    ttls.map(|ttl| Case::new(url, ttl)).collect()
}

#[tokio::test]
async fn i50_a_command_lasts_on_etcd() {
    let Some(programs) = etcd::programs() else { return };
    let cluster = programs.start(1).await.unwrap();
    // Several, because on some of them a renewal comes a millisecond before a heartbeat is too old to answer it.
    let url = cluster.url();
    all_last((0..4).flat_map(|_| on(&url, 2)).collect()).await;
}

#[tokio::test]
async fn i50_a_command_lasts_on_zookeeper() {
    let Some(programs) = zookeeper::programs() else { return };
    // Four ticks and more, and a TTL as long as the session, or longer. A busy machine needs a second between two renewals.
    let mut all = vec![(2000, 8, 8), (2000, 8, 30), (2000, 10, 10)];
    if others().is_some() {
        all.extend([(500, 2, 2), (500, 2, 10), (500, 3, 3), (500, 4, 30)]);
        all.extend(
            [8, 10, 12].into_iter().flat_map(|session| [session, 15, 30].map(|ttl| (2000, session, ttl))),
        );
    }
    let (mut ensembles, mut cases) = (BTreeMap::new(), Vec::new());
    for (tick, session, ttl) in all {
        if let Entry::Vacant(entry) = ensembles.entry(tick) {
            entry.insert(programs.start_with(1, &[&format!("tickTime={tick}")]).await.unwrap());
        }
        let url = format!("{}/steady", ensembles[&tick].url());
        cases.push(Case::new(&url, ttl).on_session(session));
    }
    all_last(cases).await;
}

#[tokio::test]
async fn i50_a_command_lasts_on_servers_and_databases() {
    let mut cases = Vec::new();
    let redis = servers(1).await;
    for url in redis.iter().flat_map(Servers::urls) {
        cases.extend(on(&url, 1));
    }
    let mut databases = Vec::new();
    for engine in [Engine::postgres(), Engine::mariadb()].into_iter().flatten() {
        databases.push(engine.start().await.unwrap());
    }
    for database in &databases {
        cases.extend(on(&database.url(), 1));
    }
    let folder = tempfile::tempdir().unwrap();
    cases.extend(on(&format!("sqlite://{}/locks.db", folder.path().display()), 1));
    all_last(cases).await;
}
