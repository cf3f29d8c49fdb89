//! How long the ticks of the servers are, and which sessions they allow.

use std::time::Duration;

use quorlock::node::places::{CALL_LIMIT, Member, failed};
use quorlock::node::{NodeError, NodeErrorKind};
use tokio::sync::mpsc::channel;

use crate::address::ZooKeeperAddress;
use crate::client::{Client, Wanted};
use crate::memory::{Memory, Proven, Ticks};

/// The length of a tick, unless an administrator has set it.
const USUAL: Duration = Duration::from_secs(2);
/// How many writes keep a session in the time of its timeout, unless ticks are longer.
const PARTS: u32 = 10;
/// How many ticks a session lasts at least. Fewer would leave no room for two renewals: with four, 1.5 of them may pass before
/// a write is proven.
const LEAST_TICKS: u32 = 4;

impl Proven {
    /// What is known of a session before the servers were asked for their ticks: those may be as long as it allows.
    pub(crate) fn at_worst(session: Duration) -> Proven {
        let tick = session / LEAST_TICKS;
        Ticks { least: tick, tick }.proven(session)
    }

    /// Returns by how much a grant or a renewal may count from before it was asked for: nothing lives longer than the session,
    /// and that it lives is proven with some delay.
    pub(crate) fn grant_age(self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.session).saturating_add(self.age)
    }
}

impl Ticks {
    /// Learns of the length of the servers' ticks what they show: the shortest session that they grant has two, the longest
    /// twenty, unless an administrator has set that otherwise (`minSessionTimeout`, `maxSessionTimeout`).
    pub(super) async fn ask(
        address: &ZooKeeperAddress,
        member: &Member,
        memory: &Memory,
    ) -> Result<Ticks, NodeError> {
        let ask = async |timeout| {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let (client, granted) =
                Client::connect(address, member, &memory.local.seams, wanted, channel(1).0).await?;
            client.close().await;
            Ok::<Duration, NodeError>(granted.timeout)
        };
        let longest = Duration::from_millis(u64::from(i32::MAX.unsigned_abs()));
        let (least, most) = futures::try_join!(ask(Duration::from_millis(1)), ask(longest))?;
        Ok(Ticks::of(least, most))
    }

    /// Where the two contradict each other, either the longest session was raised, which says nothing of the ticks, or the
    /// shortest was lowered. Then ticks are no longer than usual, or shorter than twice that: the leader asks for the sessions
    /// that live twice in a tick.
    fn of(least: Duration, most: Duration) -> Ticks {
        Ticks { least, tick: (least / 2).max((most / 20).min(USUAL)) }
    }

    /// How long to wait between two writes that keep a session: with long ticks half a tick, so that two of these pauses pass
    /// before a write is proven, and the next proof comes half a tick later.
    pub(super) fn pause(self, session: Duration) -> Duration {
        let part = session / PARTS;
        if part >= self.tick { part } else { self.tick / 2 }
    }

    /// Returns how old what is proven of a session may be, between two of the writes that keep it.
    fn proof_age(self, session: Duration) -> Duration {
        let pause = self.pause(session);
        self.tick.max(pause) + pause
    }

    /// Returns for how long, and from how long ago, a session of this timeout is proven.
    pub(super) fn proven(self, session: Duration) -> Proven {
        Proven { session, age: self.proof_age(session) }
    }

    /// Refuses a session that is too short for these ticks.
    pub(super) fn allow(self, session: Duration) -> Result<(), NodeError> {
        let least = self.least.max(self.tick * LEAST_TICKS);
        if session >= least {
            return Ok(());
        }
        let words = format!(
            "its servers have ticks of up to {:?}, and so keep sessions of {least:?} or more, and the session of this node is \
             {session:?}: write `?session={}s` in the URL, or lower tickTime",
            self.tick,
            least.as_millis().div_ceil(1000),
        );
        Err(failed(NodeErrorKind::Misconfigured, words))
    }
}

#[cfg(test)]
mod tests {
    use quorlock::protocol::{Drift, LeaseTiming, Moment};

    use super::*;
    use crate::proof::Proof;

    const MS: Duration = Duration::from_millis(1);

    /// The time in which a proof comes must fit twice between a renewal and the notice to a program.
    #[test]
    fn two_renewals_prove_more_before_the_last_notice_on_all_ticks_and_ttls_that_are_allowed() {
        let mut refused = 0;
        for tick in [10, 500, 1000, 2000, 3000] {
            for (ticks, ttls) in
                [(4, 1), (4, 3), (4, 20), (5, 1), (6, 1), (8, 1), (10, 1), (15, 2), (20, 1), (20, 40)]
            {
                let ticks_of = Ticks { least: tick * 2 * MS, tick: tick * MS };
                let session = tick * ticks * MS;
                ticks_of.allow(session).unwrap();
                let known = ticks_of.proven(session);
                let worst = Proven::at_worst(session);
                assert!(known.age <= worst.age, "{known:?} {worst:?}");
                let ttl = session * ttls;
                for proven in [known, worst] {
                    let timing = LeaseTiming::new(ttl, Drift::default(), proven.grant_age(ttl));
                    if !timing.has_room() {
                        refused += 1;
                        continue;
                    }
                    let room = timing.left_by_renewal().saturating_sub(timing.longest_notice());
                    let pause = ticks_of.pause(session);
                    assert!(room >= pause * 2, "{room:?} for {pause:?}: {timing:?}");
                }
            }
        }
        assert!(refused > 0 && refused < 30, "{refused}");
    }

    #[test]
    fn a_write_is_proven_after_at_most_this_time() {
        for (session, tick) in [(30, 2), (10, 2), (8, 2), (12, 2), (4, 1)] {
            let ticks = Ticks { least: Duration::ZERO, tick: Duration::from_secs(tick) };
            let (session, round_trip) = (Duration::from_secs(session), 3 * MS);
            let mut now = Moment::since_origin(1000 * MS);
            let mut proof = Proof::of_new(now, ticks.tick);
            for _ in 0..100 {
                now = now + ticks.pause(session);
                let age = (now + round_trip).since(proof.from());
                assert!(age <= ticks.proven(session).age + round_trip * 4, "{session:?} {tick}: {age:?}");
                proof.committed(now, now + round_trip);
                now = now + round_trip;
            }
        }
    }

    #[test]
    fn ticks_are_those_of_the_shortest_session_however_long_the_longest_is() {
        let tick = |least, most| Ticks::of(Duration::from_millis(least), Duration::from_millis(most)).tick;
        for (least, most, expected) in [
            (4000, 40_000, 2000),
            (400, 4000, 200),
            (12_000, 120_000, 6000),
            // `maxSessionTimeout` of their own.
            (4000, 300_000, 2000),
            (4000, 60_000_000, 2000),
            (400, 60_000_000, 2000),
            (4000, 10_000, 2000),
            // `minSessionTimeout` of their own.
            (1000, 40_000, 2000),
            (1000, 60_000, 2000),
        ] {
            assert_eq!(tick(least, most), Duration::from_millis(expected), "{least} {most}");
        }
    }
}
