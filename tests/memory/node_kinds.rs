//! Kinds of node: Redis and custom nodes from URLs, in one deployment.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::acquiring;
use futures::FutureExt as _;
use quorlock::{
    Builder, ConfigError, Coordinator, RestartGuard, Wait,
    node::{
        AddressError, Capabilities, Kinds, Node, NodeAddress, NodeError, NodeKind, Reason, Request,
        Responder, Seams,
    },
    runtime::Clock as _,
};
use quorlock_testkit::{MemoryNode, TokioClock, eventually, memory_nodes};

/// `toy://a+b,c/name`: hosts with commas between them, and a name that ends them.
#[derive(Clone, Debug, Default)]
struct Toys {
    /// The settings that each node was made with.
    made: Arc<Mutex<Vec<Seams>>>,
}

#[derive(Debug)]
struct Toy {
    hosts: Vec<String>,
    name: String,
    made: Arc<Mutex<Vec<Seams>>>,
}

impl NodeKind for Toys {
    fn schemes(&self) -> &[&str] {
        &["toy", "plaything"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        let (_, rest) = url.split_once(':').unwrap();
        let rest = rest.trim_start_matches('/');
        let wrong = || AddressError::malformed("toy://…", "has no name", "write `toy://host,host/name`");
        let (hosts, name) = rest.split_once('/').ok_or_else(wrong)?;
        let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
        let hosts = hosts.split(',').map(str::to_owned).collect();
        Ok(Box::new(Toy { hosts, name: name.to_owned(), made: Arc::clone(&self.made) }))
    }

    fn goes_on_after(&self, url_so_far: &str) -> bool {
        url_so_far.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
    }
}

impl NodeAddress for Toy {
    fn servers(&self) -> Vec<String> {
        self.hosts.clone()
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        if self.name == "broken" {
            return Err(Reason::new("it is broken").because(std::io::Error::other("a wheel is off")));
        }
        self.made.lock().unwrap().push(seams.clone());
        Ok(Arc::new(MemoryNode::new(self.to_string())))
    }
}

impl fmt::Display for Toy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "toy://{}/{}", self.hosts.join(","), self.name)
    }
}

fn with_toys() -> Builder {
    Coordinator::builder().kind(Toys::default())
}

fn names(coordinator: &Coordinator) -> Vec<String> {
    coordinator.health().now().iter().map(|node| node.node.to_string()).collect()
}

#[test]
fn a_list_of_several_kinds_is_split_by_each_kind() {
    let list = "redis://r1, toy://a,b/x,plaything://u:pw@c/y,r2:7,redis+sentinel://s1,s2/m,toy://d,e/z,\
                redis+cluster://c1,c2,toy://f/q";
    let urls = Kinds::default().with(Toys::default()).split(list).unwrap();
    let expected = [
        "redis://r1",
        "toy://a,b/x",
        "plaything://u:pw@c/y",
        "r2:7",
        "redis+sentinel://s1,s2/m",
        "toy://d,e/z",
        "redis+cluster://c1,c2",
        "toy://f/q",
    ];
    assert_eq!(urls, expected);
    let coordinator = with_toys().nodes(&urls).build().unwrap();
    let shown = [
        "redis://r1:6379",
        "toy://a,b/x",
        "toy://c/y",
        "redis://r2:7",
        "m@s1:26379",
        "toy://d,e/z",
        "redis+cluster://c1:6379,c2:6379",
        "toy://f/q",
    ];
    assert_eq!(names(&coordinator), shown);
}

#[test]
fn services_and_clusters_keep_their_commas() {
    let cases: [(&str, &[&str]); 2] = [
        (
            "redis+sentinel://s1,s2:1/m?protocol=resp3, redis://a,b,redis+sentinel://s3,,s4/m",
            &["redis+sentinel://s1,s2:1/m?protocol=resp3", "redis://a", "b", "redis+sentinel://s3,s4/m"],
        ),
        (
            "redis+cluster://c1:1,c2:2,redis://a,b,redis+cluster://c3,c4?protocol=resp3,c",
            &["redis+cluster://c1:1,c2:2", "redis://a", "b", "redis+cluster://c3,c4?protocol=resp3", "c"],
        ),
    ];
    for (list, urls) in cases {
        assert_eq!(Kinds::default().split(list).unwrap(), urls);
    }
}

