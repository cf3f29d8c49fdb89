use super::*;
use crate::machine::tests::{FIVE, at, claim, response};
use crate::node::{NodeErrorKind, Vote};
use crate::{Token, Verdict};

const TTL: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_secs(60);

fn terms(of: Of) -> Terms {
    Terms { of, ttl: TTL, linger: LINGER, drift: Drift::default(), is_wanted: false, offer: None }
}

fn undo(states: [KeyState; 5], terms: Terms) -> Undo {
    Undo::start(&FIVE, at(0), &claim(7), KeyStates::of(states), terms).unwrap()
}

/// What is sent now, to which node.
fn sent(undo: &mut Undo, now: Moment) -> Vec<(usize, &'static str)> {
    let mut all = Vec::new();
    while let Some((node, request)) = undo.poll_request(&FIVE, now) {
        let what = if let Request::Cancel { linger, .. } = &*request {
            assert!(linger.is_zero() || *linger == LINGER);
            if linger.is_zero() { "cancel" } else { "cancel, with a tombstone" }
        } else if let Request::Offer { queued, .. } = &*request {
            if *queued { "offer at home" } else { "offer" }
        } else {
            assert!(matches!(&*request, Request::Release { .. }), "{request:?}");
            "release"
        };
        all.push((node, what));
    }
    all
}

fn hear(undo: &mut Undo, node: usize, result: Result<Vote, NodeError>, now: Moment) -> Heard {
    undo.handle_response(&FIVE, node, result.map(|vote| response(node, vote)), now)
}

fn gone() -> NodeError {
    NodeError::Disconnected { reason: "gone".into() }
}

const ALL: [KeyState; 5] = [KeyState::Holds; 5];

#[test]
fn each_node_gets_what_the_state_of_its_key_asks_for() {
    use KeyState::{Holds, InFlight, Unknown, Without};
    let states = [Without, Holds, InFlight, Unknown, Without];
    let lease = sent(&mut undo(states, terms(Of::Lease)), at(0));
    assert_eq!(lease, [(1, "release"), (2, "release"), (3, "cancel, with a tombstone")]);
    let attempt = sent(&mut undo(states, terms(Of::Attempt)), at(0));
    assert_eq!(attempt, [(1, "cancel"), (2, "cancel"), (3, "cancel, with a tombstone")]);
    assert!(Undo::start(&FIVE, at(0), &claim(7), KeyStates::of([Without; 5]), terms(Of::Lease)).is_none());
}

#[test]
fn the_preferred_node_is_asked_last_if_others_want_the_lock() {
    let wanted = || Terms { is_wanted: true, ..terms(Of::Lease) };
    let order = |sent: Vec<(usize, &str)>| sent.into_iter().map(|(node, _)| node).collect::<Vec<_>>();
    let last = claim(7).preferred_node(5);
    let ring: Vec<_> = (1..=5).map(|step| (last + step) % 5).collect();
    assert_eq!(order(sent(&mut undo(ALL, wanted()), at(0))), ring);
    let mut some = ALL;
    some[(last + 2) % 5] = KeyState::Unknown;
    assert_eq!(order(sent(&mut undo(some, wanted()), at(0))), [0, 1, 2, 3, 4], "not all hold it");
}

#[test]
fn nodes_that_can_are_asked_to_offer_the_lock() {
    let next = crate::NextWaiter {
        waiter: crate::WaiterId::new(3),
        terms: crate::OfferTerms {
            inbox: crate::InboxId::new(5),
            prefix_len: 0,
            life: TTL,
            fenced: false,
            token: Token::new(9, ""),
        },
    };
    let offer = |queued| {
        Request::Offer { claim: claim(7), next: Arc::new(next.clone()), queued, fence_hint: None }.into()
    };
    let offer = Offer {
        home: 1,
        at_home: offer(true),
        elsewhere: offer(false),
        able: [0, 1, 2, 3].into_iter().collect(),
    };
    let mut states = ALL;
    states[3] = KeyState::Unknown;
    let mut undo = undo(states, Terms { offer: Some(offer), ..terms(Of::Lease) });
    assert_eq!(
        sent(&mut undo, at(0)),
        [(0, "offer"), (1, "offer at home"), (2, "offer"), (3, "cancel, with a tombstone"), (4, "release")]
    );
}

