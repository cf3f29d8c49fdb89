//! What Redisson does at a server, as versions 3.52 and 4.7 were seen to do it.

use std::fmt;

use quorlock::Coordinator;
use quorlock::runtime::{SystemClock, within};
use quorlock_testkit::{Cluster, Resp, Server, Servers, Service, patience};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{TTL, client};

/// A thread of a client.
pub(crate) const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:31";

const LOCK: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
     return redis.call('pttl', KEYS[1])";
const UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
     if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end \
     redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], '0') redis.call('set', KEYS[3], 1, 'px', 18000) return 1";

/// Where the locks are.
pub(crate) enum Place {
    One(Servers),
    Behind(Service),
    In(Cluster),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::One(_) => "one master",
            Place::Behind(_) => "Sentinel",
            Place::In(_) => "Cluster",
        })
    }
}

impl Place {
    pub(crate) async fn one() -> Place {
        Place::One(Servers::start(1).await.unwrap())
    }

    pub(crate) async fn all() -> [Place; 3] {
        let service = Service::start("orders", 1, Servers::setup()).await.unwrap();
        [Place::one().await, Place::Behind(service), Place::In(Cluster::start(3, 0).await.unwrap())]
    }

    /// Returns its address in Redisson's layout.
    pub(crate) fn url(&self) -> String {
        let url = match self {
            Place::One(servers) => servers[0].url(),
            Place::Behind(service) => service.url(),
            Place::In(cluster) => cluster.url(),
        };
        format!("{url}{}layout=redisson", if url.contains('?') { '&' } else { '?' })
    }

    pub(crate) fn client(&self) -> Coordinator {
        client(&[self.url()], |builder| builder)
    }

    /// Returns the master of a key.
    pub(crate) async fn master(&self, key: &str) -> &Server {
        match self {
            Place::One(servers) => &servers[0],
            Place::Behind(service) => &service.servers()[0],
            Place::In(cluster) => cluster.master_of(key).await.unwrap(),
        }
    }

    pub(crate) async fn command(&self, words: &[&str]) -> Resp {
        let key = if words[0] == "EVAL" { words[3] } else { words[1] };
        self.master(key).await.command(words).await.unwrap()
    }

    /// Whether Redisson uses sharded channels here: it asks once.
    async fn is_sharded(&self) -> bool {
        let Place::In(cluster) = self else { return false };
        !matches!(cluster[0].command(&["PUBSUB", "SHARDNUMSUB"]).await.unwrap(), Resp::Error(_))
    }

    /// Tries to lock as Redisson does, and returns whether it did.
    pub(crate) async fn lock(&self, name: &str) -> bool {
        let millis = TTL.as_millis().to_string();
        self.command(&["EVAL", LOCK, "1", name, &millis, OWNER]).await == Resp::Null
    }

    /// Unlocks as Redisson does.
    pub(crate) async fn unlock(&self, name: &str) {
        let publish = if self.is_sharded().await { "SPUBLISH" } else { "PUBLISH" };
        let [channel, latch] = ["redisson_lock__channel", "redisson_unlock_latch"]
            .map(|kind| format!("{kind}:{{{name}}}{}", if kind.ends_with("latch") { ":7" } else { "" }));
        let millis = TTL.as_millis().to_string();
        let words = ["EVAL", UNLOCK, "3", name, &channel, &latch, "0", &millis, OWNER, publish];
        assert!(matches!(self.command(&words).await, Resp::Number(_)), "not unlocked");
    }

    /// Subscribes to the releases of a lock, as a waiter of Redisson does.
    pub(crate) async fn waiter(&self, name: &str) -> Ear {
        let subscribe = if self.is_sharded().await { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let server = self.master(name).await;
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let login = server.password().map_or_else(String::new, |password| format!("AUTH {password}\r\n"));
        let words = format!("{login}{subscribe} redisson_lock__channel:{{{name}}}\r\n");
        stream.write_all(words.as_bytes()).await.unwrap();
        let mut ear = Ear(stream, String::new());
        ear.hears(":1\r\n").await;
        ear
    }
}

/// A subscription, and what was received.
pub(crate) struct Ear(TcpStream, String);

impl Ear {
    /// Waits until this was received, and forgets it.
    pub(crate) async fn hears(&mut self, text: &str) {
        let Ear(stream, received) = self;
        let receiving = async {
            while !received.contains(text) {
                let mut some = [0; 512];
                let count = stream.read(&mut some).await?;
                assert!(count > 0, "closed after {received:?}");
                received.push_str(str::from_utf8(&some[..count]).unwrap());
            }
            std::io::Result::Ok(())
        };
        let received_it = within(&SystemClock::default(), patience(), receiving).await;
        received_it.unwrap_or_else(|| panic!("never received {text:?}")).unwrap();
        received.clear();
    }
}
