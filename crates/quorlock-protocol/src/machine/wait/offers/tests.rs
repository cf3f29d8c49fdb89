use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::machine::tests::{FIVE, claim, response};
use crate::machine::{Offered, Wanted};
use crate::node::Vote;
use crate::{KeyState, offer_renamed_after};

const LIFE: Duration = Duration::from_millis(1200);
const ROUND_TRIP: Duration = Duration::from_millis(1);

type Shared = Rc<RefCell<Attempt>>;

impl SharedAttempt for Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Attempt) -> T) -> T {
        work(&mut self.borrow_mut())
    }
}

fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(1000 + millis))
}

fn shorter(duration: Duration, by: Duration) -> Duration {
    duration.checked_sub(by).unwrap()
}

fn before(moment: Moment) -> Moment {
    Moment::ORIGIN + shorter(moment.since(Moment::ORIGIN), Duration::from_millis(1))
}

fn requested(random: u128, now: Moment) -> Shared {
    let wanted = Wanted { claim: claim(random), ttl: LIFE, fence_hint: None };
    Rc::new(RefCell::new(Attempt::offered(&FIVE, now, wanted)))
}

/// Requests of which the first was sent at the beginning, and it.
fn requests() -> (OfferRequests<Shared>, Shared) {
    let (mut requests, first) = (OfferRequests::default(), requested(1, at(0)));
    requests.push(first.clone());
    (requests, first)
}

fn offer_for(request: &Shared, node: usize, life: Duration, now: Moment) -> Offered {
    request.borrow_mut().handle_offer(&FIVE, node, response(node, Vote::Granted), life, now)
}

fn offer(request: &Shared, nodes: std::ops::Range<usize>, now: Moment) {
    for node in nodes {
        assert!(matches!(offer_for(request, node, LIFE, now), Offered::Counts(_)));
    }
}

fn next(requests: &mut OfferRequests<Shared>, now: Moment) -> OfferStep<Shared> {
    requests.next(&FIVE, ROUND_TRIP, Drift::default(), now)
}

/// What is to be given back now.
fn given_back(step: OfferStep<Shared>) -> usize {
    if let OfferStep::GiveBack(late) = step { late.len() } else { panic!("{step:?}") }
}

#[test]
fn a_quorum_of_offers_is_taken_up() {
    let (mut requests, first) = requests();
    assert!(!requests.has_offers());
    offer(&first, 0..2, at(100));
    assert!(requests.has_offers());
    let OfferStep::Wait(until) = next(&mut requests, at(100)) else { panic!("two of five are no quorum") };
    assert_eq!(until, at(100) + turn(ROUND_TRIP));
    offer(&first, 2..3, at(101));
    assert!(matches!(next(&mut requests, at(101)), OfferStep::Take { is_latest: true, .. }));
    assert!(!requests.has_offers(), "it is taken out");
}

#[test]
fn too_few_offers_are_given_back_after_a_turn() {
    let (mut requests, first) = requests();
    offer(&first, 0..2, at(100));
    let OfferStep::Wait(until) = next(&mut requests, at(100)) else { panic!("they may become more") };
    assert!(matches!(next(&mut requests, at(101)), OfferStep::Wait(again) if again == until));
    assert_eq!(given_back(next(&mut requests, until)), 1);
    assert_eq!(offer_for(&first, 2, LIFE, until), Offered::GiveBack, "it is too late now");
}

#[test]
fn o5_an_offer_with_too_little_left_is_given_back() {
    let (mut requests, first) = requests();
    let unheard = requested(2, at(1));
    requests.push(unheard.clone());
    let last = at(0) + shorter(LIFE, least_left(LIFE, ROUND_TRIP));
    offer(&first, 0..5, last);
    assert_eq!(given_back(next(&mut requests, last)), 1, "nothing is given back that was not offered");
    assert!(!first.borrow_mut().take_up() && !unheard.borrow_mut().take_up(), "all are given up");
}

