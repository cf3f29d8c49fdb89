use super::*;
use crate::machine::tests::{self, at, report};
use crate::votes::{QuarantineCause, VoteOutcome};

const NOW: Moment = Moment::ORIGIN;

fn by(token: u128) -> VoteOutcome {
    VoteOutcome::Held(tests::held(token))
}

/// One client has a quorum.
fn held() -> VoteReport {
    report([by(7), by(7), by(7), by(7), by(7)])
}

/// No client has one.
fn split() -> VoteReport {
    report([VoteOutcome::Granted, VoteOutcome::Granted, by(7), by(7), by(8)])
}

fn young() -> VoteReport {
    let young = || VoteOutcome::Quarantined { left: Duration::from_secs(30), cause: QuarantineCause::Recent };
    report([young(), young(), young(), VoteOutcome::Granted, VoteOutcome::Granted])
}

fn contest(waits_by: WaitsBy, patience: Patience) -> Contest {
    let mut contest = Contest::new(false);
    contest.begin(waits_by, patience);
    contest
}

fn pause(contest: &mut Contest, report: &VoteReport) -> Pause {
    contest.pause((Verdict::Contended, report), |_, _| 5, || u64::MAX, NOW)
}

#[test]
fn a_waiter_goes_into_the_queue_once_others_want_the_lock_and_when_its_turn_is_over() {
    let mut contest = contest(WaitsBy::Queue, Patience::Endless);
    assert_eq!(contest.next(false, true, NOW), Step::Ask, "no other client is known to want it");
    assert_eq!(contest.lost(&held(), None, (NOW, NOW)), Lost::GoesOn);
    let mut rest = pause(&mut contest, &held());
    assert_eq!(contest.then(Verdict::Contended, true, &mut rest, NOW), Then::Next);
    assert_eq!(contest.next(false, true, NOW), Step::Queue);
    assert_eq!(contest.next(false, false, NOW), Step::Ask, "no node has a queue");
    contest.has_turn(at(25));
    assert_eq!([at(24), at(25)].map(|now| contest.next(false, true, now)), [Step::Ask, Step::Queue]);
    assert_eq!(contest.next(true, true, at(24)), Step::TakeOffer, "also in a turn");
    assert_eq!(contest.order(true), AskOrder::AllAtOnce);
    assert_eq!(contest.then(Verdict::Contended, true, &mut rest, NOW), Then::Pause);
    assert_eq!(rest.until, at(25), "no longer than the turn");
    contest.is_offered();
    assert_eq!(contest.next(false, true, at(1)), Step::Queue, "an offer ends the turn");
}

#[test]
fn a_waiter_that_no_node_queued_asks_for_a_place_again_a_second_later() {
    let mut contest = contest(WaitsBy::Queue, Patience::Endless);
    contest.back_off();
    contest.is_not_queued();
    contest.lost(&held(), None, (NOW, NOW));
    assert!(contest.announces_writer(true), "it is in no queue");
    let mut rest = Pause { until: at(5_000), ..pause(&mut contest, &held()) };
    assert_eq!(contest.then(Verdict::Contended, true, &mut rest, NOW), Then::Pause);
    assert_eq!(rest.until, at(1_000));
    assert_eq!(contest.next(false, true, at(1_000)), Step::Queue);
    assert!(!contest.announces_writer(true), "it is asked for its place first");
}

#[test]
fn a_process_that_was_asked_to_let_others_go_first_takes_the_lock_for_wanted() {
    let mut contest = contest(WaitsBy::Places, Patience::Endless);
    assert_eq!((contest.is_contended(), contest.order(true)), (false, AskOrder::AllAtOnce));
    contest.back_off();
    assert!(contest.is_contended() && matches!(contest.order(true), AskOrder::PreferredFirst(_)));
}

#[test]
fn only_a_waiter_in_no_queue_announces_a_writer() {
    let announces = |waits_by, patience, has_queue| contest(waits_by, patience).announces_writer(has_queue);
    assert!(announces(WaitsBy::Queue, Patience::Endless, false));
    assert!(!announces(WaitsBy::Queue, Patience::Endless, true));
    assert!(!announces(WaitsBy::Places, Patience::Endless, false));
    assert!(!announces(WaitsBy::Queue, Patience::None, false), "it does not wait");
}