#[test]
fn a_node_that_fails_is_asked_again_by_a_cancel_until_it_confirms() {
    let mut undo = undo(ALL, terms(Of::Lease));
    assert_eq!(sent(&mut undo, at(0)).len(), 5);
    for node in 0..4 {
        hear(&mut undo, node, Ok(Vote::Granted), at(1));
    }
    assert!(hear(&mut undo, 4, Err(gone()), at(1)).is_news, "there is something to wait for");
    // The first pause is a hundredth of the TTL at most, the next one twice as long.
    for (begins, longest) in [(1, 100), (101, 200), (301, 400)] {
        let due = undo.poll_timeout(at(begins)).unwrap();
        assert!(due > at(begins) && due <= at(begins + longest), "{due:?}");
        assert_eq!(sent(&mut undo, at(begins)), []);
        assert_eq!(sent(&mut undo, at(begins + longest)), [(4, "cancel, with a tombstone")]);
        assert_eq!(sent(&mut undo, at(begins + longest)), [], "it has not answered");
        assert_eq!(undo.poll_timeout(at(begins + longest)), Some(undo.until), "it may never answer");
        hear(&mut undo, 4, Err(gone()), at(begins + longest));
    }
    assert_eq!(sent(&mut undo, at(2_000)).len(), 1);
    assert!(hear(&mut undo, 4, Ok(Vote::Free), at(2_001)).is_news);
    assert!(undo.is_over(at(2_001)) && undo.poll_timeout(at(2_001)).is_none() && undo.poll_event().is_none());
    assert_eq!(undo.round_mut().decide(&FIVE, at(2_001)), Some(Verdict::Won), "that of the first answers");
}

#[test]
fn a_node_that_cannot_be_asked_is_given_up() {
    let mut undo = undo(
        [KeyState::Holds, KeyState::Without, KeyState::Without, KeyState::Without, KeyState::Without],
        terms(Of::Lease),
    );
    assert_eq!(sent(&mut undo, at(0)).len(), 1);
    hear(&mut undo, 0, Err(NodeError::Failed { kind: NodeErrorKind::Login, reason: "no".into() }), at(1));
    assert!(undo.is_over(at(1)));
    assert_eq!(undo.poll_event().map(|given_up| given_up.node), Some(0));
}

#[test]
fn nothing_is_sent_once_the_keys_have_expired() {
    let mut undo = undo(ALL, terms(Of::Lease));
    sent(&mut undo, at(0));
    let expired = undo.until;
    assert!(expired >= at(10_000), "by the slowest clock: {expired:?}");
    let before = expired.back(Duration::from_nanos(1));
    hear(&mut undo, 0, Err(gone()), before.back(Duration::from_secs(1)));
    hear(&mut undo, 1, Err(gone()), before);
    assert_eq!(undo.poll_event().map(|given_up| given_up.node), Some(1), "it could not be asked in time");
    assert!(!undo.is_over(before) && undo.is_over(expired));
    assert_eq!(sent(&mut undo, expired), []);
    assert_eq!(undo.poll_timeout(expired), None);
}

/// Rule I-11.
#[test]
fn a_release_finds_that_the_lock_was_lost_only_where_enough_nodes_had_it() {
    let mut states = ALL;
    states[4] = KeyState::Without;
    let late_behind = |renewal: NodeSet, frees: usize, now| {
        let mut undo = undo(states, terms(Of::Lease));
        sent(&mut undo, at(0));
        for node in 0..4 {
            hear(&mut undo, node, Ok(if node < frees { Vote::Free } else { Vote::Granted }), at(1));
        }
        (undo.has_lost(renewal), undo.came_too_late(&FIVE, renewal, (at(5_000), now)))
    };
    let late = |frees, now| late_behind(NodeSet::default(), frees, now);
    assert_eq!(late(0, at(2)), (false, false));
    assert_eq!(late(1, at(2)), (true, false), "with the one that never had it, two of five");
    assert_eq!(late(2, at(2)), (true, true), "another client may have had three");
    assert_eq!(late(2, at(5_000)), (true, false), "they may have expired");
    let restored = |nodes: [usize; 2]| nodes.into_iter().collect();
    assert_eq!(late_behind(restored([0, 1]), 0, at(2)), (true, true), "a renewal has stored it again");
    assert_eq!(late_behind(restored([0, 0]), 1, at(2)), (true, false), "the same node");
    // Of four nodes, another client needs three.
    let lost = |lost| was_lost(Quorum::majority(4), KeyStates::of(ALL), lost, (at(5_000), at(2)));
    assert_eq!((lost(2), lost(3)), (false, true));
}
