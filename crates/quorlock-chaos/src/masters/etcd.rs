//! Masters that are the members of one cluster of etcd, which is the only node of the workers.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use quorlock_history::What;
use quorlock_servers::{EtcdCluster, EtcdPrograms};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::databases::in_time;
use super::members::{counter, holder, hosts, members_are_processes, refuse};
use super::{Masters, Memory, Need};

/// By how much each write to a disk that hangs is delayed: longer than an election takes.
const HANGS: Duration = Duration::from_secs(14);

pub(crate) struct Etcd {
    programs: EtcdPrograms,
    cluster: EtcdCluster,
    count: usize,
}

impl Etcd {
    /// Starts a cluster of this many members.
    pub(crate) async fn start(programs: EtcdPrograms, count: usize) -> io::Result<Etcd> {
        Ok(Etcd { cluster: programs.start_linked(count).await?, programs, count })
    }

    /// Returns all keys that a member knows, those first that were created first: key, value, and time that is left.
    async fn keys(&self, number: usize) -> io::Result<Vec<(String, Vec<u8>, Duration)>> {
        let address = self.address(number);
        let all = json!({
            "key": STANDARD.encode("\0"), "range_end": STANDARD.encode("\0"),
            "sort_order": "ASCEND", "sort_target": "CREATE"
        });
        let answer = call(address, "kv/range", all).await?;
        let mut keys = Vec::new();
        let mut leases: Vec<(String, Duration)> = Vec::new();
        for kv in answer.get("kvs").and_then(Value::as_array).into_iter().flatten() {
            let bytes = |name: &str| STANDARD.decode(text(kv, name));
            let key = String::from_utf8_lossy(&bytes("key").map_err(io::Error::other)?).into_owned();
            let lease = text(kv, "lease").to_owned();
            let known = leases.iter().find(|(known, _)| *known == lease).map(|(_, left)| *left);
            let left = match known {
                Some(left) => left,
                None if lease.is_empty() => Duration::ZERO,
                None => {
                    let answer = call(address, "lease/timetolive", json!({ "ID": lease })).await?;
                    let seconds = |name| text(&answer, name).parse::<u64>().unwrap_or_default();
                    // A member that has just begun or ceased to lead knows of no end.
                    Duration::from_secs(seconds("TTL").min(seconds("grantedTTL")))
                }
            };
            leases.push((lease, left));
            keys.push((key, bytes("value").map_err(io::Error::other)?, left));
        }
        Ok(keys)
    }
}

/// Returns a field that is a text; numbers of 64 bits are texts too.
fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the lock of a place, which is a key of sixteen hexadecimal digits or more below its name.
fn lock_of(key: &str) -> Option<&str> {
    let (lock, digits) = key.rsplit_once('/')?;
    let is_place = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_place && !lock.starts_with("quorlock/")).then_some(lock)
}

impl Masters for Etcd {
    fn what(&self) -> String {
        format!("a cluster of {} × {}", self.count, self.programs)
    }

    members_are_processes!();

    fn urls(&self, addresses: &[SocketAddr]) -> Vec<String> {
        vec![format!("etcd://{}", hosts(addresses))]
    }

    fn inspect<'a>(&'a self, number: usize, name: &'a str) -> BoxFuture<'a, io::Result<Vec<What>>> {
        Box::pin(in_time(async move {
            let (mut seen, mut first) = (Vec::new(), Vec::new());
            for (key, value, left) in self.keys(number).await? {
                let fence = key.strip_prefix("quorlock/fence/");
                seen.extend(fence.and_then(|fence| counter(name, fence, &value)));
                // The one that was created first is the holder's.
                let Some(lock) = lock_of(&key).filter(|lock| !first.contains(&(*lock).to_owned())) else {
                    continue;
                };
                first.push(lock.to_owned());
                seen.extend(holder(name, lock, &value, left));
            }
            Ok(seen)
        }))
    }

    fn left_behind(&self, number: usize) -> BoxFuture<'_, io::Result<Option<Vec<String>>>> {
        Box::pin(in_time(async move {
            let keys = self.keys(number).await?.into_iter().map(|(key, ..)| key);
            let of_attempts = |key: &String| lock_of(key).is_some() || key.starts_with("quorlock/tomb/");
            Ok(Some(keys.filter(of_attempts).collect()))
        }))
    }

    fn offers(&self, need: Need) -> Result<(), String> {
        match need {
            Need::Nothing | Need::Processes | Need::Peers => Ok(()),
            Need::HangingDisk if !cfg!(target_os = "linux") => Err("needs strace, so Linux".to_owned()),
            Need::HangingDisk => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let is_there = std::env::split_paths(&path).any(|folder| folder.join("strace").is_file());
                if is_there { Ok(()) } else { Err("strace is not installed".to_owned()) }
            }
            Need::Redis
            | Need::RealServer
            | Need::BentClock
            | Need::Backends
            | Need::Standby
            | Need::SmallDisk => Err(refuse(need, &self.programs)),
        }
    }

    fn cut_off(&self, number: usize, is_off: bool) -> io::Result<()> {
        self.cluster.cut_off(number, is_off)
    }

    fn hang_disk(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.cluster.hang_disk(number, HANGS))
    }

    fn free_disk(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        self.cluster.free_disk(number);
        Box::pin(async { Ok(()) })
    }
}

/// Calls a method of the gateway for JSON.
async fn call(address: SocketAddr, path: &str, body: Value) -> io::Result<Value> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await?;
    let mut output = String::new();
    stream.read_to_string(&mut output).await?;
    let (_, body) = output.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let answer: Value = serde_json::from_str(body)?;
    if answer.get("header").is_some() { Ok(answer) } else { Err(io::Error::other(answer.to_string())) }
}
