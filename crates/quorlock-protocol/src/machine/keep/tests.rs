use super::*;
use crate::Token;
use crate::machine::tests::{FIVE, Fake, response};
use crate::machine::{Asked, Expect, Machine as _, Question};
use crate::node::{Expiry, Holding, NodeError, Vote};

const TTL: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(1_000_000 + millis))
}

fn keep() -> Keep {
    Keep::new(RenewalSchedule::new(Some(TTL / 3), TTL, at(0)))
}

/// A renewal sent at this moment, and its votes.
fn round(sent: Moment, votes: &[Cast]) -> Round {
    round_of(&FIVE, sent, votes)
}

fn round_of(nodes: &Fake, sent: Moment, votes: &[Cast]) -> Round {
    let question = Question { expect: Expect::Kept, takes_free: false, ttl: TTL };
    let mut round = Round::new(nodes, question, sent, |_| Asked::Now);
    for (node, vote) in votes.iter().enumerate() {
        answer(&mut round, nodes, node, *vote);
    }
    round
}

/// A millisecond after the round was sent.
fn answer(round: &mut Round, nodes: &Fake, node: usize, vote: Cast) {
    let vote = vote.result().map(|vote| response(node, vote));
    let _ = round.handle_response(nodes, node, vote, round.sent() + Duration::from_millis(1));
}

use Cast::{Failed, Granted, Lacks, Restored};

#[derive(Clone, Copy)]
enum Cast {
    Granted,
    Restored,
    Lacks,
    Failed,
}

impl Cast {
    fn result(self) -> Result<Vote, NodeError> {
        match self {
            Granted => Ok(Vote::Granted),
            Restored => Ok(Vote::Restored),
            Lacks => Ok(Vote::from(Holding::new(Token::new(9, ""), Expiry::In(TTL)))),
            Failed => Err(NodeError::NotAsked),
        }
    }
}

/// What the verdict on a renewal of these votes means, for a lease that is valid for so long.
fn counted(votes: &[Cast], valid_until: Moment, now: Moment) -> (Renewed, Keep, Term) {
    let (mut keep, term) = (keep(), Term::until(valid_until));
    let sent = at(10_000);
    keep.renew(None, sent);
    assert_eq!(keep.poll_timeout(valid_until), valid_until, "nothing is due while it renews");
    assert_eq!(keep.due(now, || false, || 0), None);
    let mut round = round(sent, votes);
    let verdict = round.decide(&FIVE, now).unwrap();
    let renewed = keep.count(&FIVE, (&round, verdict), (&term, Moment::NEVER, Drift::default()), now);
    (renewed, keep, term)
}

#[test]
fn i7_a_confirmed_renewal_counts_from_before_it_was_sent() {
    let votes = [Granted, Granted, Granted, Lacks, Lacks];
    let (renewed, _, term) = counted(&votes, at(29_000), at(12_000));
    let deadline = Drift::default().deadline(at(10_000), TTL);
    assert_eq!(renewed, Renewed::Confirmed(deadline));
    assert_eq!(term.remaining(at(12_000)), Some(deadline));
}

#[test]
fn no_renewal_moves_the_deadline_beyond_the_longest_hold() {
    let (mut keep, term) = (keep(), Term::until(at(29_000)));
    keep.renew(None, at(10_000));
    let mut round = round(at(10_000), &[Granted, Granted, Granted]);
    let verdict = round.decide(&FIVE, at(10_001)).unwrap();
    let limits = (&term, at(31_000), Drift::default());
    assert!(matches!(keep.count(&FIVE, (&round, verdict), limits, at(10_001)), Renewed::Confirmed(_)));
    assert_eq!(term.remaining(at(10_001)), Some(at(31_000)));
}

#[test]
fn i9_a_renewal_that_is_confirmed_too_late_ends_the_lease() {
    let votes = [Granted, Granted, Granted];
    let (renewed, _, term) = counted(&votes, at(12_000), at(12_000));
    assert_eq!((renewed, term.remaining(Moment::ORIGIN)), (Renewed::Late, None));
}

