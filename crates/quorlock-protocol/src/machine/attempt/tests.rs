use super::*;
use crate::machine::tests::{FIVE, at, claim, response};
use crate::node::{Expiry, Holding, Vote};
use crate::votes::VoteOutcome;
use crate::{Drift, Token};

const TTL: Duration = Duration::from_secs(10);
/// Half of the longest TTL.
const CLOCK_BOUND: Duration = Duration::from_secs(5);
const FIRST: usize = 2;

fn wanted(fence_hint: Option<FenceHint>) -> Wanted {
    Wanted { claim: claim(7), ttl: TTL, fence_hint }
}

fn numbered() -> Wanted {
    wanted(Some(FenceHint::at(Duration::from_secs(1), None, CLOCK_BOUND)))
}

fn number(number: u64) -> Option<FencingToken> {
    FencingToken::new(number)
}

/// Asks all nodes, and sends.
fn ask(wanted: Wanted) -> Attempt {
    let mut attempt = Attempt::ask(&FIVE, at(0), wanted, None);
    assert_eq!(sent(&mut attempt, at(0)).len(), 5);
    attempt
}

/// Asks one node first, and sends.
fn ask_first() -> Attempt {
    let mut attempt = Attempt::ask(&FIVE, at(0), wanted(None), Some(FIRST));
    assert_eq!(sent(&mut attempt, at(0)), [(FIRST, "acquire")]);
    attempt
}

/// What is sent now, by its index.
fn sent(attempt: &mut Attempt, now: Moment) -> Vec<(usize, &'static str)> {
    let mut all = Vec::new();
    while let Some((index, request)) = attempt.poll_request(&FIVE, now) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other request is sent")]
        let what = match &*request {
            Request::Acquire { .. } => "acquire",
            Request::Transfer { .. } => "transfer",
            Request::WriteBack { .. } => "write back",
            _ => panic!("{request:?}"),
        };
        assert!(attempt.asked_at(index).is_some(), "it is recorded before it is sent");
        all.push((index, what));
    }
    assert!(!attempt.has_unsent());
    all
}

fn hear(attempt: &mut Attempt, index: usize, result: Result<Response, NodeError>, now: Moment) -> Heard {
    attempt.handle_response(&FIVE, index, result, now)
}

fn vote(attempt: &mut Attempt, node: usize, vote: Vote, now: Moment) -> Heard {
    hear(attempt, node, Ok(response(node, vote)), now)
}

fn grant(attempt: &mut Attempt, node: usize, now: Moment) -> Heard {
    vote(attempt, node, Vote::Granted, now)
}

fn refuse(attempt: &mut Attempt, node: usize, now: Moment) -> Heard {
    vote(attempt, node, Holding::new(Token::new(9, ""), Expiry::In(TTL)).into(), now)
}

/// Grants, with this number.
fn draw(attempt: &mut Attempt, node: usize, drawn: u64, now: Moment) -> Heard {
    let response = response(node, Vote::Granted).with_fencing_token(number(drawn));
    hear(attempt, node, Ok(response), now)
}

/// The index of a write-back.
fn second(node: usize) -> usize {
    Address { round: 1, node }.index(5)
}

fn is_in_time(attempt: &Attempt, now: Moment) -> bool {
    attempt.round().is_in_time(&FIVE, Drift::default(), CLOCK_BOUND, now)
}

/// Three of five have drawn three numbers.
fn unwritten() -> Attempt {
    let mut attempt = ask(numbered());
    for node in 0..3 {
        draw(&mut attempt, node, 10 + u64::try_from(node).unwrap(), at(1));
    }
    assert_eq!(attempt.decide(&FIVE, at(1)), None);
    attempt
}

fn writing_back() -> Attempt {
    let mut attempt = unwritten();
    assert_eq!(sent(&mut attempt, at(2)).len(), 5);
    attempt
}

#[test]
fn an_index_says_of_which_round_and_node_a_request_is() {
    for nodes in 1..8 {
        for address in (0..3).flat_map(|round| (0..nodes).map(move |node| Address { round, node })) {
            assert_eq!(Address::of(address.index(nodes), nodes), address);
        }
    }
    assert_eq!(Address { round: 0, node: 3 }.index(5), 3);
}

