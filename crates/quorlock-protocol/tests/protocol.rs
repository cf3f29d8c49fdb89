//! The pure rules: no runtime, no nodes, no clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{
    Backoff, Claim, Drift, FenceHint, FenceVotes, FencingToken, LeaseTiming, Moment, NoNumber, Past,
    Quarantine, Quorum, Resource, ResourceError, RoundTrip, Tally, Term, Token, Verdict, WaiterId, age,
    believed, fraction, least_left, node_timeout, offer_life, releases_openly, take_up_after, turn_key,
};

fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(millis))
}

fn tally(quorum: Quorum, granted: usize, denied: usize, unknown: usize) -> Tally {
    let mut tally = Tally::new(quorum);
    (0..granted).for_each(|_| tally.grant());
    (0..denied).for_each(|_| tally.deny());
    (0..unknown).for_each(|_| tally.unknown());
    tally
}

/// All combinations of up to `nodes` answers.
fn counts(nodes: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..=nodes).flat_map(move |granted| {
        (0..=nodes - granted).flat_map(move |denied| {
            (0..=nodes - granted - denied).map(move |unknown| (granted, denied, unknown))
        })
    })
}

#[test]
fn any_two_quorums_share_a_node_and_anything_smaller_is_refused() {
    for nodes in 1..=31 {
        for needed in 0..=nodes + 1 {
            match Quorum::of(needed, nodes) {
                Some(quorum) => assert!(2 * quorum.needed() > nodes, "{quorum} leaves room for another"),
                None => assert!(2 * needed <= nodes || needed > nodes, "{needed} of {nodes} is safe"),
            }
        }
        let quorum = Quorum::majority(nodes);
        assert_eq!(Quorum::of(quorum.needed(), nodes), Some(quorum));
        assert_eq!(Quorum::of(quorum.needed() - 1, nodes), None, "a majority is the smallest");
        assert!(nodes - quorum.blocking() < quorum.needed(), "without the blocking nodes there is no quorum");
        assert!(nodes - (quorum.blocking() - 1) >= quorum.needed(), "one fewer does not block");
    }
}

#[test]
fn a_verdict_comes_as_soon_as_no_answer_can_change_it_and_no_sooner() {
    for nodes in 1..=7 {
        for needed in nodes / 2 + 1..=nodes {
            let quorum = Quorum::of(needed, nodes).unwrap();
            for (granted, denied, unknown) in counts(nodes) {
                let pending = nodes - granted - denied - unknown;
                let endings: Vec<_> = counts(pending)
                    .filter(|(more, no, never)| more + no + never == pending)
                    .map(|(more, no, never)| {
                        tally(quorum, granted + more, denied + no, unknown + never)
                            .verdict()
                            .expect("all have answered")
                    })
                    .collect();
                let settled = endings.iter().all(|verdict| *verdict == endings[0]);
                let verdict = tally(quorum, granted, denied, unknown).verdict();
                assert_eq!(
                    verdict,
                    settled.then(|| endings[0]),
                    "{quorum}: {granted} granted, {denied} denied, {unknown} unknown, {pending} pending"
                );
            }
        }
    }
}

#[test]
fn contended_means_a_quorum_without_other_clients() {
    let five = Quorum::majority(5);
    assert_eq!(tally(five, 0, 3, 2).verdict(), Some(Verdict::Contended));
    assert_eq!(tally(five, 2, 2, 1).verdict(), Some(Verdict::Contended), "a split vote");
    assert_eq!(tally(five, 0, 2, 3).verdict(), Some(Verdict::Unavailable), "an outage is not contention");
    let four = Quorum::majority(4);
    assert_eq!(tally(four, 2, 2, 0).verdict(), Some(Verdict::Contended), "a tie refuses");
}

#[test]
fn i9_a_renewal_counted_at_the_deadline_is_too_late() {
    let term = Term::until(at(100));
    assert!(term.renew(at(200), at(99)));
    assert!(!term.renew(at(300), at(200)), "the deadline itself is over");
    assert_eq!(term.remaining(at(150)), None, "and the term with it");
}

#[test]
fn i10_a_term_seen_to_end_is_never_revived() {
    let term = Term::until(at(100));
    assert_eq!(term.remaining(at(100)), None);
    assert!(!term.renew(at(1000), at(50)), "whatever the clock says");
    assert_eq!(term.remaining(at(50)), None);
}