#[test]
fn i11_a_failed_renewal_changes_nothing_and_is_tried_again() {
    let votes = [Granted, Granted, Failed, Failed, Failed];
    let (renewed, keep, term) = counted(&votes, at(29_000), at(10_002));
    assert_eq!((renewed, term.remaining(at(10_002))), (Renewed::Unconfirmed, Some(at(29_000))));
    let due = keep.schedule().due().unwrap();
    assert!(due > at(10_002) && due <= at(10_302), "within a hundredth of the TTL: {due:?}");
}

#[test]
fn i11_enough_nodes_without_the_key_end_the_lease() {
    let two = [Lacks, Lacks, Failed, Failed, Granted];
    assert_eq!(counted(&two, at(29_000), at(10_002)).0, Renewed::Unconfirmed);
    let three = [Lacks, Lacks, Restored, Failed, Granted];
    assert_eq!(counted(&three, at(29_000), at(10_002)).0, Renewed::QuorumLost);
}

#[test]
fn i11_with_an_even_number_of_nodes_a_lease_that_cannot_be_renewed_is_lost_only_with_one_node_more() {
    let four = Fake { nodes: 4, ..FIVE };
    for (last, then) in [(Granted, Renewed::Unconfirmed), (Lacks, Renewed::QuorumLost)] {
        let mut keep = keep();
        keep.renew(None, at(10_000));
        let mut round = round_of(&four, at(10_000), &[Lacks, Restored, Failed]);
        assert_eq!(
            round.decide(&four, at(10_002)),
            None,
            "the last one decides whether another client has a quorum"
        );
        answer(&mut round, &four, 3, last);
        let verdict = round.decide(&four, at(10_002)).unwrap();
        let limits = (&Term::until(at(29_000)), Moment::NEVER, Drift::default());
        assert_eq!(keep.count(&four, (&round, verdict), limits, at(10_002)), then);
    }
}

#[test]
fn a_renewal_is_put_off_while_many_others_are_in_flight() {
    let mut keep = keep();
    assert_eq!(keep.due(at(9_999), || false, || 0), None);
    assert_eq!(keep.due(at(10_000), || true, || u64::MAX), None);
    assert_eq!(keep.poll_timeout(at(29_000)), at(10_300), "a hundredth of the TTL");
    assert_eq!(keep.due(at(10_300), || false, || 0), Some(Due::Renewal));
}

#[test]
fn i40_what_earlier_rounds_left_is_not_forgotten() {
    let mut keep = keep();
    let left = |state| Some(KeyStates::of([state, KeyState::Without]));
    keep.renew(left(KeyState::InFlight), at(1));
    keep.abandon();
    assert_eq!(keep.left(None).get(0), KeyState::InFlight, "no round has followed");
    keep.renew(left(KeyState::Holds), at(2));
    assert_eq!((keep.left(None).get(0), keep.left(None).get(1)), (KeyState::Unknown, KeyState::Without));
}

fn states(states: [KeyState; 5]) -> KeyStates {
    KeyStates::of(states)
}

/// What is asked again, where the latest round has left this.
fn repaired(
    keep: &mut Keep,
    left: [KeyState; 5],
    open_since: Option<Moment>,
    now: Moment,
) -> Option<Vec<usize>> {
    let latest = Latest { states: states(left), open_since };
    let lacking = keep.repair(&FIVE, latest, now, || false)?;
    Some((0..5).filter(|node| lacking.contains(*node)).collect())
}

#[test]
fn i38_nodes_that_lack_the_key_are_asked_again_while_no_more_than_a_quorum_has_it() {
    use KeyState::{Holds, InFlight, Unknown, Without};
    let mut keep = keep();
    assert!(!keep.look(&FIVE, states([Holds, Holds, Holds, Holds, Without]), at(0)), "more than a quorum");
    assert!(
        !keep.look(&FIVE, states([Holds, Holds, Holds, InFlight, InFlight]), at(0)),
        "they may yet grant"
    );
    assert!(keep.look(&FIVE, states([Holds, Holds, Holds, Without, Unknown]), at(0)));
    assert_eq!(keep.poll_timeout(at(29_000)), at(10), "ten milliseconds at most");
    assert_eq!(keep.due(at(9), || false, || 0), None);
    assert_eq!(keep.due(at(10), || false, || 0), Some(Due::Repair));
    assert_eq!(repaired(&mut keep, [Holds, Holds, Holds, Without, Unknown], None, at(10)), Some(vec![3, 4]));
    // One of them has granted by now: that is enough.
    assert_eq!(repaired(&mut keep, [Holds, Holds, Holds, Holds, Unknown], None, at(40)), None);
    assert_eq!(keep.due(at(5_000), || false, || 0), None);
}

