//! Another client of an ensemble, which knows as much of the protocol as it needs.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::node::Expiry;
use quorlock::protocol::companion;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::contract::Plant;
use quorlock_testkit::{Value, ZooKeeperCluster};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::ordered::{Program, turn_of};

/// How long the session of another client outlives its connection.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;

/// A session, with one connection, which ends when this is dropped.
#[derive(Clone)]
pub(crate) struct Foreign(Arc<Mutex<Connection>>);

struct Connection {
    stream: TcpStream,
    last: i32,
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    buffer(text.as_bytes())
}

pub(crate) fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn int(from: &mut &[u8]) -> i32 {
    i32::from_be_bytes(take(from, 4).try_into().unwrap())
}

fn long(from: &mut &[u8]) -> i64 {
    i64::from_be_bytes(take(from, 8).try_into().unwrap())
}

fn bytes<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let length = int(from);
    take(from, usize::try_from(length).unwrap_or(0))
}

/// What a node has: data, and the session that it lives with.
pub(crate) type Node = (Vec<u8>, i64);

async fn message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap();
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Asks for a session, or for that with this number and password. Returns the connection and what was granted.
pub(crate) async fn session(
    address: SocketAddr,
    timeout: Duration,
    (id, password): (i64, &[u8]),
) -> io::Result<(TcpStream, Duration, i64, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await?;
    let mut asked = vec![0; 12];
    asked.extend(i32::try_from(timeout.as_millis()).unwrap().to_be_bytes());
    asked.extend(id.to_be_bytes());
    asked.extend(buffer(password));
    asked.push(0);
    stream.write_all(&buffer(&asked)).await?;
    let granted = message(&mut stream).await?;
    let mut granted = &granted[4..];
    let timeout = Duration::from_millis(int(&mut granted).unsigned_abs().into());
    let id = long(&mut granted);
    Ok((stream, timeout, id, bytes(&mut granted).to_vec()))
}

/// Keeps a session.
async fn ping(connection: Weak<Mutex<Connection>>) {
    const PING: [i32; 2] = [-2, 11];
    let clock = SystemClock::default();
    while let Some(connection) = connection.upgrade() {
        let ping = buffer(&PING.map(i32::to_be_bytes).concat());
        drop(connection.lock().await.stream.write_all(&ping).await);
        drop(connection);
        clock.sleep_until(clock.now() + Duration::from_millis(300)).await;
    }
}

/// Whether the node is there of which this is the code.
fn found(path: &str, code: i32) -> io::Result<bool> {
    match code {
        0 => Ok(true),
        NO_NODE => Ok(false),
        other => Err(io::Error::other(format!("{path}: {other}"))),
    }
}

impl Foreign {
    /// Connects to the first member, as our nodes do: another one may be behind.
    pub(crate) async fn of(cluster: &ZooKeeperCluster) -> Foreign {
        Foreign::at(cluster.address(0), TIMEOUT).await
    }

    pub(crate) async fn at(address: SocketAddr, timeout: Duration) -> Foreign {
        let (stream, ..) = session(address, timeout, (0, &[0; 16])).await.unwrap();
        let foreign = Foreign(Arc::new(Mutex::new(Connection { stream, last: 0 })));
        tokio::spawn(ping(Arc::downgrade(&foreign.0)));
        foreign
    }

    /// Returns the code of an answer, and the rest of it.
    pub(crate) async fn call(&self, op: i32, body: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        let mut connection = self.0.lock().await;
        connection.last += 1;
        let number = connection.last;
        let head = [number.to_be_bytes(), op.to_be_bytes()].concat();
        connection.stream.write_all(&buffer(&[&head, body].concat())).await?;
        loop {
            let answer = message(&mut connection.stream).await?;
            let mut rest = &answer[..];
            let (found, _zxid, code) = (int(&mut rest), long(&mut rest), int(&mut rest));
            if found == number {
                return Ok((code, rest.to_vec()));
            }
        }
    }

    /// Creates a node: 0 for a persistent one, 1 for an ephemeral one, and 2 more for one with a number. Returns its path.
    pub(crate) async fn create(&self, path: &str, data: &[u8], flags: i32) -> io::Result<String> {
        let access =
            [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes(), &text("world"), &text("anyone")].concat();
        let body = [&text(path), &buffer(data), &access[..], &flags.to_be_bytes()].concat();
        let (code, answer) = self.call(1, &body).await?;
        match code {
            0 => Ok(String::from_utf8(bytes(&mut &answer[..]).to_vec()).unwrap()),
            NODE_EXISTS if flags == 0 => Ok(path.to_owned()),
            other => Err(io::Error::other(format!("{path}: {other}"))),
        }
    }