#[test]
fn all_nodes_are_asked_in_their_order_and_a_quorum_decides() {
    let mut attempt = Attempt::ask(&FIVE, at(0), wanted(None), None);
    assert!(attempt.has_unsent() && attempt.decide(&FIVE, at(0)).is_none());
    let all: Vec<_> = (0..5).map(|node| (node, "acquire")).collect();
    assert_eq!(sent(&mut attempt, at(0)), all);
    assert!(attempt.request.is_none(), "it is kept no longer than until all nodes have it");
    for node in 0..2 {
        assert!(!grant(&mut attempt, node, at(1)).is_news);
        assert_eq!(attempt.decide(&FIVE, at(1)), None);
    }
    assert!(grant(&mut attempt, 2, at(1)).is_news);
    assert_eq!(attempt.decide(&FIVE, at(1)), Some(Verdict::Won));
    assert_eq!((attempt.number(), attempt.rounds()), (None, 1));
    assert!(sent(&mut attempt, at(1)).is_empty());
}

#[test]
fn a_first_node_that_refuses_decides() {
    let mut attempt = ask_first();
    assert_eq!(attempt.decide(&FIVE, at(1)), None);
    assert!(refuse(&mut attempt, FIRST, at(1)).is_news);
    assert_eq!(attempt.decide(&FIVE, at(1)), Some(Verdict::Contended));
    assert!(sent(&mut attempt, at(100)).is_empty() && attempt.poll_silence(at(1)).is_none());
    let report = attempt.report(&FIVE, at(1));
    let asked = |node: usize| report.votes()[node].outcome != VoteOutcome::Failed(NodeError::NotAsked);
    assert_eq!((0..5).filter(|node| asked(*node)).collect::<Vec<_>>(), [FIRST]);
    assert!(attempt.give_up().all_without());
}

#[test]
fn the_others_are_asked_once_the_first_node_has_granted_or_failed() {
    let disconnected = || Err(NodeError::Disconnected { reason: "gone".into() });
    for result in [Ok(response(FIRST, Vote::Granted)), disconnected()] {
        let is_granted = result.is_ok();
        let mut attempt = ask_first();
        assert!(hear(&mut attempt, FIRST, result, at(3)).is_news);
        assert_eq!(attempt.decide(&FIVE, at(3)), None);
        assert!(attempt.has_unsent());
        let others: Vec<_> = [0, 1, 3, 4].into_iter().map(|node| (node, "acquire")).collect();
        assert_eq!(sent(&mut attempt, at(4)), others);
        assert_eq!(attempt.asked_at(0), Some(at(4)), "their timeouts begin now");
        grant(&mut attempt, 0, at(5));
        grant(&mut attempt, 1, at(5));
        assert_eq!(attempt.decide(&FIVE, at(5)), is_granted.then_some(Verdict::Won));
        grant(&mut attempt, 3, at(5));
        assert_eq!(attempt.decide(&FIVE, at(5)), Some(Verdict::Won));
    }
}

#[test]
fn the_others_are_asked_once_the_first_node_is_overdue() {
    let mut attempt = ask_first();
    let overdue = at(0) + LEAST_PATIENCE;
    assert_eq!(attempt.poll_silence(at(0)), Some(overdue));
    assert_ne!(attempt.poll_silence(overdue), Some(overdue), "it decides then, and not at some later time");
    assert_eq!(attempt.decide(&FIVE, overdue.back(Duration::from_nanos(1))), None);
    assert!(!attempt.has_unsent());
    assert_eq!(attempt.decide(&FIVE, overdue), None);
    assert_eq!(sent(&mut attempt, overdue).len(), 4);
    assert_eq!(attempt.poll_silence(overdue), attempt.round().poll_timeout(overdue));
    assert!(attempt.poll_silence(overdue).is_some(), "it may still answer");
    assert!(!refuse(&mut attempt, FIRST, overdue).is_news, "its refusal is one vote now");
    for node in [0, 1, 3] {
        assert_eq!(attempt.decide(&FIVE, overdue), None);
        grant(&mut attempt, node, overdue);
    }
    assert_eq!(attempt.decide(&FIVE, overdue), Some(Verdict::Won));
}