#[test]
fn a_node_that_is_silent_after_a_repair_is_not_asked_once_more() {
    use KeyState::{Holds, InFlight, Without};
    let mut keep = keep();
    assert!(keep.look(&FIVE, states([Holds, Holds, Holds, Without, Without]), at(0)));
    assert_eq!(repaired(&mut keep, [Holds, Holds, Holds, Without, Without], None, at(10)), Some(vec![3, 4]));
    let open = [Holds, Holds, Holds, Without, InFlight];
    assert_eq!(repaired(&mut keep, open, Some(at(10)), at(40)), None, "it may answer");
    assert_eq!(repaired(&mut keep, open, Some(at(10)), at(3_010)), Some(vec![3]));
    let other = [Holds, Holds, Holds, Without, Without];
    assert_eq!(repaired(&mut keep, other, None, at(3_100)), Some(vec![3]));
}

#[test]
fn i38_the_first_renewal_ends_the_repairs() {
    let mut keep = keep();
    assert!(keep.look(&FIVE, states([KeyState::Holds; 5].map(|_| KeyState::Without)), at(0)));
    keep.renew(None, at(5));
    keep.abandon();
    assert_eq!(keep.due(at(9_000), || false, || 0), None);
}

#[test]
fn i38_requests_in_flight_may_yet_be_granted() {
    use KeyState::{Holds, InFlight, Without};
    assert!(!keep().look(&FIVE, states([Holds, InFlight, InFlight, InFlight, InFlight]), at(0)));
    let is_short = |held: usize, nodes: usize| {
        let states = (0..nodes).map(|node| if node < held { Holds } else { Without });
        keep().look(&Fake { nodes, ..FIVE }, KeyStates::of(states), at(0))
    };
    assert_eq!([2, 3, 4, 5].map(|held| is_short(held, 5)), [true, true, false, false]);
    assert!(!is_short(1, 1), "there is no other node");
}

#[test]
fn repairs_wait_while_many_leases_are_renewed_and_never_for_longer_than_a_tenth_of_the_ttl() {
    use KeyState::{Holds, Without};
    let mut keep = Keep::new(RenewalSchedule::new(None, TTL, at(0)));
    let left = states([Holds, Holds, Holds, Without, Without]);
    assert!(keep.look(&FIVE, left, at(0)));
    let latest = Latest { states: left, open_since: None };
    let mut now = at(10);
    for _ in 0..20 {
        assert_eq!(keep.repair(&FIVE, latest, now, || true), None);
        let next = keep.poll_timeout(now + TTL);
        assert!(next > now && next <= now + TTL / 10, "{next:?} after {now:?}");
        now = next;
    }
    assert!(keep.repair(&FIVE, latest, now, || false).is_some());
    keep.stop_repairs();
    assert_eq!(keep.due(now + TTL / 10, || true, || 0), None);
}

#[test]
fn a_confirmation_that_leaves_little_is_warned_of_once() {
    let timing = LeaseTiming::new(TTL, Drift::default(), Duration::ZERO);
    let now = at(12_000);
    let mut keep = keep();
    keep.renew(None, at(10_000));
    let mut warned = |left: Duration| keep.confirmed(&FIVE, &timing, now + left, now);
    let limit = timing.warned_below(timing.renewal_every());
    assert!(limit < timing.left_when_due(timing.renewal_every()), "one is due before");
    assert!(!warned(TTL), "the next one is due later");
    assert!(!warned(limit), "it is tried again, without a warning");
    assert!(warned(limit.saturating_sub(Duration::from_millis(1))));
    assert!(!warned(Duration::from_millis(1)), "it was warned of");
    assert!(!warned(TTL) && warned(Duration::from_millis(1)), "a new series");
}