/// In another order, as two threads may take: rule O-6 holds in each.
#[test]
fn o6_an_offer_counts_or_is_given_back_and_never_both() {
    let given_up = requested(1, at(0));
    assert!(given_up.borrow_mut().withdraw());
    assert!(!given_up.borrow_mut().take_up(), "a token that was given up is not taken up");
    assert_eq!(offer_for(&given_up, 0, LIFE, at(1)), Offered::GiveBack);
    assert!(!given_up.borrow().has_offers());

    let taken_up = requested(2, at(0));
    offer(&taken_up, 0..3, at(1));
    assert!(taken_up.borrow().is_open());
    assert!(taken_up.borrow_mut().take_up() && !taken_up.borrow_mut().withdraw());
    assert!(!taken_up.borrow().is_open());
    offer(&taken_up, 3..4, at(2));
    taken_up.borrow_mut().give_up();
    assert_eq!(offer_for(&taken_up, 4, LIFE, at(3)), Offered::GiveBack, "its lease has ended");
    assert_eq!(taken_up.borrow_mut().give_up().get(4), KeyState::InFlight);
}

#[test]
fn o7_an_offer_shorter_than_its_terms_is_given_back() {
    let (_, first) = requests();
    let shorter = shorter(LIFE, Duration::from_millis(1));
    assert_eq!(offer_for(&first, 0, shorter, at(1)), Offered::GiveBack);
    offer(&first, 0..1, at(1));
    assert_eq!(offer_for(&first, 0, LIFE, at(2)), Offered::Again, "a node votes once (O-2)");
}

#[test]
fn o3_a_token_is_named_again_while_it_is_recent() {
    let renamed = at(0) + offer_renamed_after(LIFE);
    let (mut named, first) = requests();
    assert!(named.repeat(before(renamed)).is_some());
    assert!(named.repeat(renamed).is_none());
    offer(&first, 0..3, at(10));
    assert!(
        matches!(next(&mut named, at(10)), OfferStep::Take { is_latest: false, .. }),
        "it was sent again"
    );

    let (mut answered, first) = requests();
    offer(&first, 0..1, at(10));
    assert!(answered.repeat(at(10)).is_none());

    let (mut old, first) = requests();
    old.push(requested(2, at(200)));
    offer(&first, 0..3, at(300));
    assert!(
        matches!(next(&mut old, at(300)), OfferStep::Take { is_latest: false, .. }),
        "another one came later"
    );

    let (mut forgotten, first) = requests();
    offer(&first, 0..1, at(0) + LIFE);
    forgotten.forget(before(at(0) + LIFE * 2));
    assert!(forgotten.has_offers());
    forgotten.forget(at(0) + LIFE * 2);
    assert!(!forgotten.has_offers());
}

#[test]
fn a_waiter_that_is_soon_first_asks_again_once() {
    let renamed = at(0) + offer_renamed_after(LIFE);
    let (mut requests, first) = requests();
    assert!(!first.borrow_mut().handle_soon(before(renamed)) && !requests.turned_stale());
    assert!(first.borrow_mut().handle_soon(renamed));
    assert!(requests.repeat(at(1)).is_none(), "with a new token");
    assert!(requests.turned_stale() && !requests.turned_stale());
}

#[test]
fn an_offer_whose_message_was_lost_is_given_back() {
    let (mut requests, first) = requests();
    let (ours, theirs) = (Token::new(1, ""), Token::new(9, ""));
    offer(&first, 0..1, at(1));
    assert!(requests.unheard(1, &theirs).is_none());
    assert!(requests.unheard(0, &ours).is_none(), "it has come");
    assert!(requests.unheard(1, &ours).is_some());
    assert!(!requests.has_offers());
}

#[test]
fn o8_no_offer_is_asked_for_from_near_or_very_far() {
    let asks = |smoothed: Duration, deviation: Duration| {
        let nanos = [smoothed, deviation].map(|time| u64::try_from(time.as_nanos()).unwrap());
        asks_for_offers(LIFE, RoundTrip::of_nanos(nanos))
    };
    let (steady, less) = (Duration::ZERO, Duration::from_nanos(1));
    assert!(asks(ROUND_TRIP, steady) && !asks(ROUND_TRIP / 2, steady));
    assert!(asks(LIFE / 6, steady) && !asks(LIFE / 5, steady), "a lease must last two renewals");
    assert!(!asks(ROUND_TRIP * 3, ROUND_TRIP * 2 + less), "a near node that is busy");
}