#[test]
fn a_number_that_a_quorum_has_drawn_needs_no_write_back() {
    let mut attempt = ask(numbered());
    for node in 0..3 {
        draw(&mut attempt, node, 10, at(1));
    }
    assert_eq!(attempt.decide(&FIVE, at(1)), Some(Verdict::Won));
    assert_eq!((attempt.number(), attempt.unwritten(), attempt.rounds()), (number(10), None, 1));
    assert!(sent(&mut attempt, at(1)).is_empty());
}

/// Rules F-3 to F-5.
#[test]
fn the_next_number_is_written_back_where_too_few_have_drawn_the_largest() {
    let mut attempt = unwritten();
    assert_eq!((attempt.unwritten(), attempt.number()), (number(13), number(13)));
    assert!(attempt.has_unsent() && attempt.write_back().is_none());
    let all: Vec<_> = (0..5).map(|node| (second(node), "write back")).collect();
    assert_eq!(sent(&mut attempt, at(2)), all);
    assert_eq!(attempt.write_back().map(Round::sent), Some(at(2)));
    assert_eq!(attempt.deciding().sent(), at(2));
    assert_eq!(attempt.poll_silence(at(2)), attempt.deciding().poll_timeout(at(2)));
    for node in 0..2 {
        grant(&mut attempt, second(node), at(3));
        assert_eq!(attempt.decide(&FIVE, at(3)), None);
    }
    assert!(grant(&mut attempt, second(4), at(3)).is_news);
    assert_eq!(attempt.decide(&FIVE, at(3)), Some(Verdict::Won));
    assert_eq!((attempt.number(), attempt.rounds()), (number(13), 2));
    assert_eq!(attempt.decide(&FIVE, at(90_000)), Some(Verdict::Won), "it stays");
}

#[test]
fn a_number_that_cannot_be_written_back_is_no_win() {
    let mut attempt = writing_back();
    for node in 0..3 {
        vote(&mut attempt, second(node), Vote::FenceAhead, at(3));
    }
    assert_eq!(attempt.decide(&FIVE, at(3)), Some(Verdict::Contended));
    let report = attempt.report(&FIVE, at(3));
    assert_eq!(report.votes()[0].outcome, VoteOutcome::FenceAhead, "of the round that decided");
    let mut silent = writing_back();
    let limit = silent.poll_silence(at(2)).unwrap();
    assert_eq!(silent.decide(&FIVE, limit), Some(Verdict::Unavailable));
    assert_eq!(silent.deciding().sent(), at(0), "the votes, which say what is left");
}

/// Rules I-3 and F-8.
#[test]
fn a_write_back_that_takes_too_long_is_too_late() {
    let mut attempt = writing_back();
    for node in 0..3 {
        grant(&mut attempt, second(node), at(5_000));
    }
    assert_eq!(attempt.decide(&FIVE, at(4_999)), Some(Verdict::Won));
    assert!(is_in_time(&attempt, at(4_999)));
    assert!(!is_in_time(&attempt, at(5_000)), "as of when the votes were asked for");
    assert!(is_in_time(&ask(wanted(None)), at(5_000)), "without a number, until the keys expire");
    assert!(!is_in_time(&ask(wanted(None)), at(10_000)));
}

#[test]
fn a_lock_is_passed_on_also_by_nodes_that_had_lost_it() {
    let mut attempt = Attempt::pass_on(&FIVE, at(0), wanted(None), claim(6));
    let all: Vec<_> = (0..5).map(|node| (node, "transfer")).collect();
    assert_eq!(sent(&mut attempt, at(0)), all);
    for node in 0..2 {
        vote(&mut attempt, node, Vote::Restored, at(1));
        assert_eq!(attempt.decide(&FIVE, at(1)), None);
    }
    grant(&mut attempt, 2, at(1));
    assert_eq!(attempt.decide(&FIVE, at(1)), Some(Verdict::Won));
}