#[test]
fn a_scheme_needs_no_slashes_and_a_port_means_a_host() {
    let kinds = Kinds::default().with(Toys::default());
    let list = "redis+sentinel://s1,s2/m,toy:a/x,TOY:/b/y,toy:6379,redis://c";
    let urls = ["redis+sentinel://s1,s2/m", "toy:a/x", "TOY:/b/y", "toy:6379", "redis://c"];
    assert_eq!(kinds.split(list).unwrap(), urls);
    let coordinator = Coordinator::builder().kinds(kinds).nodes(&urls[2..]).build().unwrap();
    assert_eq!(names(&coordinator), ["toy://b/y", "redis://toy:6379", "redis://c:6379"]);
}

#[test]
fn a_list_in_place_of_an_address_is_refused_as_such() {
    for list in [
        "a,b,c",
        "redis://u:hunter2@a,b,c",
        "redis://a,redis://b,redis://c",
        "redis://a:6379,b:6379",
        "redis://u:hunter2@a,redis://u:hunter2@b",
        "redis://a/0,redis://b/1",
        "redis://a/0,b/1",
        "redis://a?layout=redisson,redis://b",
        "redis+sentinel://s1,s2/m,redis://a",
        "toy://a,b/x,toy://c/y",
        "toy:a/x,toy:b/y",
    ] {
        let error = with_toys().nodes([list]).build().unwrap_err().to_string();
        assert!(error.contains("is a list; give each address by itself"), "{list}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    // Commas of one address.
    for url in ["redis://an,na:Qq7,Zz9@a", "redis+sentinel://s1,s2/m", "toy://a,b/x", "unix:///run/a,b.sock"]
    {
        with_toys().nodes([url]).build().unwrap();
    }
    for quoted in ["\"redis://:hunter2@a\"", "'a,b'"] {
        let error = with_toys().nodes([quoted]).build().unwrap_err().to_string();
        assert!(error.contains("begins with a quotation mark") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_scheme_with_nothing_behind_is_no_host() {
    for url in ["toy:", "TOY:"] {
        let error = with_toys().nodes([url]).build().unwrap_err().to_string();
        assert!(error.contains("has no name"), "{error}");
    }
}

#[test]
fn a_malformed_list_is_refused_without_its_password() {
    let cuts = [
        ("redis://anna:Qq7Zz9,more@a", AddressError::CutAtComma),
        ("redis+unix:///run/a?pass=more,Qq7Zz9", AddressError::CutAtComma),
        ("toy://c/y,u:Qq7Zz9@d/x", AddressError::CutAtComma),
        ("redis://a toy://:Qq7Zz9@b/x", AddressError::Blanks),
    ];
    for (list, problem) in cuts {
        assert_eq!(Kinds::default().with(Toys::default()).split(list).unwrap_err(), problem, "{list}");
    }
}

#[test]
fn kinds_may_be_named_after_the_addresses() {
    let builder = Coordinator::builder().nodes(["TOY://:hunter2@a/x", "toy://b/y"]);
    assert!(!format!("{builder:?}").contains("hunter2"), "{builder:?}");
    assert_eq!(names(&builder.kind(Toys::default()).build().unwrap()), ["toy://a/x", "toy://b/y"]);
}

#[test]
fn an_unknown_scheme_is_refused_with_all_known_ones() {
    let error = with_toys().nodes(["http://:hunter2@a"]).build().unwrap_err().to_string();
    assert!(error.contains("unknown scheme; use redis://, rediss://"), "{error}");
    assert!(error.ends_with("valkeys+cluster://, toy:// or plaything://"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = Coordinator::builder().nodes(["toy://a/x"]).build().unwrap_err().to_string();
    assert!(error.contains("redis+cluster://") && !error.contains("toy"), "{error}");
}

#[test]
fn a_duplicate_is_refused_and_a_second_kind_on_its_host_is_not() {
    let error = with_toys().nodes(["toy://a,b/x", "redis://c", "toy://:hunter2@b,c/y"]).build().unwrap_err();
    assert_eq!(error, ConfigError::SameServerTwice { name: "toy://b,c/y".into() });
    with_toys().nodes(["toy://a:6379/x", "redis://a:6379"]).build().unwrap();
}

#[test]
fn a_scheme_of_two_kinds_is_refused_by_name() {
    #[derive(Debug)]
    struct Other;

    impl NodeKind for Other {
        fn schemes(&self) -> &[&str] {
            &["other", "valkey"]
        }

        fn parse(&self, _url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
            Err(AddressError::Empty)
        }
    }

    let error = Coordinator::builder().kind(Other).nodes(["redis://a"]).build().unwrap_err();
    assert_eq!(error, ConfigError::SchemeTwice { scheme: "valkey".into() });
    assert!(error.to_string().contains("valkey://"), "{error}");
}

#[test]
fn an_unusable_setting_is_refused_by_its_kind() {
    for (url, words) in [
        ("toy://a", "the node address `toy://…` has no name; write `toy://host,host/name`"),
        ("toy://a/broken", "the node toy://a/broken cannot be used: it is broken: a wheel is off"),
    ] {
        assert_eq!(with_toys().nodes([url]).build().unwrap_err().to_string(), words);
    }
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_the_settings_of_the_builder() {
    let (toys, clock) = (Toys::default(), TokioClock::new());
    let coordinator = Coordinator::builder()
        .kinds(Kinds::default().with(toys.clone()))
        .nodes(["toy://a/x", "toy://b/x", "redis://c"])
        .clock(clock)
        .username("anna")
        .password("hunter2")
        .connect_timeout(Duration::from_secs(3))
        .node_timeout(Duration::from_millis(40))
        .key_prefix("locks:")
        .label("billing")
        .max_ttl(Duration::from_secs(20))
        .restart_guard(RestartGuard::Off)
        .kept_by_children(true)
        .build()
        .unwrap();
    let made = toys.made.lock().unwrap().clone();
    for seams in &made {
        assert_eq!((seams.clock().now(), seams.clock().wall()), (clock.now(), clock.wall()));
        let password = seams.password(None).now_or_never().unwrap().unwrap();
        assert_eq!((seams.username(), password.as_deref()), (Some("anna"), Some("hunter2")));
        assert_eq!(seams.connect_timeout(), Some(Duration::from_secs(3)));
        assert_eq!(seams.node_timeout(), Some(Duration::from_millis(40)));
        assert_eq!((seams.key_prefix(), seams.label()), ("locks:", "billing"));
        assert!(!seams.guards_restarts() && seams.kept_by_children());
        assert_eq!(seams.max_ttl(), None, "without a restart guard it does not matter");
        let shown = format!("{seams:?}");
        assert!(shown.contains("anna") && !shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(made.len(), 2);
    // Each node reports the `max_ttl` of other clients separately.
    assert!(coordinator.warnings().is_empty());
    let theirs = Duration::from_secs(60);
    let heard: Vec<_> = made.iter().map(|seams| seams.hear_max_ttl(theirs)).collect();
    assert_eq!(heard, [Some(theirs), None], "it is reported once");
    assert_eq!(coordinator.warnings().len(), 1);
}

/// A node that is kept and shared works as the node itself: every call is passed on.
#[tokio::test(start_paused = true)]
async fn a_shared_node_is_a_node() {
    let nodes: Vec<Arc<MemoryNode>> = memory_nodes(3).into_iter().map(Arc::new).collect();
    let client = |nodes: &[Arc<MemoryNode>]| {
        let shared: Vec<Arc<dyn Node>> = nodes.iter().map(|node| node.clone() as Arc<dyn Node>).collect();
        Coordinator::builder().custom_nodes(shared).build().unwrap().lock("r").wait(Wait::Forever)
    };
    let (one, two) = (client(&nodes), client(&nodes));
    let plain: &dyn Node = &*nodes[0];
    let shared: &dyn Node = &nodes[0];
    assert_eq!((shared.name(), shared.limits()), (plain.name(), plain.limits()));
    assert_eq!(shared.capabilities(), plain.capabilities());
    assert_ne!(shared.capabilities(), Capabilities::default(), "the default would pass nothing on");
    assert_eq!(shared.facts().is_some(), plain.facts().is_some());
    shared.ready().await.unwrap();

    // Hints are passed on: a waiter is notified, and does not wait for its heartbeat.
    let lease = one.acquire().await.unwrap();
    let waiting = acquiring(two);
    let clock = TokioClock::default();
    clock.sleep_until(clock.now() + Duration::from_secs(5)).await;
    let released = clock.now();
    lease.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    let took = clock.now().since(released);
    assert!(took < Duration::from_millis(50), "{took:?}");
}

/// The answer reaches the function once, also where the node drops its responder.
#[tokio::test]
async fn a_responder_calls_its_function_once() {
    let node = memory_nodes(1).remove(0);
    let answers = Arc::new(Mutex::new(Vec::new()));
    let record = || {
        let answers = answers.clone();
        Responder::from_fn(move |answer| answers.lock().unwrap().push(answer))
    };
    node.ask(Request::inspect("r").into(), record());
    drop(record());
    let wanted = record();
    assert!(wanted.wanted() && wanted.map(|answer| answer).wanted());
    eventually("three answers", Duration::from_secs(30), async || answers.lock().unwrap().len() == 3)
        .await
        .unwrap();
    let answers = answers.lock().unwrap();
    let failed = |answer: &&Result<_, NodeError>| matches!(answer, Err(NodeError::Disconnected { .. }));
    assert_eq!(answers.iter().filter(failed).count(), 2, "{answers:?}");
}
