//! Decides when to stop a command whose lock is running out. No clock here: `now` is an argument.

use std::time::Duration;

use quorlock::protocol::{LeaseTiming, Moment};

/// How long before the end of validity the command gets SIGTERM and SIGKILL.
///
/// The command must have ended *before* the lease expires, since another client may hold the lock from
/// then on. So the time for a clean shutdown is part of the validity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    /// SIGTERM when this much validity is left.
    term: Duration,
    /// SIGKILL when this much is left: time for the kernel to end it, and for us to be late.
    kill: Duration,
}

/// How far the stop of the command has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It runs under the lock.
    Running,
    /// It runs, and until this moment a renewal may come that a pause has held up.
    Late { until: Moment },
    /// It got SIGTERM, and gets SIGKILL at this moment.
    Asked { kill_at: Moment },
    /// It got SIGKILL.
    Killed,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Check again at this moment.
    Look(Moment),
    /// Check again at this moment; a renewal that a pause has held up may come until then.
    LetRenew { until: Moment },
    /// Send SIGTERM, and SIGKILL at this moment.
    Ask { kill_at: Moment },
    /// Send SIGKILL.
    Kill,
    /// Wait for its end.
    Wait,
}

/// How often to read the clock: timers do not run while the machine is suspended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Enough for the kernel on a busy machine to end a process.
const LEAST_MARGIN: Duration = Duration::from_millis(50);

impl Notice {
    /// Limits `kill_after` to the longest notice of the timing, and to a third of `max_hold`.
    pub(crate) fn new(kill_after: Duration, timing: &LeaseTiming, max_hold: Option<Duration>) -> Notice {
        let most = timing.longest_notice().min(max_hold.unwrap_or(Duration::MAX) / 3);
        let term = kill_after.min(most);
        let kill = LEAST_MARGIN.max(timing.proven() / 50).min(most / 2);
        Notice { term: term.max(kill), kill }
    }

    /// Returns when the guardian kills the group, with `remaining` validity at `now`: before the end, but
    /// after we would have done so.
    pub(crate) fn guard_until(&self, now: Moment, remaining: Duration) -> Moment {
        now + remaining.saturating_sub(self.kill / 2)
    }

    /// Returns what to do at `now`, with `remaining` validity. `overslept`: this is later than it was to be, since the
    /// machine or this process stood still. Renewals were held up as well, and one that is due succeeds in a moment if the
    /// nodes are well; it gets a quarter of the time that the command has to end.
    ///
    /// A renewal that succeeds after SIGTERM does not save the command: it may have stopped half of its
    /// work already.
    pub(crate) fn next(&self, stage: Stage, now: Moment, remaining: Duration, overslept: bool) -> Step {
        match stage {
            Stage::Running | Stage::Late { .. } if remaining > self.term => {
                // Often enough that the guardian learns of a renewal well before its deadline.
                Step::Look(now + remaining.saturating_sub(self.term).min(remaining / 2).min(LOOK_EVERY))
            }
            Stage::Late { until } if remaining > self.kill && now < until => Step::LetRenew { until },
            Stage::Running if remaining > self.kill && overslept => {
                Step::LetRenew { until: now + remaining.saturating_sub(self.kill) / 4 }
            }
            Stage::Running | Stage::Late { .. } if remaining > self.kill => {
                Step::Ask { kill_at: now + remaining.saturating_sub(self.kill) }
            }
            Stage::Asked { kill_at } if now < kill_at && !remaining.is_zero() => {
                Step::Look(kill_at.min(now + LOOK_EVERY))
            }
            Stage::Running | Stage::Late { .. } | Stage::Asked { .. } => Step::Kill,
            Stage::Killed => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use quorlock::protocol::Drift;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    fn now() -> Moment {
        Moment::since_origin(Duration::from_secs(100))
    }

    fn notice() -> Notice {
        Notice::new(Duration::from_secs(5), &LeaseTiming::new(TTL, Drift::default(), Duration::ZERO), None)
    }

    #[test]
    fn a_command_with_enough_validity_left_is_left_alone() {
        let look = notice().next(Stage::Running, now(), Duration::from_millis(5400), false);
        assert_eq!(look, Step::Look(now() + Duration::from_millis(400)));
    }

    #[test]
    fn it_is_asked_to_end_with_the_grace_before_the_end_of_validity() {
        let step = notice().next(Stage::Running, now(), Duration::from_secs(5), false);
        assert_eq!(step, Step::Ask { kill_at: now() + Duration::from_millis(4400) });
    }

    #[test]
    fn after_a_pause_a_renewal_comes_first_if_there_is_time() {
        let after_a_pause = |remaining| notice().next(Stage::Running, now(), remaining, true);
        let until = now() + Duration::from_millis(1100);
        assert_eq!(after_a_pause(Duration::from_secs(5)), Step::LetRenew { until });
        assert_eq!(after_a_pause(Duration::from_millis(600)), Step::Kill);
        assert!(matches!(after_a_pause(TTL), Step::Look(_)));
        // Whatever wakes it meanwhile, and only once.
        let later = |now, remaining| notice().next(Stage::Late { until }, now, remaining, true);
        assert_eq!(later(now(), Duration::from_secs(5)), Step::LetRenew { until });
        assert!(matches!(later(until, Duration::from_secs(4)), Step::Ask { .. }));
        assert!(matches!(later(until, TTL), Step::Look(_)));
        assert_eq!(later(now(), Duration::from_millis(600)), Step::Kill);
    }

    #[test]
    fn a_renewal_that_comes_too_late_does_not_save_it() {
        let kill_at = now() + Duration::from_millis(10);
        let stage = Stage::Asked { kill_at };
        assert_eq!(notice().next(stage, now(), TTL, false), Step::Look(kill_at));
        assert_eq!(notice().next(stage, kill_at, TTL, false), Step::Kill);
    }

    #[test]
    fn an_expired_lease_kills_immediately() {
        assert_eq!(notice().next(Stage::Running, now(), Duration::ZERO, true), Step::Kill);
        let stage = Stage::Asked { kill_at: now() + TTL };
        assert_eq!(notice().next(stage, now(), Duration::ZERO, true), Step::Kill);
        assert_eq!(notice().next(Stage::Killed, now(), Duration::ZERO, true), Step::Wait);
    }

    #[test]
    fn the_grace_leaves_room_for_renewals_whatever_the_settings() {
        let ttls = [20, 50, 150, 300, 1500, 30_000].map(Duration::from_millis);
        let ages = [0.0, 0.1, 0.3, 0.7];
        for (ttl, age) in ttls.into_iter().flat_map(|ttl| ages.map(|age| (ttl, ttl.mul_f64(age)))) {
            for drift in [0.0, 0.01, 0.2, 0.5] {
                let timing = LeaseTiming::new(ttl, Drift::of(drift).unwrap(), age);
                for kill_after in [Duration::ZERO, Duration::from_secs(5), Duration::MAX] {
                    if !timing.has_room() {
                        continue;
                    }
                    let notice = Notice::new(kill_after, &timing, None);
                    let when_renewal_is_due = timing.left_when_due(timing.renewal_every());
                    assert!(notice.term < when_renewal_is_due, "{notice:?} stops what is being renewed");
                    assert!(notice.kill <= notice.term, "{notice:?} kills before it asks");
                    assert!(notice.kill > Duration::ZERO, "{notice:?} kills too late");
                }
            }
        }
    }
}
