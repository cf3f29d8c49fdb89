use std::num::NonZeroU64;
use std::sync::Arc;

use super::*;
use crate::machine::tests::{FIVE, Fake};
use crate::node::{Expiry, Holding, Identity};
use crate::votes::VoteOutcome;
use crate::{Drift, FencingToken, Quarantine, Token};

const TTL: Duration = Duration::from_secs(10);
/// Of `Five`, whose round trips are not known.
const LIMIT: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);
const BEGUN: Moment = Moment::from_nanos(5_000_000_000);

/// A round, and the time.
struct Bench {
    round: Round,
    now: Moment,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Expect::Hold, |_| Asked::Now)
    }

    fn of(expect: Expect, asked: impl Fn(usize) -> Asked) -> Bench {
        Bench { round: Round::new(&FIVE, question(expect), BEGUN, asked), now: BEGUN }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn hear(&mut self, node: usize, result: Result<Response, NodeError>) -> bool {
        self.round.handle_response(&FIVE, node, result, self.now).is_news
    }

    fn vote(&mut self, node: usize, vote: Vote) -> bool {
        self.hear(node, Ok(response(vote, &node.to_string())))
    }

    fn grant(&mut self, node: usize) -> bool {
        self.vote(node, Vote::Granted)
    }

    fn refuse(&mut self, node: usize) -> bool {
        self.vote(node, Holding::new(Token::new(9, ""), Expiry::In(TTL)).into())
    }

    fn fail(&mut self, node: usize) -> bool {
        self.hear(node, Err(NodeError::NotAsked))
    }

    fn verdict(&mut self) -> Option<Verdict> {
        self.round.decide(&FIVE, self.now)
    }

    fn outcome(&self, node: usize) -> VoteOutcome {
        self.round.report(&FIVE, self.now).votes()[node].outcome.clone()
    }
}

fn question(expect: Expect) -> Question {
    Question { expect, takes_free: false, ttl: TTL }
}

fn response(vote: Vote, process: &str) -> Response {
    Response::new(vote, Arc::new(Identity::new(process, Moment::ORIGIN, Duration::ZERO)))
}

#[test]
fn only_an_answer_that_can_decide_is_news() {
    let mut bench = Bench::new();
    assert_eq!(
        (bench.grant(4), bench.fail(3), bench.grant(0)),
        (false, false, false),
        "three may be a quorum"
    );
    assert_eq!(bench.verdict(), None);
    assert!(bench.grant(1));
    assert_eq!(bench.verdict(), Some(Verdict::Won));
    assert!(bench.grant(2), "it is the last");
    assert!(bench.round.all_responded() && !bench.round.all_voted());
}

#[test]
fn as_many_failures_as_a_quorum_has_nodes_to_spare_decide() {
    let mut bench = Bench::new();
    assert_eq!((bench.fail(0), bench.fail(1)), (false, false));
    assert!(bench.fail(2));
    assert_eq!(bench.verdict(), Some(Verdict::Unavailable));
}

#[test]
fn nodes_that_need_not_be_asked_count_as_granted() {
    assert_eq!(Bench::of(Expect::Hold, |_| Asked::Never).verdict(), Some(Verdict::Won));
    let mut bench = Bench::of(Expect::Hold, |node| if node > 1 { Asked::Now } else { Asked::Never });
    assert_eq!(bench.verdict(), None);
    assert!(bench.grant(3));
    assert_eq!(bench.verdict(), Some(Verdict::Won));
}

#[test]
fn a_node_that_is_asked_later_has_a_timeout_of_its_own() {
    let mut bench = Bench::of(Expect::Hold, |_| Asked::Later);
    assert_eq!((bench.round.poll_timeout(bench.now), bench.round.is_unasked(2)), (None, true));
    bench.pass(MOMENT);
    bench.round.ask(&FIVE, 2, bench.now);
    assert_eq!((bench.round.asked_at(2), bench.round.is_unasked(2)), (Some(bench.now), false));
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + MOMENT + LIMIT));
    assert_eq!(bench.round.key_states().get(2), KeyState::InFlight);
    assert_eq!(bench.round.key_states().get(1), KeyState::Without);
    let report = bench.round.report(&FIVE, bench.now);
    assert_eq!(report.votes()[1].outcome, VoteOutcome::Failed(NodeError::NotAsked));
    assert_eq!(report.votes()[2].outcome, VoteOutcome::Pending);
}

