//! What is the same for masters that are the members of one cluster, which is the only node of the workers, and which keeps a
//! place for each client that wants a lock.

use std::net::SocketAddr;
use std::time::Duration;

use quorlock_history::What;

use super::Need;
use super::databases::held;

/// A place of a waiter begins so; others are of holders.
const WAITS: &[u8] = b"\0waits ";

/// Returns the addresses of the members, as a URL names them.
pub(super) fn hosts(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Makes the event for the first place of a lock, which is the holder's unless it is a waiter's.
pub(super) fn holder(node: &str, lock: &str, place: &[u8], left: Duration) -> Option<What> {
    // After its token, an attempt may have its number.
    let token = place.split(|byte| *byte == 0).next().unwrap_or_default();
    (!place.starts_with(WAITS)).then(|| held(node, lock, token, left))
}

/// Makes the event for a fencing counter. `None` if it is something else.
pub(super) fn counter(node: &str, counter: &str, value: &[u8]) -> Option<What> {
    let value = u64::from_be_bytes(value.try_into().ok()?);
    Some(What::Counter { node: node.into(), resource: counter.into(), value })
}

/// Says why what only other servers support is impossible with these.
pub(super) fn refuse(need: Need, servers: &dyn std::fmt::Display) -> String {
    match need {
        Need::Redis | Need::RealServer | Need::BentClock => {
            format!("only possible with Redis, not with {servers}")
        }
        Need::HangingDisk => format!("only possible with etcd, not with {servers}"),
        Need::Nothing | Need::Processes | Need::Peers | Need::Backends | Need::Standby | Need::SmallDisk => {
            format!("{servers} does not support it")
        }
    }
}

/// What is the same for each member of a `cluster` of `count`: a process with its data on disk.
macro_rules! members_are_processes {
    () => {
        fn address(&self, number: usize) -> SocketAddr {
            self.cluster.address(number)
        }

        fn memory(&self) -> Memory {
            Memory::Kept
        }

        fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
            self.cluster.kill(number);
            Box::pin(async { Ok(()) })
        }

        fn restart(&self, number: usize, _memory: Memory) -> BoxFuture<'_, io::Result<()>> {
            Box::pin(self.cluster.restart(number))
        }

        fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
            Box::pin(async move { self.cluster.freeze(number) })
        }

        fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
            Box::pin(async move { self.cluster.thaw(number) })
        }

        fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>> {
            Box::pin(async move {
                for number in 0..self.count {
                    let log = folder.join(format!("node-{}.log", number + 1));
                    std::fs::copy(self.cluster.log(number), log)?;
                }
                Ok(())
            })
        }
    };
}

pub(super) use members_are_processes;