    /// Creates all nodes of a path.
    pub(crate) async fn make(&self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            self.create(&path[..end], b"", 0).await?;
        }
        Ok(())
    }

    pub(crate) async fn get(&self, path: &str) -> io::Result<Option<Node>> {
        let (code, answer) = self.call(4, &[&text(path)[..], &[0]].concat()).await?;
        let mut rest = &answer[..];
        if code == NO_NODE {
            return Ok(None);
        }
        let data = bytes(&mut rest).to_vec();
        take(&mut rest, 44);
        Ok(Some((data, long(&mut rest))))
    }

    /// Returns the number of the last change of a node.
    pub(crate) async fn changed(&self, path: &str) -> io::Result<Option<i64>> {
        let (code, answer) = self.call(3, &[&text(path)[..], &[0]].concat()).await?;
        Ok((code == 0).then(|| long(&mut &answer[8..])))
    }

    pub(crate) async fn delete(&self, path: &str) -> io::Result<()> {
        let (code, _) = self.call(2, &[&text(path)[..], &(-1_i32).to_be_bytes()].concat()).await?;
        found(path, code).map(drop)
    }

    /// Returns the paths of the places of a lock, which ends in ten digits each, in their order.
    pub(crate) async fn places(&self, dir: &str) -> io::Result<Vec<String>> {
        // The member may be behind.
        let (code, _) = self.call(9, &text(dir)).await?;
        found(dir, code)?;
        let (code, answer) = self.call(8, &[&text(dir)[..], &[0]].concat()).await?;
        if !found(dir, code)? {
            return Ok(Vec::new());
        }
        let mut rest = &answer[..];
        let count = int(&mut rest);
        let names = (0..count).map(|_| String::from_utf8(bytes(&mut rest).to_vec()).unwrap());
        let sequence =
            |name: &str| name.len().checked_sub(10).and_then(|at| name.get(at..)?.parse::<u64>().ok());
        let mut places: Vec<_> =
            names.filter_map(|name| Some((sequence(&name)?, format!("{dir}/{name}")))).collect();
        places.sort();
        Ok(places.into_iter().map(|(_, path)| path).collect())
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        drop(self.call(-11, &[]).await);
    }
}

/// The path below which the locks of the suite are, and that of a lock, of which the names have to be escaped.
pub(crate) const BASE: &str = "/locks";

pub(crate) fn dir(key: &str) -> String {
    let mut path = BASE.to_owned();
    for part in key.split('/') {
        path.push('/');
        // As a random name may: it would look like a place.
        let tail = part.as_bytes().last_chunk::<10>();
        let last = tail.filter(|tail| tail.iter().all(u8::is_ascii_digit)).map(|_| part.len() - 1);
        for (at, letter) in part.char_indices() {
            if Some(at) == last || letter == '%' || letter.is_control() || letter > '\u{ffef}' {
                let mut bytes = [0; 4];
                path.extend(letter.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
            } else {
                path.push(letter);
            }
        }
    }
    path
}

impl Program for Foreign {
    async fn standing(&self, lock: &str) -> Vec<String> {
        self.places(&dir(lock)).await.unwrap()
    }

    async fn enter(&self, lock: &str) -> String {
        self.create(&format!("{}/lock-", dir(lock)), b"", 3).await.unwrap()
    }

    async fn leave(&self, place: &str) {
        self.delete(place).await.unwrap();
    }
}

/// Where the counter of a lock is.
fn counter_of(key: &str) -> Option<String> {
    let is_counter = companion(key).is_some_and(|(_, rest)| rest.starts_with("fence:"));
    let flat = dir(key)[BASE.len() + 1..].replace('/', "%2F");
    is_counter.then(|| format!("{BASE}/quorlock/fence/{flat}"))
}

impl Plant for Foreign {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if let Some(counter) = counter_of(key) {
                let data = match value {
                    Value::Number(number) => number.to_be_bytes().to_vec(),
                    Value::Text(text) => text,
                    Value::List(_) => return Err(io::ErrorKind::Unsupported.into()),
                };
                return self.create(&counter, &data, 0).await.map(drop);
            }
            let Value::Text(data) = value else { return Err(io::ErrorKind::Unsupported.into()) };
            self.make(&dir(key)).await?;
            let flags = if expiry == Expiry::Never { 2 } else { 3 };
            self.create(&format!("{}/another-", dir(key)), &data, flags).await.map(drop)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if let Some(counter) = counter_of(key) {
                return self.delete(&counter).await;
            }
            if let Some((lock, waiter)) = turn_of(key) {
                let waits = format!("\0waits {waiter} ");
                for place in self.places(&dir(lock)).await? {
                    if self.get(&place).await?.is_some_and(|(data, _)| data.starts_with(waits.as_bytes())) {
                        self.delete(&place).await?;
                    }
                }
                return Ok(());
            }
            // That of the holder.
            match self.places(&dir(key)).await?.first() {
                Some(place) => self.delete(place).await,
                None => Ok(()),
            }
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let path = match counter_of(key) {
                Some(counter) => Some(counter),
                None => self.places(&dir(key)).await?.into_iter().next(),
            };
            let Some(path) = path else { return Ok(None) };
            let found = self.get(&path).await?;
            Ok(found.map(|(_, owner)| if owner == 0 { Expiry::Never } else { Expiry::In(TIMEOUT) }))
        })
    }
}