#[test]
fn after_a_node_times_out_each_answer_is_news() {
    let mut bench = Bench::new();
    bench.pass(LIMIT.saturating_sub(MOMENT));
    assert!(!bench.grant(0));
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + LIMIT));
    bench.pass(MOMENT);
    assert_eq!(bench.round.poll_timeout(bench.now), None);
    assert_eq!(bench.verdict(), Some(Verdict::Unavailable), "four have timed out");
    assert_eq!(bench.outcome(1), VoteOutcome::Failed(NodeError::Unanswered { waited: LIMIT }));
    let heard = bench.round.handle_response(&FIVE, 1, Ok(response(Vote::Granted, "1")), bench.now);
    assert_eq!(heard, Heard { is_news: true, is_late: true, is_lost: false });
}

#[test]
fn a_verdict_by_silence_changes_with_a_late_answer() {
    let mut bench = Bench::new();
    bench.grant(0);
    bench.grant(1);
    bench.pass(LIMIT);
    assert_eq!(bench.verdict(), Some(Verdict::Unavailable));
    bench.grant(2);
    assert_eq!(bench.verdict(), Some(Verdict::Won));
}

#[test]
fn a_verdict_in_time_does_not_change() {
    let mut bench = Bench::new();
    for node in 0..3 {
        bench.refuse(node);
    }
    assert_eq!(bench.verdict(), Some(Verdict::Contended));
    bench.pass(LIMIT * 2);
    assert_eq!(bench.verdict(), Some(Verdict::Contended));
}

#[test]
fn i47_once_enough_nodes_answer_the_others_have_less_time() {
    let mut bench = Bench::new();
    bench.grant(0);
    bench.grant(1);
    bench.pass(MOMENT);
    assert!(bench.refuse(2), "the two others may grant, but with a shorter timeout");
    assert_eq!(bench.round.poll_timeout(bench.now), Some(bench.now + LEAST_PATIENCE));
    assert_eq!(bench.verdict(), None);
    bench.pass(LEAST_PATIENCE);
    assert_eq!(bench.verdict(), Some(Verdict::Contended));
}

#[test]
fn i47_votes_that_do_not_count_shorten_no_timeout() {
    let mut bench = Bench::new();
    for node in 0..2 {
        bench.hear(node, Ok(response(Vote::Granted, "one")));
    }
    bench.refuse(2);
    bench.pass(LEAST_PATIENCE * 2);
    assert_eq!(bench.verdict(), None, "without the others it is unknown whether the key is free");
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + LIMIT));
}

#[test]
fn an_inspection_leaves_silent_nodes_more_time_and_that_after_its_verdict_too() {
    let mut bench = Bench::of(Expect::AnyAnswer, |_| Asked::Now);
    for node in 0..3 {
        bench.vote(node, Vote::Granted);
    }
    assert_eq!(bench.verdict(), Some(Verdict::Won));
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + INSPECT_PATIENCE));
}

#[test]
fn i2_two_answers_of_one_process_are_one_vote_in_whichever_order_they_come() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut bench = Bench::new();
        for node in order {
            bench.hear(node, Ok(response(Vote::Granted, if node == 1 { "one" } else { "two" })));
        }
        assert_eq!(bench.verdict(), None, "two processes are no quorum");
        assert!(matches!(bench.outcome(2), VoteOutcome::Duplicate { .. }), "the first of a process counts");
        bench.grant(3);
        assert_eq!(bench.verdict(), Some(Verdict::Won));
    }
}

#[test]
fn c7_two_nodes_with_a_common_member_are_one_vote() {
    let mut bench = Bench::new();
    for (node, members) in [["a", "b"], ["b", "c"], ["x", "y"]].into_iter().enumerate() {
        let members = Arc::new(members.map(Arc::from).into_iter().collect());
        let identity = Identity::new(node.to_string(), Moment::ORIGIN, Duration::ZERO).with_members(members);
        bench.hear(node, Ok(Response::new(Vote::Granted, Arc::new(identity))));
    }
    assert_eq!(bench.verdict(), None, "two clusters are no quorum");
    assert!(matches!(bench.outcome(1), VoteOutcome::Duplicate { .. }));
    bench.grant(3);
    assert_eq!(bench.verdict(), Some(Verdict::Won));
}

#[test]
fn i26_a_node_with_another_ones_identity_takes_no_vote() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]] {
        let mut bench = Bench::new();
        for node in order {
            let vote = if node == 0 { Vote::Free } else { Vote::Granted };
            // The first reports the second's identity, and refuses.
            bench.hear(node, Ok(response(vote, &node.max(1).to_string())));
        }
        assert_eq!(bench.verdict(), Some(Verdict::Won), "three have granted: {order:?}");
        assert!(matches!(bench.outcome(0), VoteOutcome::Duplicate { .. }));
    }
}