#[test]
fn offered_votes_need_no_request() {
    let mut attempt = Attempt::offered(&FIVE, at(0), numbered());
    assert!(attempt.is_offered() && !Attempt::ask(&FIVE, at(0), numbered(), None).is_offered());
    assert!(!attempt.has_unsent() && sent(&mut attempt, at(0)).is_empty());
    let offer = |attempt: &mut Attempt, node, drawn| {
        let vote = response(node, Vote::Granted).with_fencing_token(number(drawn));
        attempt.handle_offer(&FIVE, node, vote, TTL, at(500))
    };
    for node in 0..3 {
        assert_eq!(attempt.decide(&FIVE, at(500)), None);
        assert!(matches!(offer(&mut attempt, node, 10), Offered::Counts(_)));
        assert_eq!(offer(&mut attempt, node, 11), Offered::Again, "a node votes once");
    }
    assert_eq!(attempt.decide(&FIVE, at(500)), Some(Verdict::Won));
    assert_eq!(attempt.number(), number(10));
    let mut split = Attempt::offered(&FIVE, at(0), numbered());
    (0..3).for_each(|node| {
        offer(&mut split, node, 10 + u64::from(node == 0));
    });
    assert_eq!(split.decide(&FIVE, at(500)), None);
    assert_eq!(sent(&mut split, at(501)).len(), 5, "an offered number is written back, too");
}

/// Rule I-20.
#[test]
fn nothing_is_sent_after_it_is_given_up() {
    use KeyState::{Holds, InFlight, Without};
    let given_up = |mut attempt: Attempt| {
        let states = attempt.give_up();
        assert!(!attempt.has_unsent() && sent(&mut attempt, at(9)).is_empty());
        assert_eq!(attempt.decide(&FIVE, at(9)), None);
        assert_eq!(attempt.give_up(), states, "it may be given up twice");
        (0..5).map(|node| states.get(node)).collect::<Vec<_>>()
    };
    assert_eq!(given_up(Attempt::ask(&FIVE, at(0), wanted(None), None)), [Without; 5], "nothing was sent");
    let mut begun = Attempt::ask(&FIVE, at(0), wanted(None), None);
    assert!(begun.poll_request(&FIVE, at(0)).is_some());
    assert_eq!(given_up(begun), [InFlight, Without, Without, Without, Without]);
    assert_eq!(given_up(ask(wanted(None))), [InFlight; 5]);
    assert_eq!(given_up(ask_first()), [Without, Without, InFlight, Without, Without]);
    let mut others = ask_first();
    grant(&mut others, FIRST, at(1));
    assert_eq!(others.decide(&FIVE, at(1)), None);
    assert_eq!(given_up(others.clone()), [Without, Without, Holds, Without, Without]);
    sent(&mut others, at(1));
    assert_eq!(given_up(others), [InFlight, InFlight, Holds, InFlight, InFlight]);
    let votes = [Holds, Holds, Holds, InFlight, InFlight];
    assert_eq!(given_up(unwritten()), votes);
    let mut begun = unwritten();
    assert!(begun.poll_request(&FIVE, at(2)).is_some());
    assert_eq!(given_up(begun), votes, "all have been asked for their votes");
    assert_eq!(given_up(writing_back()), votes);
    let mut decided = writing_back();
    for node in 0..3 {
        grant(&mut decided, second(node), at(3));
    }
    assert_eq!(decided.decide(&FIVE, at(3)), Some(Verdict::Won));
    assert_eq!(given_up(decided), votes);
}

#[test]
fn late_votes_change_what_is_left_and_late_write_backs_do_not() {
    let mut attempt = writing_back();
    assert!(!draw(&mut attempt, 3, 20, at(3)).is_news, "it waits for no votes");
    for node in 0..3 {
        grant(&mut attempt, second(node), at(3));
    }
    assert_eq!(attempt.decide(&FIVE, at(3)), Some(Verdict::Won));
    assert_eq!(attempt.number(), number(13), "a larger number that is drawn later changes nothing");
    let left = attempt.round().key_states();
    assert_eq!((left.get(3), left.get(4)), (KeyState::Holds, KeyState::InFlight));
    assert!(!attempt.is_settled());
    let gone = Err(NodeError::Disconnected { reason: "gone".into() });
    assert!(!hear(&mut attempt, second(3), gone, at(4)).is_news);
    assert_eq!(attempt.round().key_states(), left);
    let late = refuse(&mut attempt, 4, at(1_001));
    assert!(late.is_news && late.is_late);
    assert!(attempt.is_settled(), "whatever a write-back still awaits");
    assert_eq!(attempt.round().key_states().get(4), KeyState::Without);
    assert_eq!(attempt.asked_at(second(4)), Some(at(2)));

    let mut given_up = ask(wanted(None));
    given_up.give_up();
    grant(&mut given_up, 0, at(1));
    assert_eq!(given_up.round().key_states().get(0), KeyState::Holds);
}
