//! Reads what a Redis server stores, without the library.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorlock::protocol::{FENCE_MEMBER, SHARED_MARKER, companion, is_auxiliary_key, readers_key};
use quorlock_history::What;
use quorlock_servers::{Resp, ask};

use super::databases::held;

/// Reads the locks and counters of the server at `address`.
pub(super) async fn inspect(
    address: SocketAddr,
    password: Option<&str>,
    node: &str,
) -> io::Result<Vec<What>> {
    let mut seen = Vec::new();
    let answer = ask(address, password, &["KEYS", "*"]).await?;
    let Resp::List(keys) = &answer else {
        return Err(io::Error::other(format!("KEYS: {answer}")));
    };
    for key in keys {
        let key = key.to_string();
        if companion(&key).is_some_and(|(_, companion)| companion.starts_with("fence:")) {
            seen.extend(counter(address, password, node, &key).await?);
            continue;
        }
        if is_auxiliary_key(&key) {
            continue;
        }
        if let Some(lock) = key.strip_prefix("redisson_lock_token:{").and_then(|rest| rest.strip_suffix('}'))
        {
            let value = ask(address, password, &["GET", &key]).await?.to_string();
            let counter = |value| What::Counter { node: node.into(), resource: lock.into(), value };
            seen.extend(value.parse().ok().map(counter));
            continue;
        }
        let Some(value) = value_of(address, password, &key).await? else { continue };
        let value = String::from_utf8_lossy(&value);
        if value == SHARED_MARKER {
            seen.extend(shares(address, password, node, &key).await?);
            continue;
        }
        let Resp::Number(millis) = ask(address, password, &["PTTL", &key]).await? else { continue };
        let remaining = match u64::try_from(millis) {
            Ok(millis) => Duration::from_millis(millis),
            Err(_) if millis == -1 => Duration::MAX,
            // It has just expired.
            Err(_) => continue,
        };
        seen.push(held(node, &key, value.as_bytes(), remaining));
    }
    Ok(seen)
}

/// Reads what a lock's key holds: a token, or in Redisson's layout the only owner in a hash.
async fn value_of(address: SocketAddr, password: Option<&str>, key: &str) -> io::Result<Option<Vec<u8>>> {
    if let Resp::Text(token) = ask(address, password, &["GET", key]).await? {
        return Ok(Some(token));
    }
    let Resp::List(owners) = ask(address, password, &["HKEYS", key]).await? else { return Ok(None) };
    let [Resp::Text(owner)] = &owners[..] else { return Ok(None) };
    Ok(Some(owner.clone()))
}

/// Reads the readers of a lock, each as if it had a key of its own.
async fn shares(address: SocketAddr, password: Option<&str>, node: &str, key: &str) -> io::Result<Vec<What>> {
    let Resp::List(members) =
        ask(address, password, &["ZRANGE", &readers_key(key), "0", "-1", "WITHSCORES"]).await?
    else {
        return Ok(Vec::new());
    };
    // Read after the members, so that no remaining time is too long.
    let Resp::List(time) = ask(address, password, &["TIME"]).await? else { return Ok(Vec::new()) };
    let number = |text: &Resp| text.to_string().parse::<u64>().unwrap_or_default();
    let now = time.first().map_or(0, number) * 1000 + time.get(1).map_or(0, number) / 1000;
    let share = |pair: &[Resp]| {
        let [token, ends] = pair else { return None };
        let remaining = Duration::from_millis(number(ends).checked_sub(now)?);
        Some(held(node, key, token.to_string().as_bytes(), remaining))
    };
    Ok(members.chunks(2).filter_map(share).collect())
}

async fn counter(
    address: SocketAddr,
    password: Option<&str>,
    node: &str,
    key: &str,
) -> io::Result<Option<What>> {
    let value = ask(address, password, &["ZSCORE", key, FENCE_MEMBER]).await?.to_string();
    let counter = |value| What::Counter { node: node.into(), resource: key.into(), value };
    Ok(value.parse().ok().map(counter))
}

#[cfg(test)]
mod tests {
    use quorlock::protocol::{InboxId, fence_counter, want_mark};
    use quorlock_testkit::Servers;

    use super::*;

    #[tokio::test]
    async fn a_refusal_is_no_empty_server() {
        let servers = Servers::setup().password("secret").start(1).await.unwrap();
        let refused = inspect(servers[0].address(), None, "node-1").await.unwrap_err();
        assert!(refused.to_string().contains("KEYS: NOAUTH"), "{refused}");
    }

    #[tokio::test]
    async fn keys_are_read_with_attempts_and_counters_with_locks() {
        let servers = Servers::start(1).await.unwrap();
        let server = &servers[0];
        let token = "0123456789abcdef0123456789abcdef host:77 worker-2.1-5";
        server.command(&["SET", "lock-1", token, "PX", "60000"]).await.unwrap();
        server.command(&["SET", "lock-2", "foreign"]).await.unwrap();
        server.command(&["HSET", "lock-4", &format!("{token}9"), "1"]).await.unwrap();
        server.command(&["SET", "redisson_lock_token:{lock-4}", "42"]).await.unwrap();
        server.command(&["SET", "semaphore-1#3", token, "PX", "60000"]).await.unwrap();
        server.command(&["ZADD", &fence_counter("", "lock-1"), "41", FENCE_MEMBER]).await.unwrap();
        server.command(&["SET", &want_mark("lock-1"), "x"]).await.unwrap();
        server.command(&["SET", &InboxId::secret_key(""), "x"]).await.unwrap();
        server.command(&["SET", "lock-3", SHARED_MARKER, "PX", "60000"]).await.unwrap();
        let (alive, dead) = (format!("{token}7"), format!("{token}8"));
        let far = "9007199254740991";
        let readers = ["ZADD", &readers_key("lock-3"), far, &alive, "1", &dead];
        server.command(&readers).await.unwrap();
        let mut seen = inspect(server.address(), server.password(), "node-1").await.unwrap();
        seen.sort_by_key(|what| format!("{what:?}"));
        let key = |of: &str| {
            seen.iter().find_map(|what| {
                let What::Key { resource, attempt, remaining, .. } = what else { return None };
                (resource.as_str() == of).then(|| (attempt.as_str().to_owned(), *remaining))
            })
        };
        let (attempt, remaining) = key("lock-1").unwrap();
        assert_eq!(attempt, "worker-2.1-5");
        assert!(remaining <= Duration::from_secs(60) && remaining > Duration::ZERO, "{remaining:?}");
        assert_eq!(key("semaphore-1").unwrap().0, "worker-2.1-5", "one of its permits");
        assert_eq!(key("lock-2"), Some(("foreign".to_owned(), Duration::MAX)));
        let counters: Vec<_> = seen.iter().filter(|what| matches!(what, What::Counter { .. })).collect();
        let counter = What::Counter {
            node: "node-1".into(),
            resource: fence_counter("", "lock-1").as_str().into(),
            value: 41,
        };
        let of_redisson = What::Counter { node: "node-1".into(), resource: "lock-4".into(), value: 42 };
        assert!(
            counters.len() == 2 && counters.contains(&&counter) && counters.contains(&&of_redisson),
            "{counters:?}"
        );
        assert_eq!(key("lock-4"), Some(("worker-2.1-59".to_owned(), Duration::MAX)), "in Redisson's layout");
        assert_eq!(key("lock-3").unwrap().0, "worker-2.1-57", "an expired reader does not count");
        assert_eq!(seen.len(), 7, "auxiliary keys are no locks");
    }
}