#[test]
fn i10_of_an_observer_and_a_renewal_that_meet_one_wins_and_both_agree() {
    for _ in 0..2_000 {
        let term = Arc::new(Term::until(at(100)));
        let observer = std::thread::spawn({
            let term = term.clone();
            move || term.remaining(at(100))
        });
        let renewed = term.renew(at(200), at(99));
        let seen = observer.join().unwrap();
        assert_eq!(seen.is_some(), renewed, "the observer saw {seen:?}");
        assert_eq!(term.remaining(at(150)).is_some(), renewed);
    }
}

#[test]
fn i6_a_shorter_renewal_does_not_move_the_deadline_back() {
    let term = Term::until(at(100));
    assert!(term.renew(at(60), at(10)));
    assert_eq!(term.remaining(at(10)), Some(at(100)));
}

#[test]
fn a_clock_set_forward_does_not_age_a_restarted_server() {
    let day = Duration::from_secs(86_400);
    assert_eq!(age(day, Past::Master, None, at(5_000)), day - Duration::from_secs(1), "whole seconds, cut");
    assert_eq!(
        age(day, Past::Master, Some(at(3_000)), at(5_000)),
        Duration::from_secs(2),
        "another was seen two seconds ago"
    );
    assert_eq!(age(Duration::ZERO, Past::Master, None, at(0)), Duration::ZERO);
}

#[test]
fn i17_a_master_that_was_promoted_is_as_old_as_its_reign() {
    let second = Duration::from_secs(1);
    let promoted = |master_since: u32| Past::Promoted { master_since: second * master_since };
    assert_eq!(age(second * 3_600, promoted(5), None, at(0)), second * 5);
    assert_eq!(age(second * 10, promoted(3_600), None, at(0)), second * 9, "a note outlived its process");
    assert_eq!(age(second * 3_600, promoted(60), Some(at(3_000)), at(5_000)), second * 2);
}

#[test]
fn far_moments_saturate() {
    let far = Moment::since_origin(Duration::MAX);
    assert_eq!(far + Duration::MAX, far);
    assert_eq!(Moment::ORIGIN.back(Duration::MAX), Moment::ORIGIN);
    assert_eq!(Moment::ORIGIN.since(far), Duration::ZERO);
    assert_eq!(Drift::default().deadline(far, Duration::MAX.min(Duration::from_secs(u64::MAX / 4))), far);
}

#[test]
fn moments_are_counted_in_both_directions() {
    let ms = Duration::from_millis;
    assert_eq!((at(5) + ms(2), at(5).back(ms(2)), at(5).since(at(3))), (at(7), at(3), ms(2)));
}

#[test]
fn two_renewals_may_fail_before_a_lease_ends() {
    let ttl = Duration::from_secs(30);
    let timing = LeaseTiming::new(ttl, Drift::default(), Duration::ZERO);
    assert_eq!(timing.renewal_every(), Duration::from_secs(10));
    assert!(timing.renewal_every() * 2 < Drift::default().validity(ttl));
}

#[test]
fn the_allowance_is_taken_off_at_the_holder_and_added_at_the_nodes() {
    let (drift, ttl) = (Drift::of(0.1).unwrap(), Duration::from_secs(10));
    assert_eq!(drift.factor().to_string(), "0.1");
    assert_eq!(drift.validity(ttl), Duration::from_secs(9) - Drift::MARGIN);
    assert_eq!(drift.stretch(ttl), Duration::from_secs(11) + Drift::MARGIN);
    let quarantine = Quarantine::new(ttl, drift);
    assert_eq!(quarantine.left(Duration::from_secs(1)), Duration::from_secs(10) + Drift::MARGIN);
    assert_eq!(quarantine.left(quarantine.length()), Duration::ZERO);
    assert_eq!(Quarantine::none().left(Duration::ZERO), Duration::ZERO);
    assert!(Drift::of(0.5).is_some() && Drift::of(0.51).is_none() && Drift::of(-0.01).is_none());
}

#[test]
fn the_ceiling_of_pauses_doubles_up_to_the_highest() {
    let ms = Duration::from_millis;
    let mut backoff = Backoff::new(ms(5), ms(30));
    assert_eq!([(); 5].map(|()| backoff.next(u64::MAX)), [ms(5), ms(10), ms(20), ms(30), ms(30)]);
    assert_eq!(fraction(ms(30), u64::MAX / 2 + 1), ms(15));
}

#[test]
fn a_tally_returns_its_counts() {
    let tally = tally(Quorum::majority(7), 3, 2, 1);
    assert_eq!((tally.granted(), tally.denied(), tally.pending()), (3, 2, 1));
}