#[test]
fn a_waiter_with_places_waits_there_unless_no_node_answers() {
    let mut contest = contest(WaitsBy::Places, Patience::Endless);
    let mut rest = pause(&mut contest, &held());
    assert_eq!(contest.then(Verdict::Contended, true, &mut rest, NOW), Then::Places);
    assert!(matches!(contest.order(true), AskOrder::PreferredFirst(_)));
    contest.is_due();
    assert_eq!(contest.order(true), AskOrder::AllAtOnce);
    assert_eq!(contest.then(Verdict::Unavailable, true, &mut rest, NOW), Then::Pause);
}

#[test]
fn a_caller_that_asks_once_repeats_a_split_vote_five_times_and_asks_all_nodes() {
    let mut contest = contest(WaitsBy::Queue, Patience::None);
    contest.back_off();
    assert_eq!(contest.next(false, true, NOW), Step::Ask, "it queues nowhere");
    for repeated in 0..5 {
        assert_eq!(contest.order(true), AskOrder::AllAtOnce);
        assert_eq!(contest.lost(&split(), None, (NOW, at(40))), Lost::GoesOn, "{repeated}");
        let mut rest = pause(&mut contest, &split());
        assert_eq!(contest.then(Verdict::Contended, true, &mut rest, NOW), Then::Pause);
        let longest = Duration::from_millis(160).min(Duration::from_millis(40) * (1 << repeated));
        assert_eq!(rest.until, NOW + longest, "longer than the votes were in flight");
    }
    assert_eq!(contest.lost(&split(), None, (NOW, NOW)), Lost::InVain);
    contest.begin(WaitsBy::Queue, Patience::None);
    assert_eq!(contest.lost(&held(), None, (NOW, NOW)), Lost::InVain, "it is held");
    assert_eq!(contest.lost(&split(), None, (NOW, NOW)), Lost::GoesOn, "counted anew for the next waiter");
}

#[test]
fn waiting_is_in_vain_if_too_few_nodes_may_vote_before_it_ends() {
    let lost = |patience| contest(WaitsBy::Queue, patience).lost(&young(), None, (NOW, NOW));
    assert_eq!(lost(Patience::Until(at(29_000))), Lost::InVain);
    assert_eq!(lost(Patience::Until(at(31_000))), Lost::GoesOn);
    assert_eq!(lost(Patience::Endless), Lost::GoesOn);
    let mut split_waits = contest(WaitsBy::Queue, Patience::Until(at(1)));
    assert_eq!(split_waits.lost(&split(), None, (NOW, NOW)), Lost::GoesOn, "it may be free soon");
}

#[test]
fn what_the_votes_have_taught_holds_for_the_next_waiter() {
    let mut contest = contest(WaitsBy::Queue, Patience::Endless);
    let set = |node: usize| [node].into_iter().collect::<NodeSet>();
    contest.lost(&report([by(7), by(7), by(7), by(7), by(9)]), None, (NOW, NOW));
    assert_eq!(contest.outliers(), set(4), "it holds what no quorum holds");
    let granted = || VoteOutcome::Granted;
    contest.won(Some((report([by(9), granted(), granted(), granted(), granted()]), FencingToken::new(9))));
    contest.begin(WaitsBy::Places, Patience::Endless);
    assert_eq!((contest.outliers(), contest.seen()), (set(0), FencingToken::new(9)));
    assert!(matches!(contest.order(true), AskOrder::PreferredFirst(_)));
}

#[test]
fn the_largest_number_is_kept_for_the_next_waiter() {
    let number = |number| FencingToken::new(number);
    let mut contest = contest(WaitsBy::Queue, Patience::Endless);
    contest.won(None);
    assert!(!contest.is_contended(), "no other client wanted it");
    contest.lost(&held(), number(7), (NOW, NOW));
    contest.won(Some((held(), number(5))));
    contest.begin(WaitsBy::Queue, Patience::None);
    assert_eq!(contest.seen(), number(7));
}
