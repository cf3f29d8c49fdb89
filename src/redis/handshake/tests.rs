use super::*;

fn seconds(seconds: u64) -> Moment {
    Moment::since_origin(Duration::from_secs(seconds))
}

fn process(run_id: &str, uptime: u64) -> Process {
    let uptime = Duration::from_secs(uptime);
    Process { run_id: run_id.into(), uptime, clock_set_back: false, turns: None, history: None }
}

fn connector() -> Connector {
    connector_to("db-7")
}

fn connector_to(address: &str) -> Connector {
    Connector::new(Address::parse(address).unwrap(), super::super::tests::settings(), Arc::default())
}

/// The age at `at` seconds of a process that is recognised then.
fn age_of(connector: &mut Connector, process: Process, past: Past, marks: Marks, at: u64) -> Duration {
    connector.recognise(process, past, marks, seconds(at)).age_at(seconds(at))
}

#[test]
fn o8_no_offers_where_votes_depend_on_time_or_other_servers() {
    let settings = || super::super::tests::settings();
    let guarded = || Settings { gate: Some(quorlock_protocol::gate("").into()), ..settings() };
    let offers = |address, settings| may_offer(&Address::parse(address).unwrap(), &settings);
    assert!(offers("redis://a", guarded()));
    assert!(!offers("redis://a", Settings { gate: None, ..settings() }), "without the restart guard");
    assert!(!offers("redis+sentinel://a/m", guarded()));
    assert!(!offers("redis://a?layout=redisson", guarded()));
    assert!(!offers("redis://a?forgets=never", guarded()), "it may push before it has stored");
    assert!(!offers("redis://a", Settings { membership: Membership::OfCluster, ..guarded() }));
}

#[test]
fn a_new_process_is_no_older_than_the_last_answer_of_the_one_before() {
    let mut connector = connector();
    assert_eq!(
        connector.recognise(process("old", 1_000), Past::Master, Marks::default(), seconds(10)).age,
        Duration::from_secs(999)
    );
    connector.answered(seconds(20));
    let identity = connector.recognise(process("new", 1_000), Past::Master, Marks::default(), seconds(23));
    assert_eq!(identity.age, Duration::from_secs(3), "its clock was set forward");
}

#[test]
fn a_process_that_was_seen_before_ages_on_our_clock() {
    let mut connector = connector();
    let first = connector.recognise(process("abc", 5), Past::Master, Marks::default(), seconds(10));
    let again = connector.recognise(process("abc", 5_000), Past::Master, Marks::default(), seconds(20));
    assert!(Arc::ptr_eq(&first, &again), "its clock was set forward");
    assert_eq!(again.age_at(seconds(20)), Duration::from_secs(14));
}

#[test]
fn t2_a_successor_waits_until_its_predecessor_is_unused() {
    let promoted = |connector: &mut Connector, master_since, later: u64| {
        let process = Process { history: Some("first".into()), ..process("abc", 5_000) };
        let past = Past::Promoted { master_since: Duration::from_secs(master_since) };
        let identity = connector.recognise(process, past, Marks::default(), seconds(100));
        identity.age_at(seconds(100 + later)).as_secs()
    };
    let age = |address, master_since, later| promoted(&mut connector_to(address), master_since, later);
    assert_eq!(age("redis://a", 0, 20), 20);
    assert_eq!(age("redis+sentinel://a/m", 0, 20), 12, "3 s, and 5 s to tell each other");
    assert_eq!(age("redis+sentinel://a/m", 5, 2), 0);
    assert_eq!(age("redis+sentinel://a/m", 5, 10), 7);
    assert_eq!(age("redis+sentinel://a/m", 20, 0), 12);

    let settings = super::Settings { membership: Membership::OfCluster, ..super::super::tests::settings() };
    let mut member = Connector::new(Address::parse("a").unwrap(), settings, Arc::default());
    assert_eq!(promoted(&mut member, 20, 0), 12, "clusters promote as well");
}

#[test]
fn i53_by_the_operators_word_a_node_is_old_after_a_restart_and_a_promotion_and_not_after_a_loss_that_was_seen()
 {
    for address in
        ["a?forgets=never", "redis+sentinel://a/m?forgets=never", "redis+unix:///a?db=1&forgets=never"]
    {
        let mut connector = connector_to(address);
        let same = || marks("secret", None, None);
        let restarted = connector.recognise(process("first", 1), Past::Master, same(), seconds(10));
        assert_eq!(restarted.age, Duration::MAX);
        connector.answered(seconds(20));
        let process = |id: &str| Process { history: Some("second".into()), ..process(id, 1) };
        let promoted = Past::Promoted { master_since: Duration::ZERO };
        let identity = connector.recognise(process("other"), promoted, same(), seconds(21));
        assert_eq!((identity.age, identity.seen), (Duration::MAX, seconds(21)));
        let emptied =
            connector.recognise(process("other"), promoted, marks("other", None, None), seconds(30));
        assert_eq!(emptied.age_at(seconds(30)), Duration::ZERO, "its data were deleted (rule I-51)");
    }
    assert!(Address::parse("a?forgets=sometimes").is_err());
}