#[test]
fn i26_a_key_restored_by_one_address_of_a_server_is_not_confirmed_by_another() {
    for restored in [0, 1] {
        let mut bench = Bench::new();
        for node in 0..4 {
            let vote = if node == restored { Vote::Restored } else { Vote::Granted };
            bench.hear(node, Ok(response(vote, &node.max(1).to_string())));
        }
        assert_eq!(
            bench.round.tally(&FIVE, BEGUN).granted(),
            2,
            "another client may have held it in between"
        );
    }
}

#[test]
fn what_was_asked_decides_what_a_vote_means() {
    use VoteOutcome::{FenceAhead, Free, Granted, NotYourTurn, Restored};
    let outcome = |expect, takes_free, vote: Vote| {
        let mut round = Round::new(&FIVE, Question { takes_free, ..question(expect) }, BEGUN, |_| Asked::Now);
        round.handle_response(
            &FIVE,
            0,
            Ok(response(vote, "0").with_fencing_token(FencingToken::new(7))),
            BEGUN,
        );
        round.outcome_of(&FIVE, 0, BEGUN).unwrap()
    };
    for (expect, vote, means) in [
        (Expect::Hold, Vote::Granted, Granted),
        (Expect::Hold, Vote::Notified, Granted),
        (Expect::Hold, Vote::Restored, Restored),
        (Expect::Hold, Vote::Free, Free),
        (Expect::Number, Vote::FenceAhead, FenceAhead),
        (Expect::Number, Vote::NotYourTurn, NotYourTurn),
        (Expect::Released, Vote::Free, Granted),
        (Expect::Released, Vote::ReleasedContended, Granted),
        (Expect::AnyAnswer, Vote::Waiters(Box::default()), Granted),
        (Expect::AnyAnswer, Vote::Log(Box::default()), Granted),
        (Expect::AnyAnswer, Vote::Free, Free),
        (Expect::Holder, Vote::Free, Free),
    ] {
        assert_eq!(outcome(expect, false, vote.clone()), means, "{expect:?} {vote:?}");
    }
    assert_eq!(outcome(Expect::Hold, true, Vote::Restored), Granted, "it counts for the next holder");
}

#[test]
fn what_is_left_on_a_node_follows_from_its_answer() {
    use KeyState::{Holds, InFlight, Unknown, Without};
    let mut bench = Bench::new();
    bench.grant(0);
    bench.vote(1, Vote::Restored);
    bench.refuse(2);
    bench.hear(3, Err(NodeError::Disconnected { reason: "gone".into() }));
    let states = |round: &Round| [0, 1, 2, 3, 4].map(|node| round.key_states().get(node));
    assert_eq!(states(&bench.round), [Holds, Holds, Without, Unknown, InFlight]);
    bench.fail(4);
    assert_eq!(states(&bench.round), [Holds, Holds, Without, Unknown, Without]);
    let mut released = Bench::of(Expect::Released, |_| Asked::Now);
    released.grant(0);
    assert_eq!(released.round.key_states().get(0), Without);
}

/// Nodes of one host that vote once they are a minute old.
fn guarded() -> Fake {
    Fake {
        quarantine: Quarantine::new(Duration::from_secs(60), Drift::default()),
        is_on_one_host: true,
        ..FIVE
    }
}

#[test]
fn i12_a_node_is_as_old_as_when_it_was_asked() {
    let nodes = guarded();
    let mut round = Round::new(&nodes, question(Expect::Hold), BEGUN, |_| Asked::Now);
    let aged = |age| Arc::new(Identity::new("0", BEGUN, Duration::from_secs(age)));
    let later = BEGUN + Duration::from_secs(1);
    round.handle_response(&nodes, 0, Ok(Response::new(Vote::Granted, aged(60))), later);
    assert!(
        matches!(round.outcome_of(&nodes, 0, later), Some(VoteOutcome::Quarantined { left, .. }) if left < LIMIT)
    );
    round.handle_response(&nodes, 1, Ok(Response::new(Vote::Granted, aged(62))), later);
    assert_eq!(round.key_states().get(0), KeyState::Holds, "it has stored the key");
}