#[test]
#[should_panic(expected = "a node was counted twice")]
fn counting_more_votes_than_nodes_panics() {
    tally(Quorum::majority(3), 2, 1, 1);
}

#[test]
fn displayed_text_is_readable() {
    let resource = Resource::parse("orders/42").unwrap();
    assert_eq!(format!("{resource} {resource:?}"), "orders/42 \"orders/42\"");
    assert_eq!(format!("{:?}", at(1_500)), "1.5s");
    assert_eq!(Quorum::majority(5).to_string(), "3 of 5");
    let verdicts = [Verdict::Won, Verdict::Contended, Verdict::Unavailable];
    assert_eq!(verdicts.map(|verdict| verdict.to_string()), ["won", "contended", "unavailable"]);
    let ours = Token::new(0xfeed_beef << 96, "db-7:4121 nightly");
    assert_eq!(format!("{ours} {ours:?}"), "db-7:4121 nightly Token(feedbeef… db-7:4121 nightly)");
    assert_eq!(Token::found(b"a\tb").to_string(), r"another program (a\tb…)");
    assert_eq!(Token::found(b"\xfe\x01A\x80 and so on").to_string(), "another program (0xfe014180…)");
    assert_eq!(Token::found(b"\xff").to_string(), "another program (0xff…)");
    assert_eq!(Token::new(1, &"x".repeat(500)).to_string().len(), 120, "a token cannot fill the screen");
}

#[test]
fn the_keys_of_a_lock_are_the_same_in_all_versions() {
    let key = "orders/42";
    let claim = Claim::new(key.into(), Token::new(7, "db-7"));
    assert_eq!((claim.key(), claim.token()), (key, &Token::new(7, "db-7")));
    assert_eq!(claim.token().as_bytes(), b"00000000000000000000000000000007 db-7");
    assert_eq!(claim.tombstone(), "orders/42{4479}:quorlock:tomb:00000000000000000000000000000007");
    assert_eq!(claim.want_mark(), "orders/42{4479}:quorlock:want:mark");
    assert_eq!(claim.fence_counter(), "{4479}:quorlock:fence:counter");
    assert_eq!(turn_key(key, WaiterId::new(0xab)), "orders/42{4479}:quorlock:want:mark:00000000000000ab");
    assert_eq!(turn_key("{a}.b", WaiterId::new(1)), "{a}.b::quorlock:want:mark:0000000000000001");
    let preferred = |key: &str| Claim::new(key.into(), Token::new(7, "")).preferred_node(5);
    // The published hashes of FNV-1a, modulo the number of nodes.
    assert_eq!(["", "a", "foobar", "orders/42"].map(preferred), [2, 1, 3, 4]);
    assert_eq!(claim.preferred_node(0), 0);
}

#[test]
fn the_longest_name_is_valid_and_one_byte_more_is_not() {
    let name = "x".repeat(Resource::MAX_LEN);
    assert_eq!(Resource::parse(&name).unwrap().as_str(), name);
    let length = name.len() + 1;
    assert_eq!(
        Resource::parse(&(name + "x")),
        Err(ResourceError::TooLong { length, most: Resource::MAX_LEN })
    );
    assert_eq!(Resource::parse(""), Err(ResourceError::Empty));
}