/// Of several clients that meet a process in the same moment, each leaves a note, and the last note stands.
#[test]
fn i53_by_the_operators_word_another_note_of_a_process_is_no_loss_unless_it_says_so() {
    let fresh = || connector_to("a?forgets=never");
    let mut connector = fresh();
    let mut age = |noted, at| age_of(&mut connector, process("abc", at), Past::Master, noted, at);
    assert_eq!(age(marks("secret", Some(1_001), Some(9)), 10), Duration::MAX);
    assert_eq!(
        age(marks("secret", Some(1_002), Some(18)), 20),
        Duration::MAX,
        "of a client that has met it as well"
    );
    let lost = Marks { is_anew: true, ..marks("secret", Some(1_023), Some(7)) };
    assert_eq!(age(lost.clone(), 30), Duration::from_secs(7), "of one that has seen that data were lost");

    let age_at_first =
        |connector: &mut Connector, noted| age_of(connector, process("abc", 50), Past::Master, noted, 50);
    assert_eq!(
        age_at_first(&mut fresh(), lost.clone()),
        Duration::from_secs(7),
        "also for a client that comes later"
    );
    assert_eq!(
        age_at_first(&mut fresh(), marks("secret", Some(1_023), Some(7))),
        Duration::MAX,
        "without the word"
    );
    let mut back = fresh();
    back.recognise(process("abd", 40), Past::Master, marks("secret", None, None), seconds(40));
    assert_eq!(
        age_at_first(&mut back, lost),
        Duration::from_secs(7),
        "also after another process at the address"
    );
}

#[test]
fn i17_each_promotion_makes_a_process_new_and_no_older_than_its_reign() {
    let mut connector = connector();
    let mut masters_since = |history: &str, master_since, at| {
        let process = Process { history: Some(history.into()), ..process("abc", 5_000) };
        let past = Past::Promoted { master_since: Duration::from_secs(master_since) };
        age_of(&mut connector, process, past, Marks::default(), at)
    };
    assert_eq!(masters_since("first", 7, 10), Duration::from_secs(7));
    assert_eq!(masters_since("first", 100, 12), Duration::from_secs(9), "the same promotion, by our clock");
    assert_eq!(masters_since("second", 100, 15), Duration::from_secs(3), "its clock was set forward");
}

/// The marks of data with this secret, noted to have begun at a time that was `known` seconds ago.
fn marks(secret: &str, began: Option<u64>, known: Option<u64>) -> Marks {
    let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
    let secret = (!secret.is_empty()).then(|| secret.as_bytes().into());
    Marks { secret, began: seconds(began), known: seconds(known), is_anew: false, loaded_nothing: true }
}

/// The age of a process at 100 s that was seen at 10 s, by its marks then and now; it may have invalidated all keys at 90 s.
fn age_by_marks(before: Marks, after: Marks, is_invalidated: bool) -> u64 {
    let mut connector = connector();
    connector.recognise(process("abc", 1_000), Past::Master, before, seconds(10));
    if is_invalidated {
        connector.invalidated(seconds(90));
    }
    age_of(&mut connector, process("abc", 1_090), Past::Master, after, 100).as_secs()
}

#[test]
fn i51_a_process_that_has_invalidated_its_keys_begins_anew_unless_its_data_are_the_same() {
    let (same, none) = (|| marks("secret", None, None), || marks("", None, None));
    for (before, after, age, why) in [
        (same(), same(), 1_089, "another database was emptied"),
        (same(), marks("other", None, None), 10, "it was emptied"),
        (same(), Marks { loaded_nothing: false, ..same() }, 10, "a dump was loaded"),
        (none(), same(), 10, "it is unknown"),
        (same(), none(), 10, "it is unknown"),
    ] {
        assert_eq!(age_by_marks(before, after, true), age, "{why}");
    }
}

#[test]
fn i51_a_loss_is_seen_by_a_client_that_was_not_connected() {
    let noted = |known| marks("secret", Some(900), known);
    let same = || marks("secret", None, None);
    for (before, after, age, why) in [
        (same(), same(), 1_089, "nothing was lost"),
        (same(), marks("other", None, None), 0, "it was emptied meanwhile"),
        (same(), noted(Some(7)), 7, "another client has noticed"),
        (noted(Some(3)), noted(Some(93)), 1_089, "an old note"),
        (same(), noted(None), 1_089, "a note from the future"),
    ] {
        assert_eq!(age_by_marks(before, after, false), age, "{why}");
    }
}

#[test]
fn i51_a_loss_is_noted_for_other_clients() {
    let mut connector = connector();
    let same = || marks("secret", Some(900), Some(500));
    connector.recognise(process("abc", 1_000), Past::Master, same(), seconds(10));
    assert_eq!(connector.age_to_note(&process("abc", 1_000), &same(), false), None);
    let first_seen = |age| Some((Duration::from_secs(age), false));
    connector.recognise(process("abc", 1_000), Past::Master, Marks::default(), seconds(10));
    assert_eq!(connector.age_to_note(&process("abc", 7), &Marks::default(), false), first_seen(7));
    assert_eq!(connector.age_to_note(&process("abc", 500), &same(), true), first_seen(500));
    let anew = Marks { is_anew: true, ..same() };
    let kept = connector.age_to_note(&process("abc", 500), &anew, true);
    assert_eq!(kept, Some((Duration::from_secs(500), true)), "the note of another client is replaced");
    connector.invalidated(seconds(90));
    let noted = connector.age_to_note(&process("abc", 1_000), &same(), false);
    assert!(matches!(noted, Some((_, true))), "for other clients, which would count the note of before");
}