fn numbered(numbers: [u64; 3]) -> Bench {
    let mut bench = Bench::of(Expect::Number, |_| Asked::Now);
    for (node, number) in numbers.into_iter().enumerate() {
        let vote = response(Vote::Granted, &node.to_string()).with_fencing_token(FencingToken::new(number));
        bench.hear(node, Ok(vote));
    }
    bench
}

#[test]
fn f2_a_number_stands_if_a_quorum_carries_it_and_the_next_one_is_written_back_otherwise() {
    let number = |numbers| numbered(numbers).round.number(&FIVE, Verdict::Won);
    let token = |number| FencingToken::new(number).unwrap();
    assert_eq!(number([7, 7, 7]), Number::Drawn(Some(token(7))));
    assert_eq!(number([7, 9, 8]), Number::WriteBack(token(10)));
    assert_eq!(numbered([7, 7, 7]).round.number(&FIVE, Verdict::Contended), Number::Drawn(None));
    assert_eq!(Bench::new().round.number(&FIVE, Verdict::Won), Number::Drawn(None), "fencing is off");
    assert_eq!(numbered([7, 9, 8]).round.largest_number(&FIVE), Some(token(9)));
}

#[test]
fn f11_a_vote_without_a_number_or_with_an_implausible_one_does_not_count() {
    let mut bench = Bench::of(Expect::Number, |_| Asked::Now);
    bench.grant(0);
    let years = FIVE.wall() + Duration::from_secs(60 * 60 * 24 * 366 * 20);
    let ahead = FencingToken::new(u64::try_from(years.as_micros()).unwrap());
    bench.hear(1, Ok(response(Vote::Granted, "1").with_fencing_token(ahead)));
    assert!(matches!(bench.outcome(0), VoteOutcome::Failed(NodeError::Unfit { .. })));
    assert!(matches!(bench.outcome(1), VoteOutcome::Failed(NodeError::Unfit { .. })));
    assert_eq!(bench.round.largest_number(&FIVE), None);
    assert_eq!(bench.round.largest_number(&guarded()), ahead, "the clock of this host has drawn it");
}

#[test]
fn i7_a_grant_counts_from_the_latest_moment_that_a_quorum_names() {
    let mut bench = Bench::new();
    assert_eq!(bench.round.counts_from(&FIVE), BEGUN, "no vote names one");
    let ago = |millis| BEGUN.back(Duration::from_millis(millis));
    for (node, from) in [ago(300), ago(100), ago(200)].into_iter().enumerate() {
        bench.hear(node, Ok(response(Vote::Granted, &node.to_string()).counting_from(from)));
    }
    assert_eq!(bench.round.counts_from(&FIVE), ago(300));
    bench.grant(3);
    assert_eq!(bench.round.counts_from(&FIVE), ago(200), "the fourth counts from when it was asked");
    let late = BEGUN + Duration::from_millis(5);
    bench.hear(4, Ok(response(Vote::Granted, "4").counting_from(late)));
    assert_eq!(bench.round.counts_from(&FIVE), ago(100), "never from after that");
}

/// As a node that lies may name.
#[test]
fn i7_one_node_that_names_an_early_moment_decides_nothing_while_others_may_grant() {
    for early in [Moment::ORIGIN, BEGUN.back(TTL / 10 + MOMENT)] {
        let grants = || {
            let mut bench = Bench::new();
            bench.hear(0, Ok(response(Vote::Granted, "0").counting_from(early)));
            bench.grant(1);
            assert!(!bench.grant(2) || bench.verdict().is_none(), "it would count from {early:?}");
            assert_eq!(bench.verdict(), None);
            bench
        };
        let mut bench = grants();
        assert!(bench.grant(3), "now three have granted without it");
        assert_eq!((bench.verdict(), bench.round.counts_from(&FIVE)), (Some(Verdict::Won), BEGUN));
        let mut bench = grants();
        bench.refuse(3);
        assert_eq!(bench.verdict(), None);
        bench.fail(4);
        assert_eq!((bench.verdict(), bench.round.counts_from(&FIVE)), (Some(Verdict::Won), early));
        let mut bench = grants();
        bench.pass(LIMIT);
        assert_eq!(bench.verdict(), Some(Verdict::Won), "the others are silent");
        assert_eq!(bench.round.counts_from(&FIVE), early);
    }
}

/// As all nodes name that live on sessions.
#[test]
fn i7_a_moment_that_shortens_the_lease_by_little_is_waited_for_no_longer() {
    let mut bench = Bench::new();
    for (node, early) in [TTL / 10, TTL / 20, TTL / 30].into_iter().enumerate() {
        assert_eq!(bench.verdict(), None);
        bench.hear(node, Ok(response(Vote::Granted, &node.to_string()).counting_from(BEGUN.back(early))));
    }
    assert_eq!(bench.verdict(), Some(Verdict::Won), "two may still grant");
    assert_eq!(bench.round.counts_from(&FIVE), BEGUN.back(TTL / 10));
}