#[test]
fn a_node_that_answers_in_time_is_not_taken_for_silent() {
    use KeyState::{Holds, InFlight, Without};
    let both = [Holds, Holds, Holds, Without, Without];
    let mut early = keep();
    assert!(early.look(&FIVE, states(both), at(0)));
    let first = [Holds, Holds, Holds, Without, InFlight];
    assert_eq!(repaired(&mut early, first, Some(at(0)), at(10)), Some(vec![3]), "the other votes yet");
    assert_eq!(repaired(&mut early, both, None, at(40)), Some(vec![3, 4]));
    let mut slow = keep();
    assert!(slow.look(&FIVE, states(both), at(0)));
    assert_eq!(repaired(&mut slow, both, None, at(10)), Some(vec![3, 4]));
    assert_eq!(repaired(&mut slow, first, Some(at(10)), at(40)), None, "it may answer");
    assert_eq!(repaired(&mut slow, both, None, at(100)), Some(vec![3, 4]), "it has");
}

/// Confirms the renewal that is sent at this moment, and returns when the next is due.
fn renewed(keep: &mut Keep, sent: Moment) -> Moment {
    let term = Term::until(sent + TTL);
    keep.renew(None, sent);
    let mut round = round(sent, &[Granted, Granted, Granted]);
    let verdict = round.decide(&FIVE, sent).unwrap();
    let limits = (&term, Moment::NEVER, Drift::default());
    let Renewed::Confirmed(deadline) = keep.count(&FIVE, (&round, verdict), limits, sent) else { panic!() };
    keep.confirmed(&FIVE, &LeaseTiming::new(TTL, Drift::default(), Duration::ZERO), deadline, sent);
    keep.poll_timeout(Moment::NEVER)
}

#[test]
fn i52_a_hint_asks_for_a_renewal_and_counts_for_nothing() {
    let mut keep = keep();
    assert!(keep.handle_hint(&FIVE, at(3_000)));
    assert_eq!(keep.poll_timeout(at(29_000)), at(3_000));
    assert_eq!(keep.due(at(3_000), || false, || 0), Some(Due::Renewal));
    assert_eq!(renewed(&mut keep, at(3_000)), at(13_000), "the next is due as usual");
    keep.renew(None, at(13_000));
    assert!(!keep.handle_hint(&FIVE, at(13_000)), "one is in flight");
    keep.abandon();
    keep.renew(None, at(13_001));
    assert_eq!(keep.poll_timeout(Moment::NEVER), Moment::NEVER);
}

#[test]
fn i52_a_hint_during_a_renewal_asks_for_another_one() {
    let mut keep = keep();
    keep.renew(None, at(10_000));
    keep.handle_hint(&FIVE, at(10_000));
    keep.is_renewing = false;
    keep.confirmed(&FIVE, &LeaseTiming::new(TTL, Drift::default(), Duration::ZERO), at(39_000), at(10_001));
    assert_eq!(keep.poll_timeout(Moment::NEVER), at(10_001));
}

#[test]
fn i52_many_hints_ask_for_a_renewal_once_in_a_thirtieth_of_the_ttl() {
    let (mut keep, mut now) = (keep(), at(1_000));
    for node in 0..5 {
        assert!(keep.handle_hint(&FIVE, now), "{node}");
        assert_eq!(keep.poll_timeout(Moment::NEVER), now);
        assert_eq!(renewed(&mut keep, now), now + TTL / 3);
    }
    for _ in 0..3 {
        assert!(keep.handle_hint(&FIVE, now));
        now = now + TTL / 30;
        assert_eq!(keep.poll_timeout(Moment::NEVER), now);
        renewed(&mut keep, now);
    }
    now = now + TTL / 3;
    renewed(&mut keep, now);
    assert!(keep.handle_hint(&FIVE, now) && keep.poll_timeout(Moment::NEVER) == now, "after a usual one");
}
