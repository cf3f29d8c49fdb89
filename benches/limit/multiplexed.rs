//! A hand-written round over the client crate: one future per request.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use quorlock::runtime::{Entropy, SystemEntropy};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::{COMPARE_AND_DELETE, NEEDED};

pub struct Multiplexed {
    connections: Vec<MultiplexedConnection>,
    hash: String,
}

impl Multiplexed {
    pub async fn connect(urls: &[String]) -> Multiplexed {
        let mut connections = Vec::new();
        let script = redis::Script::new(COMPARE_AND_DELETE);
        for url in urls {
            let client = redis::Client::open(&**url).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE).clone();
            let _: String = load.query_async(&mut connection).await.unwrap();
            connections.push(connection);
        }
        Multiplexed { connections, hash: script.get_hash().to_owned() }
    }

    /// Acquires and releases once.
    pub async fn cycle(&self, key: &str) {
        let token = format!("{:032x}", SystemEntropy::default().next_u128());
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&token).arg("NX").arg("PX").arg(30_000);
        self.round(&set).await;
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.hash).arg(1).arg(key).arg(&token);
        self.round(&delete).await;
    }

    async fn round(&self, command: &Cmd) {
        let request = |connection: &MultiplexedConnection| {
            let mut connection = connection.clone();
            async move { command.query_async::<Value>(&mut connection).await }
        };
        let mut answers: FuturesUnordered<_> = self.connections.iter().map(request).collect();
        let mut granted = 0;
        while granted < NEEDED {
            let answer = answers.next().await.expect("the key is free").unwrap();
            // Otherwise the release of the previous cycle was decided without this server.
            granted += usize::from(matches!(answer, Value::Okay | Value::Int(1)));
        }
    }
}
