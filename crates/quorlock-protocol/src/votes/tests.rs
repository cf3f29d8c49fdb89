use super::*;
use crate::SHARED_MARKER;
use crate::node::NodeErrorKind;
use VoteOutcome::{Free, Granted, NotYourTurn, Pending, Restored};

const SECOND: Duration = Duration::from_secs(1);

/// The report of five nodes.
fn report<const N: usize>(outcomes: [VoteOutcome; N]) -> VoteReport {
    numbered(outcomes.map(|outcome| (outcome, None)))
}

fn numbered<const N: usize>(outcomes: [(VoteOutcome, Option<u64>); N]) -> VoteReport {
    let vote = |(node, (outcome, number)): (usize, (VoteOutcome, Option<u64>))| {
        let number = number.and_then(FencingToken::new);
        NodeVote::new(["a", "b", "c", "d", "e"][node].into(), outcome, Duration::ZERO, number)
    };
    VoteReport::new(Quorum::majority(N), outcomes.into_iter().enumerate().map(vote).collect())
}

fn by(random: u128, seconds: u32) -> VoteOutcome {
    VoteOutcome::Held(Holding::new(Token::new(random, "db-7:4121"), Expiry::In(SECOND * seconds)))
}

fn quarantined(seconds: u32) -> VoteOutcome {
    VoteOutcome::Quarantined { left: SECOND * seconds, cause: QuarantineCause::Recent }
}

fn misconfigured() -> VoteOutcome {
    VoteOutcome::Failed(NodeError::Unfit { kind: NodeErrorKind::WrongServer, reason: "a replica".into() })
}

fn late() -> VoteOutcome {
    VoteOutcome::Failed(NodeError::Unanswered { waited: SECOND })
}

fn unreachable() -> VoteOutcome {
    VoteOutcome::Failed(NodeError::NotAsked)
}

#[test]
fn the_holder_is_that_of_most_nodes_for_the_longest_time() {
    let holder = report([by(1, 9), by(2, 3), by(2, 5), Free, by(2, 4)]).holder().unwrap();
    assert_eq!((holder.token, holder.nodes), (Token::new(2, "db-7:4121"), 3));
    assert_eq!(holder.remaining, Expiry::In(SECOND * 5));
    assert!(report([Free, Granted, Pending, late(), Restored]).holder().is_none());
}

/// The number that is reported of a holder with this token.
fn number_of(token: &Token, numbers: [Option<u64>; 5]) -> Option<u64> {
    let held = || VoteOutcome::Held(Holding::new(token.clone(), Expiry::In(SECOND)));
    let holder = numbered(numbers.map(|number| (held(), number))).holder().unwrap();
    holder.fencing_token.map(FencingToken::get)
}

#[test]
fn its_number_is_one_that_a_quorum_of_its_nodes_reports() {
    let number =
        |numbers| number_of(&Token::numbered(1, FencingToken::new(5).unwrap(), "db-7:4121"), numbers);
    assert_eq!(number([Some(5), Some(5), Some(5), None, None]), Some(5));
    assert_eq!(number([Some(5), Some(5), None, None, None]), None);
    for late in [4, 7] {
        let late = Some(late);
        assert_eq!(number([Some(5), Some(5), Some(5), Some(5), late]), Some(5), "drawn after its verdict");
        assert_eq!(number([Some(5), Some(5), Some(5), late, late]), Some(5), "drawn after its verdict");
        assert_eq!(number([late, Some(5), Some(5), late, Some(5)]), Some(5), "whatever the order");
    }
    assert_eq!(number([Some(5), Some(5), Some(7), Some(8), Some(8)]), None, "the next is being written back");
    assert_eq!(number([Some(5), Some(5), Some(8), Some(8), Some(8)]), Some(8), "it was written back");
}

#[test]
fn a_holder_that_draws_no_number_has_none() {
    let counters = [Some(5); 5];
    for token in
        [Token::new(1, "db-7:4121"), Token::retained(1, "db-7:4121"), Token::found(SHARED_MARKER.as_bytes())]
    {
        assert_eq!(number_of(&token, counters), None, "the counter is of an earlier holder: {token:?}");
    }
}

#[test]
fn each_reader_is_named_once() {
    let reader = |random| Token::new(random, "");
    let shared = |readers: &[u128]| {
        let readers = readers.iter().copied().map(reader).collect();
        VoteOutcome::Held(
            Holding::new(Token::found(SHARED_MARKER.as_bytes()), Expiry::In(SECOND)).with_readers(readers),
        )
    };
    let report = report([shared(&[1, 2]), shared(&[2, 3]), shared(&[1])]);
    assert_eq!(report.holder().unwrap().readers, [1, 2, 3].map(reader));
}