proptest! {
    /// Theory 4.2: a holder that trusts its lease for `validity`, on a clock that is slow by the
    /// drift, stops before the key expires on a node with a correct clock; and so for any split of
    /// the allowance between the two.
    #[test]
    fn validity_ends_before_any_key_does(
        ttl in 20u64..86_400_000,
        factor in 0.0f64..0.5,
        share in 0.0f64..1.0,
    ) {
        let drift = Drift::of(factor).unwrap();
        let ttl = Duration::from_millis(ttl);
        let (client_slow, node_fast) = (factor * share, factor * (1.0 - share));
        let trusted = drift.validity(ttl).as_secs_f64() / (1.0 - client_slow);
        let key_lives = ttl.as_secs_f64() / (1.0 + node_fast) - 0.001;
        prop_assert!(trusted <= key_lives + 1e-9, "trusted for {trusted}, kept for {key_lives}");
        prop_assert!(Quarantine::new(ttl, drift).length() >= ttl + Drift::MARGIN);
    }

    #[test]
    fn a_node_limit_is_small_against_the_ttl(set in prop::option::of(1u64..10_000), measured in 0u64..10_000, ttl in 20u64..100_000) {
        let ms = Duration::from_millis;
        let limit = node_timeout(set.map(ms), Some(RoundTrip::first(ms(measured))), ms(ttl));
        prop_assert!(limit <= ms(ttl) / 4);
        prop_assert!(limit >= set.map_or(ms(1_000), ms).min(ms(ttl) / 4));
    }

    #[test]
    fn pauses_stay_below_their_ceiling(first in 1u64..1_000, highest in 1u64..10_000, random: u64) {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(first), ms(highest));
        let mut ceiling = ms(first).min(ms(highest));
        for _ in 0..20 {
            prop_assert!(backoff.next(random) <= ceiling);
            ceiling = (ceiling * 2).min(ms(highest));
        }
        prop_assert_eq!(fraction(ms(highest), u64::MAX), ms(highest));
        prop_assert_eq!(fraction(ms(highest), 0), Duration::ZERO);
    }

    #[test]
    fn names_are_accepted_or_rejected_without_panics(name in ".{0,600}", token in prop::collection::vec(any::<u8>(), 0..64)) {
        match Resource::parse(&name) {
            Ok(resource) => prop_assert_eq!(resource.as_str(), name.as_str()),
            Err(error) => prop_assert!(name.is_empty() || name.len() > Resource::MAX_LEN, "{}", error),
        }
        let token = Token::found(&token);
        prop_assert!(!token.to_string().chars().any(char::is_control));
        let tomb = Claim::new(name.as_str().into(), token).tombstone();
        prop_assert!(tomb.starts_with(&name) && tomb.contains(":quorlock:tomb:"));
    }

    #[test]
    fn a_token_returns_its_context(random: u128, context in "[ -~]{0,100}") {
        prop_assert_eq!(Token::new(random, &context).context(), Some(context));
    }

    #[test]
    fn a_token_returns_the_number_of_its_attempt(
        random: u128,
        number in 0..=FencingToken::MAX.get(),
        context in "[ -~]{0,100}",
    ) {
        let (number, plain) = (fence(number), Token::new(random, &context));
        let token = Token::numbered(random, number, &context);
        prop_assert_eq!(token.number(), Some(number));
        prop_assert_eq!((token.context(), token.short()), (Some(context), plain.short()));
        prop_assert_eq!(plain.number(), None);
        let key: Arc<str> = "r".into();
        let tombstone = |token| Claim::new(Arc::clone(&key), token).tombstone();
        prop_assert_eq!(tombstone(token), tombstone(plain));
    }

    /// The number asked for without a script, and the number that a script would draw.
    #[test]
    fn the_number_asked_for_is_the_one_a_script_draws(
        counter in 0..FencingToken::MAX.get(),
        asker in 0..1_u64 << 54,
        node in 0..1_u64 << 54,
        lead in 0..100_000_000_u64,
    ) {
        let wall = Duration::from_micros(node);
        let fence_hint = FenceHint::at(Duration::from_micros(asker), None, Duration::from_micros(lead));
        if fence_hint.is_within(wall) && fence_hint.usual().get() > counter {
            prop_assert_eq!(fence_hint.from(fence(counter), wall), Ok(fence_hint.usual()));
        } else {
            prop_assert_ne!(fence_hint.from(fence(counter), wall), Ok(fence_hint.usual()));
        }
    }
}