#[test]
fn f9_an_attempt_with_a_number_has_half_the_longest_ttl() {
    let drift = Drift::default();
    let bound = Duration::from_secs(4);
    let in_time = |bench: &Bench, after| bench.round.is_in_time(&FIVE, drift, bound, BEGUN + after);
    let fenced = numbered([7, 7, 7]);
    assert!(in_time(&fenced, bound.saturating_sub(MOMENT)) && !in_time(&fenced, bound));
    let plain = Bench::new();
    let valid = drift.validity(TTL);
    assert!(in_time(&plain, valid.saturating_sub(MOMENT)) && !in_time(&plain, valid));
    assert_eq!(plain.round.deadline(&FIVE, drift), BEGUN + valid);
}

#[test]
fn an_offer_is_heard_once_from_each_node_for_as_long_as_it_lives() {
    let mut round = Round::offered(&FIVE, Expect::Hold, BEGUN, TTL / 2);
    assert_eq!(round.poll_timeout(BEGUN), Some(BEGUN + TTL / 2));
    let offer = |round: &mut Round, node: usize| {
        round.handle_offer(&FIVE, node, response(Vote::Granted, &node.to_string()), BEGUN)
    };
    assert!(offer(&mut round, 0).is_some_and(|heard| !heard.is_news));
    assert_eq!(offer(&mut round, 0), None);
    offer(&mut round, 1);
    assert!(offer(&mut round, 2).is_some_and(|heard| heard.is_news));
    assert_eq!(round.decide(&FIVE, BEGUN), Some(Verdict::Won));
}

#[test]
fn a_refusal_is_known_as_soon_as_the_node_has_answered() {
    let mut bench = Bench::new();
    assert_eq!(bench.round.refuses(&FIVE, 0, bench.now), None);
    bench.refuse(0);
    bench.grant(1);
    bench.fail(2);
    assert_eq!(
        [0, 1, 2].map(|node| bench.round.refuses(&FIVE, node, bench.now)),
        [Some(true), Some(false), Some(false)]
    );
    bench.pass(LIMIT);
    assert_eq!(bench.round.refuses(&FIVE, 3, bench.now), Some(false), "silence is no refusal");
    assert_eq!(bench.round.count_votes(|_, vote| matches!(vote, Vote::Held(_))), 1);
}

#[test]
fn only_a_single_store_has_a_number_of_its_own() {
    let vote = || response(Vote::Granted, "0").with_store_revision(NonZeroU64::new(5));
    let single = Fake { nodes: 1, ..FIVE };
    let mut one = Round::new(&single, question(Expect::Hold), BEGUN, |_| Asked::Now);
    one.handle_response(&single, 0, Ok(vote()), BEGUN);
    assert_eq!(one.store_revision(), NonZeroU64::new(5));
    let mut several = Bench::new();
    several.hear(0, Ok(vote()));
    assert_eq!(several.round.store_revision(), None);
}

#[test]
fn timeouts_are_shortened_once_and_not_after_a_verdict() {
    let mut bench = Bench::new();
    bench.fail(0);
    bench.grant(1);
    bench.grant(2);
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + LIMIT), "two votes count");
    assert!(bench.refuse(3), "three do");
    assert_eq!(bench.round.poll_timeout(bench.now), Some(BEGUN + LEAST_PATIENCE));
    let mut split = Bench::new();
    split.grant(0);
    split.refuse(1);
    assert!(split.refuse(2));
    assert!(!split.grant(3), "nothing has changed for who waits");
    let mut won = Bench::new();
    for node in 0..3 {
        won.grant(node);
    }
    assert_eq!(won.round.poll_timeout(won.now), Some(BEGUN + LIMIT), "no caller waits for the others");
}

#[test]
fn a_round_is_settled_when_all_nodes_have_answered() {
    let mut bench = Bench::new();
    assert_eq!(bench.round.sent(), BEGUN);
    for node in 0..5 {
        assert!(!bench.round.is_settled() && !bench.round.all_voted());
        assert!(bench.round.response_of(node).is_none());
        bench.grant(node);
        assert!(bench.round.response_of(node).is_some_and(Result::is_ok));
    }
    assert!(bench.round.is_settled() && bench.round.all_voted());
}