#[test]
fn votes_are_split_if_no_client_can_have_a_quorum() {
    let is_split = |outcomes: [VoteOutcome; 5]| report(outcomes).is_split();
    assert!(is_split([Granted, Granted, by(1, 9), by(1, 9), by(2, 9)]));
    assert!(!is_split([by(1, 9), by(1, 9), by(1, 9), by(2, 9), by(2, 9)]), "one has it");
    assert!(!is_split([by(1, 9), by(1, 9), unreachable(), by(2, 9), by(3, 9)]), "one may have it");
    assert!(!is_split([by(1, 9), by(1, 9), quarantined(3), by(2, 9), by(3, 9)]), "one may have it");
    assert!(is_split([by(1, 9), by(1, 9), late(), by(2, 9), by(3, 9)]), "a late node is assumed free");
    assert!(
        !is_split([by(1, 9), by(1, 9), NotYourTurn, by(2, 9), by(3, 9)]),
        "the first in the queue has it soon"
    );
    assert!(!is_split([Granted, Granted, Granted, by(1, 9), by(2, 9)]), "it has won");
    assert!(!is_split([Free, Free, Free, Free, Free]), "no one has any");
}

#[test]
fn a_lock_is_taken_if_the_nodes_without_a_holder_are_no_quorum() {
    assert!(report([by(1, 9), by(2, 9), by(3, 9), Free, Free]).is_taken());
    assert!(!report([by(1, 9), by(2, 9), Free, Free, late()]).is_taken());
}

#[test]
fn a_quorum_that_is_misconfigured_stays_so_and_one_in_quarantine_passes() {
    let never = VoteOutcome::Held(Holding::new(Token::found(b"data"), Expiry::Never));
    let duplicate = VoteOutcome::Duplicate { of: "a".into() };
    assert!(report([misconfigured(), never.clone(), duplicate.clone(), Free, Free]).misconfigured());
    assert!(!report([misconfigured(), never, late(), unreachable(), Free]).misconfigured());

    let young = [quarantined(9), quarantined(5), quarantined(2), quarantined(7), Free];
    assert_eq!(report(young.clone()).quarantined_for(), SECOND * 5, "then three can vote");
    assert!(!report(young.clone()).may_win_within(SECOND * 4));
    assert!(report(young).may_win_within(SECOND * 5));
    assert_eq!(report([quarantined(9), quarantined(5), Free, Free, Free]).quarantined_for(), Duration::ZERO);
    let beyond = [misconfigured(), duplicate, quarantined(9), Free, Free];
    assert!(!report(beyond).may_win_within(SECOND));
}

#[test]
fn a_second_request_answers_for_what_the_first_has_not_done() {
    let (first, second) = (report([Granted, by(1, 9), late()]), report([Free, Granted, unreachable()]));
    let outcomes: Vec<_> = first.and(second).votes().iter().map(|vote| vote.outcome.clone()).collect();
    assert_eq!(outcomes, [Granted, Granted, unreachable()]);
}

#[test]
fn a_report_says_how_many_granted_and_why_each_other_node_did_not() {
    let text = |outcomes: [VoteOutcome; 5]| report(outcomes).to_string();
    assert_eq!(
        text([Granted, by(1, 9), Free, by(1, 9), Pending]),
        "1 of 5 granted, 3 needed (b, d: held by db-7:4121; c: free; e: not waited for)"
    );
    assert_eq!(text([Granted, Granted, Granted, Granted, Granted]), "5 of 5 granted, 3 needed");
    assert_eq!(
        text([Granted, Granted, Pending, Pending, Free]),
        "2 of 5 granted, 3 needed (c, d: had not answered yet; e: free)"
    );
}

#[test]
fn holders_are_described_by_what_they_say_of_themselves() {
    let (ours, readers) =
        (Token::new(1, "db-7:4121"), [2, 3, 4, 5].map(|random| Token::new(random, "web:9")));
    assert_eq!(taken(&ours, &[]), "held by db-7:4121");
    assert_eq!(holders(&ours, &readers[..1]), "1 reader: web:9");
    assert_eq!(holders(&ours, &readers), "4 readers: web:9, web:9, web:9 and 1 more");
    assert_eq!(described(&ours, &[], Some(3)), "db-7:4121", "our own holds are counted in its process");
    let theirs = Token::found(b"theirs");
    assert!(described(&theirs, &[], Some(3)).ends_with(", depth 3"));
    assert!(described(&theirs, &[], Some(0)).ends_with(", first in the queue of a fair lock"));
    let holding = Holding::new(ours.clone(), Expiry::In(SECOND));
    assert_eq!(holding.describe(), Holder::new(ours, None, 1, Expiry::In(SECOND)).describe());
    assert_eq!(holding.describe(), "db-7:4121");
}
