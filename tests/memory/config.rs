//! Invalid settings are refused before any request, with a message that names the problem and the fix.

use std::time::Duration;

use quorlock::{AcquireError, Builder, Coordinator};
use quorlock_testkit::memory_nodes;

fn refusal(builder: Builder) -> String {
    builder.build().expect_err("this configuration cannot work").to_string()
}

fn with_nodes() -> Builder {
    Coordinator::builder().custom_nodes(memory_nodes(3))
}

#[test]
fn no_nodes() {
    assert_eq!(
        refusal(Coordinator::builder()),
        "no nodes were given; name an odd number of independent masters, such as three or five"
    );
}

#[test]
fn an_unreadable_address_and_never_its_password() {
    for url in ["http://:hunter2@a", "redis://:hunter2@a:port", "redis://:hunter2@a/x", "redis://:hunter2@"] {
        let refused = refusal(Coordinator::builder().nodes([url]));
        assert!(!refused.contains("hunter2"), "{refused}");
        assert!(!refused.is_empty());
    }
}

#[test]
fn the_same_server_twice_in_any_spelling() {
    for twin in ["redis://EU-1:6379", "eu-1", "valkey://eu-1:6379/3", "redis://user:hunter2@eu-1"] {
        let refused = refusal(Coordinator::builder().nodes(["redis://eu-1", twin, "redis://eu-2"]));
        assert!(refused.contains("given twice") && refused.contains("eu-1"), "{twin}: {refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn too_many_nodes() {
    let refused = refusal(Coordinator::builder().custom_nodes(memory_nodes(32)));
    assert!(refused.starts_with("32 nodes were given, more than the 31 supported"), "{refused}");
}

#[test]
fn a_quorum_below_a_majority_or_above_all() {
    assert_eq!(
        refusal(with_nodes().quorum(1)),
        "a quorum of 1 of 3 nodes is not possible; it must be at least 2, more than half, and at most 3"
    );
    assert!(refusal(with_nodes().quorum(4)).contains("at most 3"));
}

#[test]
fn a_drift_out_of_range() {
    for factor in [-0.1, 0.6, f64::NAN] {
        assert!(refusal(with_nodes().drift(factor)).contains("between 0 and 0.5"));
    }
}

#[test]
fn a_ttl_that_leaves_nothing_to_hold() {
    let refused =
        refusal(with_nodes().node_timeout(Duration::from_millis(200)).ttl(Duration::from_millis(500)));
    assert_eq!(
        refused,
        "a node timeout of 200ms needs a TTL and a max_ttl of 2s or more, and the TTL is 500ms: make them longer, or the \
         node timeout shorter"
    );
    let refused = refusal(with_nodes().node_timeout(Duration::from_secs(4)));
    assert!(refused.contains("needs a TTL and a max_ttl of 40s or more, and the TTL is 30s"), "{refused}");
    let too_short = "a TTL of 10ms is too short: use a TTL and a max_ttl of 20ms or more";
    let least = Duration::from_millis(10);
    assert_eq!(refusal(with_nodes().max_ttl(least)), too_short);
    assert_eq!(refusal(with_nodes().max_ttl(least).ttl(Duration::from_secs(1))), too_short);
}

#[test]
fn a_ttl_above_the_limit_of_the_deployment() {
    let refused = refusal(with_nodes().max_ttl(Duration::from_secs(10)).ttl(Duration::from_secs(60)));
    assert!(refused.contains("60s is above the deployment's max_ttl of 10s"), "{refused}");
    assert!(refused.contains("set max_ttl to 60s at every client"), "{refused}");
}

#[test]
fn a_key_prefix_longer_than_a_name() {
    assert!(with_nodes().key_prefix("x".repeat(1_024)).build().is_ok());
    assert!(refusal(with_nodes().key_prefix("x".repeat(1_025))).contains("a key prefix has 1025 bytes"));
}

#[test]
fn no_cure_is_named_that_would_be_refused() {
    let long = refusal(with_nodes().ttl(Duration::from_secs(345_600_000)));
    assert!(long.ends_with("use a TTL of at most 30s"), "{long}");
    let slow = refusal(with_nodes().node_timeout(Duration::MAX));
    assert!(slow.starts_with("the node timeout is longer than a tenth of any TTL"), "{slow}");
}

#[test]
fn a_max_ttl_that_no_server_can_wait_for_is_refused() {
    assert!(refusal(with_nodes().max_ttl(Duration::MAX)).contains("ten years"));
}

#[test]
fn i13_a_ttl_above_30_s_where_max_ttl_is_not_set() {
    let minute = Duration::from_secs(60);
    let refused = refusal(with_nodes().ttl(minute));
    assert!(refused.contains("60s is above the deployment's max_ttl of 30s"), "{refused}");
    with_nodes().max_ttl(minute).ttl(minute).build().unwrap();
}

#[test]
fn a_max_ttl_below_30_s_is_the_default_ttl() {
    let limit = Duration::from_secs(10);
    let coordinator = with_nodes().max_ttl(limit).build().unwrap();
    coordinator.lock("r").validate().unwrap();
    assert!(format!("{:?}", coordinator.lock("r")).contains("ttl: 10s"));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_cause() {
    let refused = refusal(with_nodes().password_file("/nowhere/password"));
    assert!(refused.starts_with("the password cannot be read: /nowhere/password: No such file"), "{refused}");
}

#[test]
fn a_name_that_is_too_long_with_the_number_of_a_permit() {
    let coordinator = with_nodes().build().unwrap();
    let validated = |length, permits| coordinator.semaphore("x".repeat(length), permits).validate();
    assert!(validated(1_022, 10).is_ok());
    let refused = validated(1_022, 11).unwrap_err().to_string();
    let expected =
        "a resource name has 1022 bytes, more than the 1021 allowed where a permit's number follows;";
    assert!(refused.starts_with(expected), "{refused}");
}

#[test]
fn limits_of_zero() {
    assert!(refusal(with_nodes().node_timeout(Duration::ZERO)).contains("the node timeout is zero"));
    assert!(refusal(with_nodes().connect_timeout(Duration::ZERO)).contains("the connect timeout is zero"));
}

#[test]
fn a_label_that_no_lock_could_have() {
    assert!(with_nodes().label("x".repeat(200)).build().is_ok());
    assert!(refusal(with_nodes().label("x".repeat(201))).contains("a label of 201 bytes"));
}

#[tokio::test]
async fn options_of_a_lock_are_refused_before_any_request() {
    let nodes = memory_nodes(3);
    let coordinator = Coordinator::builder().custom_nodes(nodes.clone()).build().unwrap();
    let long = "x".repeat(1025);
    let cases = [
        (coordinator.lock(""), "a resource name is empty"),
        (coordinator.lock(&long), "has 1025 bytes, more than the 1024 allowed"),
        (coordinator.lock("r").ttl(Duration::from_secs(31)), "31s is above the deployment's max_ttl of 30s"),
        (coordinator.lock("r").ttl(Duration::from_millis(5)), "5ms is too short"),
        (coordinator.lock("r").max_hold(Duration::ZERO), "max_hold is zero"),
        (coordinator.lock("r").label(&long), "a label of 1025 bytes"),
    ];
    for (lock, sentence) in cases {
        let validated = lock.validate().unwrap_err().to_string();
        assert!(validated.contains(sentence), "{validated}");
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Config(_)), "{error}");
        assert_eq!(error.to_string(), validated);
    }
    assert!(nodes.iter().all(|node| node.requests().total() == 0), "no request was sent");
}

#[test]
fn debug_shows_no_password() {
    let builder = Coordinator::builder()
        .nodes(["redis://user:hunter2@eu-1", "redis+unix:///run/redis.sock?pass=hunter2"])
        .password("hunter2");
    assert!(!format!("{builder:?}").contains("hunter2"), "{builder:?}");
    let coordinator = builder.build().unwrap();
    assert!(!format!("{coordinator:?}").contains("hunter2"), "{coordinator:?}");
}
