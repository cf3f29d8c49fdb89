//! Clusters, and another client of them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use quorlock::node::{Expiry, Seams};
use quorlock::protocol::companion;
use quorlock_etcd::EtcdNode;
use quorlock_testkit::contract::Plant;
use quorlock_testkit::{EtcdCluster, EtcdPrograms, Value};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ordered::{Program, turn_of};

/// Returns the programs of each etcd that is here: a current one, and Debian's.
pub(crate) fn programs() -> Vec<EtcdPrograms> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    let cached = ["etcd", "etcd-debian"].map(|folder| tools.join(folder));
    let mut found: Vec<_> =
        cached.iter().filter_map(|folder: &PathBuf| EtcdPrograms::at(folder).ok()).collect();
    match EtcdPrograms::find() {
        Ok(programs) if !found.contains(&programs) => found.push(programs),
        Err(reason) if found.is_empty() => eprintln!("skipped: {reason}"),
        Ok(_) | Err(_) => {}
    }
    found
}

/// Returns the newest.
pub(crate) fn newest() -> Option<EtcdPrograms> {
    programs().into_iter().next()
}

pub(crate) fn node(cluster: &EtcdCluster) -> EtcdNode {
    EtcdNode::new(&cluster.url(), &Seams::default()).unwrap()
}

/// Another client of a cluster, by the gateway for JSON.
#[derive(Clone)]
pub(crate) struct Foreign {
    address: SocketAddr,
}

impl Foreign {
    pub(crate) fn of(cluster: &EtcdCluster) -> Foreign {
        Foreign { address: cluster.address(0) }
    }

    /// Calls a method, and returns its answer.
    pub(crate) async fn call(&self, path: &str, body: Json) -> io::Result<Json> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).await?;
        let head = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        let response = String::from_utf8_lossy(&response).into_owned();
        let (_, body) = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        serde_json::from_str(body).map_err(|error| io::Error::other(format!("{error}: {response}")))
    }

    pub(crate) async fn put(&self, key: &[u8], value: &[u8], lease: i64) -> io::Result<()> {
        let body =
            json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value), "lease": lease.to_string()});
        let answer = self.call("kv/put", body).await?;
        if answer.get("header").is_some() { Ok(()) } else { Err(io::Error::other(answer.to_string())) }
    }

    pub(crate) async fn grant(&self, ttl: Duration) -> io::Result<i64> {
        let answer = self.call("lease/grant", json!({"TTL": ttl.as_secs().to_string()})).await?;
        answer["ID"]
            .as_str()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| io::Error::other(answer.to_string()))
    }

    /// Returns the keys that begin with `prefix`, those first that were created first: key, value, and lease.
    pub(crate) async fn list(&self, prefix: &str) -> io::Result<Vec<(String, Vec<u8>, i64)>> {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let body = json!({
            "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end),
            "sort_order": "ASCEND", "sort_target": "CREATE"
        });
        let answer = self.call("kv/range", body).await?;
        let kvs = answer["kvs"].as_array().cloned().unwrap_or_default();
        let text = |kv: &Json, name: &str| kv[name].as_str().unwrap_or_default().to_owned();
        let bytes = |kv: &Json, name: &str| STANDARD.decode(text(kv, name)).unwrap();
        Ok(kvs
            .iter()
            .map(|kv| {
                let lease = text(kv, "lease").parse().unwrap_or(0);
                (String::from_utf8_lossy(&bytes(kv, "key")).into_owned(), bytes(kv, "value"), lease)
            })
            .collect())
    }

    pub(crate) async fn delete(&self, key: &str) -> io::Result<()> {
        self.call("kv/deleterange", json!({"key": STANDARD.encode(key)})).await.map(drop)
    }

    /// Returns the places of a lock: the direct children with hexadecimal digits.
    pub(crate) async fn places(&self, lock: &str) -> io::Result<Vec<(String, Vec<u8>, i64)>> {
        let mut all = self.list(&format!("{lock}/")).await?;
        all.retain(|(key, ..)| key[lock.len() + 1..].bytes().all(|byte| byte.is_ascii_hexdigit()));
        Ok(all)
    }
}

impl Program for Foreign {
    async fn standing(&self, lock: &str) -> Vec<String> {
        self.places(lock).await.unwrap().into_iter().map(|(place, ..)| place).collect()
    }

    async fn enter(&self, lock: &str) -> String {
        let lease = self.grant(Duration::from_secs(60)).await.unwrap();
        let place = format!("{lock}/{lease:x}");
        self.put(place.as_bytes(), b"", lease).await.unwrap();
        place
    }

    async fn leave(&self, place: &str) {
        self.delete(place).await.unwrap();
    }
}

/// Where the counter of a lock is.
fn counter_of(key: &str) -> Option<String> {
    companion(key).filter(|(_, rest)| rest.starts_with("fence:")).map(|_| format!("quorlock/fence/{key}"))
}

impl Plant for Foreign {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if let Some(counter) = counter_of(key) {
                let value = match value {
                    Value::Number(number) => number.to_be_bytes().to_vec(),
                    Value::Text(text) => text,
                    Value::List(_) => return Err(io::ErrorKind::Unsupported.into()),
                };
                return self.put(counter.as_bytes(), &value, 0).await;
            }
            let Value::Text(value) = value else { return Err(io::ErrorKind::Unsupported.into()) };
            let lease = match expiry {
                Expiry::In(left) => self.grant(left).await?,
                Expiry::Never => 0,
            };
            self.put(format!("{key}/{lease:x}").as_bytes(), &value, lease).await
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if let Some(counter) = counter_of(key) {
                return self.delete(&counter).await;
            }
            if let Some((lock, waiter)) = turn_of(key) {
                let waits = format!("\0waits {waiter} ");
                for (place, value, _) in self.places(lock).await? {
                    if value.starts_with(waits.as_bytes()) {
                        self.delete(&place).await?;
                    }
                }
                return Ok(());
            }
            // That of the holder.
            match self.places(key).await?.first() {
                Some((place, ..)) => self.delete(place).await,
                None => Ok(()),
            }
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let found = match counter_of(key) {
                Some(counter) => self.list(&counter).await?,
                None => self.places(key).await?,
            };
            let Some((_, _, lease)) = found.first() else { return Ok(None) };
            if *lease == 0 {
                return Ok(Some(Expiry::Never));
            }
            let answer = self.call("lease/timetolive", json!({"ID": lease.to_string()})).await?;
            let left = answer["TTL"].as_str().and_then(|left| left.parse().ok()).unwrap_or(0);
            Ok(Some(Expiry::In(Duration::from_secs(left))))
        })
    }
}
