use super::*;

fn seconds(seconds: u64) -> Moment {
    Moment::since_origin(Duration::from_secs(seconds))
}

fn process(run_id: &str, uptime: u64) -> Process {
    Process { run_id: run_id.into(), uptime: Duration::from_secs(uptime), turns: None, history: None }
}

fn connector() -> Connector {
    Connector::new(Address::parse("db-7").unwrap(), super::super::tests::settings(), Arc::default())
}

#[test]
fn o8_no_offers_where_votes_depend_on_time_or_other_servers() {
    let settings = || super::super::tests::settings();
    let guarded = || Settings { gate: Some(quorlock_protocol::gate("").into()), ..settings() };
    let offers = |address, settings| may_offer(&Address::parse(address).unwrap(), &settings);
    assert!(offers("redis://a", guarded()));
    assert!(!offers("redis://a", Settings { gate: None, ..settings() }), "without the restart guard");
    assert!(!offers("redis+sentinel://a/m", guarded()));
    assert!(!offers("redis://a?wait=1", guarded()));
    assert!(!offers("redis://a?layout=redisson", guarded()));
    assert!(!offers("redis://a", Settings { membership: Membership::OfCluster, ..guarded() }));
}

#[test]
fn a_new_process_is_no_older_than_the_last_answer_of_the_one_before() {
    let mut connector = connector();
    assert_eq!(
        connector.recognise(process("old", 1_000), Past::Master, seconds(10)).age,
        Duration::from_secs(999)
    );
    connector.answered(seconds(20));
    let identity = connector.recognise(process("new", 1_000), Past::Master, seconds(23));
    assert_eq!(identity.age, Duration::from_secs(3), "its clock was set forward");
}

#[test]
fn a_process_that_was_seen_before_ages_on_our_clock() {
    let mut connector = connector();
    let first = connector.recognise(process("abc", 5), Past::Master, seconds(10));
    let again = connector.recognise(process("abc", 5_000), Past::Master, seconds(20));
    assert!(Arc::ptr_eq(&first, &again), "its clock was set forward");
    assert_eq!(again.age_at(seconds(20)), Duration::from_secs(14));
}

#[test]
fn t2_a_successor_waits_until_its_predecessor_is_unused() {
    let age = |address, master_since, later: u64| {
        let address = Address::parse(address).unwrap();
        let mut connector = Connector::new(address, super::super::tests::settings(), Arc::default());
        let process = Process { history: Some("first".into()), ..process("abc", 5_000) };
        let past = Past::Promoted { master_since: Duration::from_secs(master_since) };
        connector.recognise(process, past, seconds(100)).age_at(seconds(100 + later)).as_secs()
    };
    assert_eq!(age("redis://a", 0, 20), 20);
    assert_eq!(age("redis+sentinel://a/m", 0, 20), 12, "3 s, and 5 s to tell each other");
    assert_eq!(age("redis+sentinel://a/m", 5, 2), 0);
    assert_eq!(age("redis+sentinel://a/m", 5, 10), 7);
    assert_eq!(age("redis+sentinel://a/m", 20, 0), 12);

    let settings = super::Settings { membership: Membership::OfCluster, ..super::super::tests::settings() };
    let mut member = Connector::new(Address::parse("a").unwrap(), settings, Arc::default());
    let process = Process { history: Some("first".into()), ..process("abc", 5_000) };
    let past = Past::Promoted { master_since: Duration::from_secs(20) };
    let age = member.recognise(process, past, seconds(100)).age_at(seconds(100));
    assert_eq!(age.as_secs(), 12, "clusters promote as well");
}

#[test]
fn i17_each_promotion_makes_a_process_new_and_no_older_than_its_reign() {
    let mut connector = connector();
    let mut masters_since = |history: &str, master_since, at| {
        let process = Process { history: Some(history.into()), ..process("abc", 5_000) };
        let past = Past::Promoted { master_since: Duration::from_secs(master_since) };
        connector.recognise(process, past, seconds(at)).age_at(seconds(at))
    };
    assert_eq!(masters_since("first", 7, 10), Duration::from_secs(7));
    assert_eq!(masters_since("first", 100, 12), Duration::from_secs(9), "the same promotion, by our clock");
    assert_eq!(masters_since("second", 100, 15), Duration::from_secs(3), "its clock was set forward");
}
