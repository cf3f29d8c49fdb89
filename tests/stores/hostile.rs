//! What the tests of databases that attack have in common: those of each crate include this file.

use std::time::Duration;

use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock::{Coordinator, Wait};
use quorlock_testkit::hostile::{Attack, HostileServer, KEY, To, in_process_of_its_own};

use super::{Kind, survive_all};

/// How long a client waits for a connection that the server delays.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

/// Bytes without a meaning, at each of three stages of a connection. Half of them are `packed`: they have a header that fits.
pub(crate) fn babble(
    packed: impl Fn(usize, &[u8]) -> Vec<u8>,
    at: impl Fn(usize, Attack, Vec<u8>) -> Attack,
) -> Vec<Attack> {
    let entropy = SystemEntropy::default();
    let attack = |number: usize| {
        let count = usize::try_from(entropy.next_u64() % 64).unwrap_or_default();
        let body: Vec<u8> = (0..count).map(|_| entropy.next_u64().to_le_bytes()[0]).collect();
        let babble = if count.is_multiple_of(2) { body } else { packed(count, &body) };
        let stage = number % 3;
        println!("babble at stage {stage}: {babble:?}");
        at(stage, Attack::new("babble", "").within(SHORT), babble)
    };
    (0..15).map(attack).collect()
}

/// Returns why no lock is acquired at this URL, where the server answers whatever the host.
pub(crate) async fn refusal(server: &HostileServer, url: String) -> String {
    let builder = Coordinator::builder().kind(Kind::new()).dial(To(server.address()));
    let coordinator = builder.nodes([url]).connect_timeout(Duration::from_millis(300)).build().unwrap();
    format!("{:#}", coordinator.lock(KEY).wait(Wait::Never).acquire().await.unwrap_err())
}

/// Runs the two tests below.
pub(crate) fn survive_in_processes_of_their_own() {
    in_process_of_its_own("hostile::common::attacks_with_one_thread");
    in_process_of_its_own("hostile::common::attacks_with_two_threads");
}

#[tokio::test]
#[ignore = "run by a test of each crate, in a process of its own"]
async fn attacks_with_one_thread() {
    survive_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by a test of each crate, in a process of its own"]
async fn attacks_with_two_threads() {
    survive_all().await;
}