fn fence(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

proptest! {
    #[test]
    fn f7_the_clock_takes_the_place_of_a_hint_that_is_further_ahead_than_the_lead(
        counter in 0..FencingToken::MAX.get(),
        asker in 0..1_u64 << 54,
        node in 0..1_u64 << 54,
        lead in 0..100_000_000_u64,
    ) {
        let (wall, lead) = (Duration::from_micros(node), Duration::from_micros(lead));
        let fence_hint = FenceHint::at(Duration::from_micros(asker), None, lead);
        let drawn = fence_hint.from(fence(counter), wall).expect("there is a larger number").get();
        prop_assert!(drawn > counter);
        let latest = node + u64::try_from(lead.as_micros()).unwrap();
        let hint = fence_hint.hint.get();
        prop_assert_eq!(drawn, counter.max(if hint <= latest { hint } else { node }) + 1);
    }

    #[test]
    fn a_number_seen_is_a_hint_like_the_clock(wall in 0..1_u64 << 53, seen in 0..1_u64 << 53) {
        let fence_hint = FenceHint::at(Duration::from_micros(wall), FencingToken::new(seen), Duration::ZERO);
        prop_assert_eq!(fence_hint.hint.get(), wall.max(seen).min(FencingToken::MAX.get() - 1));
    }

    #[test]
    fn the_largest_number_counts_if_a_quorum_drew_it(
        numbers in prop::collection::vec(1..4_u64, 0..6),
    ) {
        let quorum = Quorum::majority(5);
        let drawn = FenceVotes::of(numbers.iter().map(|number| fence(*number)));
        let largest = numbers.iter().max();
        prop_assert_eq!(drawn.map(|drawn| drawn.token().get()), largest.copied());
        let carry = numbers.iter().filter(|number| Some(*number) == largest).count();
        prop_assert_eq!(drawn.is_some_and(|drawn| drawn.stands(quorum)), carry >= quorum.needed());
    }

    #[test]
    fn a_fencing_token_parses_as_displayed(number in 0..=FencingToken::MAX.get()) {
        prop_assert_eq!(fence(number).to_string().parse(), Ok(fence(number)));
    }
}

#[test]
fn a_fencing_token_is_one_number_in_all_its_forms() {
    let token = fence(42);
    assert_eq!((token.get(), u64::from(token), "42".parse()), (42, 42, Ok(token)));
    assert_eq!(format!("{token} {token:?}"), "42 FencingToken(42)");
}

#[test]
fn an_exhausted_counter_draws_nothing() {
    let fence_hint = FenceHint::at(Duration::MAX, None, Duration::MAX);
    let last = fence_hint.from(fence(1), Duration::MAX);
    assert_eq!(last, Ok(FencingToken::MAX), "the hint leaves room for one");
    assert_eq!(fence_hint.from(FencingToken::MAX, Duration::ZERO), Err(NoNumber::AtEnd));
    assert_eq!(FencingToken::new(FencingToken::MAX.get() + 1), None);
    for text in ["", "-1", "+1", " 1", "1.0", "9007199254740992", "99999999999999999999"] {
        assert!(text.parse::<FencingToken>().is_err(), "{text:?}");
    }
}

#[test]
fn f5_the_next_number_is_above_all_that_were_drawn() {
    let votes = FenceVotes::of([fence(7), fence(5)]).unwrap();
    assert_eq!((votes.token(), votes.next()), (fence(7), fence(8)), "above everything that was drawn");
    assert_eq!(
        FenceVotes::of([FencingToken::MAX]).unwrap().next(),
        FencingToken::MAX,
        "which no counter is below"
    );
}

#[test]
fn i24_a_process_is_no_older_than_its_note_and_its_event_loop_allow() {
    let (hour, second) = (Duration::from_secs(3_600), Duration::from_secs(1));
    assert_eq!(believed(Some(hour), None, None), hour, "no evidence against it");
    assert_eq!(believed(Some(hour), None, Some(5 * second)), 5 * second, "its clock was put forward");
    assert_eq!(believed(Some(5 * second), None, Some(hour)), 5 * second, "the clock of a client was behind");
    assert_eq!(believed(Some(hour), Some(1_799), None), Duration::ZERO, "not once in two seconds");
    assert_eq!(believed(Some(hour), Some(1_800), None), hour);
    assert_eq!(believed(Some(hour), Some(0), Some(30 * second)), 30 * second, "counters can be reset");
    assert_eq!(believed(Some(Duration::ZERO), Some(0), None), Duration::ZERO);
    assert_eq!(believed(None, Some(7), Some(hour)), hour, "its clock was set back to before its start");
    assert_eq!(believed(None, Some(7), None), Duration::ZERO, "and no client knows it");
}

#[test]
fn o9_one_release_in_eight_is_open_and_all_after_an_outside_holder() {
    let open = |others| (0..80).filter(|random| releases_openly(*random, others)).count();
    assert_eq!([open(false), open(true)], [10, 80]);
}

#[test]
fn o5_an_offer_is_accepted_with_enough_time_to_renew() {
    let left = |trip| least_left(Duration::from_millis(1_200), Duration::from_millis(trip)).as_millis();
    assert_eq!([left(0), left(100)], [120, 300]);
}

#[test]
fn o12_an_offer_is_taken_up_after_a_thirtieth_of_what_is_left_and_immediately_if_that_is_little() {
    let waits = [1_200, 300, 299, 100].map(|left| take_up_after(Duration::from_millis(left)));
    assert_eq!(waits, [40, 10, 0, 0].map(Duration::from_millis));
}

#[test]
fn o7_an_offer_lives_for_1_2_s_the_ttl_and_half_of_max_ttl_at_most() {
    let life =
        |ttl, max_ttl| offer_life(Duration::from_millis(ttl), Duration::from_millis(max_ttl)).as_millis();
    assert_eq!([life(30_000, 60_000), life(1_000, 60_000), life(30_000, 1_001)], [1_200, 1_000, 500]);
}
