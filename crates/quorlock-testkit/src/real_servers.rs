//! Redis servers under the contract: what another client of them stores there.

use std::io;
use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::protocol::FENCE_MEMBER;
use quorlock::runtime::BoxFuture;
use quorlock_servers::{Cluster, Resp, Server};

use crate::contract::Plant;
use crate::value::Value;

impl Plant for Server {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let key = key.as_bytes();
            let millis = match expiry {
                Expiry::In(left) => left.as_millis().to_string(),
                Expiry::Never => String::new(),
            };
            let mut stored = match &value {
                // With its expiry, because each command is a hint for those who watch the key.
                Value::Text(text) if millis.is_empty() => return send(self, &[b"SET", key, text]).await,
                Value::Text(text) => return send(self, &[b"SET", key, text, b"PX", millis.as_bytes()]).await,
                Value::List(items) => {
                    let items = items.iter().map(Vec::as_slice);
                    send(self, &[b"RPUSH", key].into_iter().chain(items).collect::<Vec<&[u8]>>()).await
                }
                Value::Number(number) => {
                    let number = number.to_string();
                    send(self, &[b"ZADD", key, number.as_bytes(), FENCE_MEMBER.as_bytes()]).await
                }
            };
            if stored.is_ok() && !millis.is_empty() {
                stored = send(self, &[b"PEXPIRE", key, millis.as_bytes()]).await;
            }
            stored
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { send(self, &[b"DEL", key.as_bytes()]).await })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let answer = self.command(&["PTTL", key]).await?;
            let Resp::Number(left) = answer else {
                return Err(io::Error::other(format!("PTTL {key}: {answer}")));
            };
            Ok(match left {
                -2 => None,
                -1 => Some(Expiry::Never),
                _ => Some(Expiry::In(Duration::from_millis(left.unsigned_abs()))),
            })
        })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.restart_empty())
    }
}

impl Plant for Cluster {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.master_of(key).await?.plant(key, value, expiry).await })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.master_of(key).await?.remove(key).await })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move { self.master_of(key).await?.expiry(key).await })
    }
}

async fn send(server: &Server, words: &[&[u8]]) -> io::Result<()> {
    let answer = server.command_of_bytes(words).await?;
    if let Resp::Error(message) = answer { Err(io::Error::other(message)) } else { Ok(()) }
}
