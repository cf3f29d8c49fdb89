//! The contract suite in Redisson's layout.

use std::io;

use futures::future::BoxFuture;
use quorlock::node::{Expiry, Node};
use quorlock::redis::{Address, ClusterAddress, ClusterNode, RedisNode};
use quorlock::runtime::SystemClock;
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Cluster, Kind, Server, Servers, Value};

/// Another client, which stores what it does in Redisson's layout.
struct Editor<'a, P>(&'a P);

const COUNTER: &str = "redisson_lock_token:{";

impl<P: Plant + Commands> Plant for Editor<'_, P> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let script = match &value {
                Value::List(_) => return self.0.plant(key, value, expiry).await,
                Value::Number(_) => "redis.call('SET', KEYS[1], ARGV[1])",
                // A text that is no number.
                Value::Text(_) if key.starts_with(COUNTER) => "redis.call('SET', KEYS[1], 'no ' .. ARGV[1])",
                Value::Text(_) => "redis.call('HSET', KEYS[1], ARGV[1], 1)",
            };
            let value = match value {
                Value::Text(text) => text,
                Value::Number(number) => number.to_string().into_bytes(),
                Value::List(_) => Vec::new(),
            };
            let hex: String =
                value.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).map(char::from).collect();
            let millis = match expiry {
                Expiry::In(left) => left.as_millis().to_string(),
                Expiry::Never => String::new(),
            };
            let script = format!(
                "ARGV[1] = ARGV[1]:gsub('%x%x', function(byte) return string.char(tonumber(byte, 16)) end) {script} \
                 if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end"
            );
            self.0.run(key, &["EVAL", &script, "1", key, &hex, &millis]).await
        })
    }

    fn counter(&self, _: &str, key: &str) -> String {
        if key.contains('{') { format!("redisson_lock_token:{key}") } else { format!("{COUNTER}{key}}}") }
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        self.0.remove(key)
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        self.0.expiry(key)
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        self.0.restart()
    }
}

/// Sends a command to the server of a key.
trait Commands: Send + Sync {
    fn run<'a>(&'a self, key: &'a str, words: &'a [&'a str]) -> BoxFuture<'a, io::Result<()>>;
}

impl Commands for Server {
    fn run<'a>(&'a self, _: &'a str, words: &'a [&'a str]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.command(words).await.map(drop) })
    }
}

impl Commands for Cluster {
    fn run<'a>(&'a self, key: &'a str, words: &'a [&'a str]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.command(key, words).await.map(drop) })
    }
}

/// Returns the clauses that the node breaks.
async fn broken_by(node: &dyn Node, plant: &dyn Plant, server: &impl ToString) -> Vec<String> {
    // It also notifies a client of what its own scripts change. That is a hint too many, and no request.
    let own = "a removal by another client notifies a holder that has renewed: 1 hints about a key that only its holder";
    let is_redis_6_0 = server.to_string().contains("redis_version:6.0.");
    let checked = check_contract(node, plant, &SystemClock::default()).await;
    let breach = checked.err().map_or_else(String::new, |breach| breach.to_string());
    let broken = breach.lines().filter_map(|line| line.strip_prefix("- "));
    broken.filter(|line| !is_redis_6_0 || !line.starts_with(own)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_real_server_found_keeps_the_contract_in_redissons_layout() {
    let found = Kind::all_found();
    if found.is_empty() {
        println!("skipped: no real server for the contract suite");
    }
    for kind in found {
        println!("on {kind}");
        let servers = Servers::setup().kind(kind).start(1).await.unwrap();
        let address = format!("{}?layout=redisson", servers[0].url());
        let info = servers[0].command(&["INFO", "server"]).await.unwrap();
        let node = RedisNode::new(Address::parse(&address).unwrap());
        assert_eq!(broken_by(&node, &Editor(&servers[0]), &info).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_contract_in_redissons_layout() {
    let cluster = Cluster::start(3, 0).await.unwrap();
    let address = ClusterAddress::parse(&format!("{}?layout=redisson", cluster.url())).unwrap();
    let info = cluster.command("r", &["INFO", "server"]).await.unwrap();
    let broken = broken_by(&ClusterNode::new(address), &Editor(&cluster), &info).await;
    // Names that Redisson cannot lock in a cluster either.
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(
        broken[0].starts_with("any key can be locked") && broken[0].contains("in other slots"),
        "{broken:#?}"
    );
}
