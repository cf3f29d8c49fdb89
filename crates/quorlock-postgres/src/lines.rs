//! Assigns requests to connections, and opens more under load.

use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;
use quorlock::{
    node::{NodeError, Responder, SharedRequest},
    runtime::Clock,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::job::{Barrier, Job, Load, Spanning};
use crate::listeners::Listeners;

/// Another connection is opened when a key's connection has this many unanswered requests.
const DEEP: usize = 3;
/// The maximum number of unanswered requests on a connection, also of those that wait for one. Further ones are refused.
const MOST_UNANSWERED: usize = 100_000;
/// How long to wait after a failed attempt to open another connection.
const PAUSE: Duration = Duration::from_secs(10);

/// The connections of a node.
pub(crate) struct ConnectionPool {
    lines: Vec<(UnboundedSender<Job>, Load)>,
    used: Mutex<Used>,
}

struct Used {
    /// How many carry requests; at least one.
    count: usize,
    /// Whether the next one is being opened. It carries nothing until it is open.
    opening: bool,
    /// No further connection is opened before this time.
    not_before: Option<Moment>,
}

impl ConnectionPool {
    pub(crate) fn new(senders: Vec<UnboundedSender<Job>>) -> ConnectionPool {
        let lines = senders.into_iter().map(|sender| (sender, Load::default())).collect();
        ConnectionPool { lines, used: Mutex::new(Used { count: 1, opening: false, not_before: None }) }
    }

    /// Passes a request to the connection of its keys. Requests are in the same order on all connections.
    pub(crate) fn give(
        &self,
        keys: &[&str],
        request: SharedRequest,
        responder: Responder,
        listeners: &Listeners,
        clock: &dyn Clock,
    ) {
        let mut used = self.used.lock();
        self.look(&mut used, keys, listeners, clock);
        let mut lines: Vec<usize> = Vec::new();
        for key in keys {
            let line = line(key, used.count);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let (first, others) = lines.split_first().map_or((0, &[][..]), |(first, others)| (*first, others));
        let Some((sender, load)) = self.lines.get(first) else { return };
        let waiting = load.get();
        if waiting >= MOST_UNANSWERED {
            drop(used);
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        let spanning = (!others.is_empty()).then(|| {
            // Earlier requests on the other connections execute before this one, and later ones after it.
            let mut spanning = Spanning { arrivals: Vec::new(), leave: Vec::new() };
            for other in others {
                let (leave, left) = oneshot::channel();
                spanning.arrivals.push(self.arrival(*other, left));
                spanning.leave.push(leave);
            }
            spanning
        });
        let order_lost = listeners.order_lost();
        let job = Job::Ask { request, responder, spanning, order_lost, unanswered: load.add() };
        let sent = sender.send(job);
        drop(used);
        // If the connection's task has ended, this answers the request, and the caller may ask again.
        drop(sent);
    }

    /// Reports when there is a connection, or why there is none.
    pub(crate) fn connect(&self, ready: oneshot::Sender<Result<(), NodeError>>) {
        if let Some((sender, _)) = self.lines.first() {
            drop(sender.send(Job::Connect(ready)));
        }
    }

    /// Opens another connection under load, and uses it as soon as it is open.
    fn look(&self, used: &mut Used, keys: &[&str], listeners: &Listeners, clock: &dyn Clock) {
        let Some((next, _)) = self.lines.get(used.count) else { return };
        if used.opening {
            if listeners.connected() > used.count {
                // Keys move to it from all others, which must first answer their earlier requests: that
                // preserves the order per key.
                let arrivals =
                    (0..used.count).map(|other| self.arrival(other, oneshot::channel().1)).collect();
                drop(next.send(Job::After(arrivals)));
                (used.count, used.opening) = (used.count + 1, false);
            }
        } else if keys
            .iter()
            .any(|key| self.lines.get(line(key, used.count)).is_some_and(|(_, load)| load.get() >= DEEP))
            && listeners.connected() == used.count
            && used.not_before.is_none_or(|until| clock.now() >= until)
        {
            drop(next.send(Job::Connect(oneshot::channel().0)));
            used.opening = true;
        }
    }

    /// Returns a receiver that resolves when the connection has answered all earlier requests. The connection
    /// continues when the other end of `left` is dropped.
    fn arrival(&self, line: usize, left: oneshot::Receiver<()>) -> oneshot::Receiver<()> {
        let (arrived, arrival) = oneshot::channel();
        if let Some((sender, _)) = self.lines.get(line) {
            drop(sender.send(Job::Pass(Barrier { arrived, left })));
        }
        arrival
    }

    /// Does without a connection that could not be opened, for a while; the server may have too many. Returns
    /// `false` if that is not possible because the connection carried requests.
    pub(crate) fn give_up(&self, line: usize, now: Moment) -> bool {
        let mut used = self.used.lock();
        if line < used.count {
            return false;
        }
        used.opening = false;
        used.not_before = Some(now + PAUSE);
        true
    }
}

/// Returns which of `count` connections a key belongs to. When `count` grows by one, keys move only to the
/// new one.
fn line(key: &str, count: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The finalizer of SplitMix64.
    let weight = |line: usize| {
        let mixed = hash.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(line as u64 + 1));
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..count).max_by_key(|line| weight(*line)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use quorlock::node::Request;
    use quorlock::runtime::SystemClock;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// A caller that asked the node again when it was answered waited for the lock.
    #[test]
    fn a_request_for_a_connection_that_is_no_more_is_answered_without_a_lock() {
        let pool = Arc::new(ConnectionPool::new(vec![unbounded_channel().0]));
        let (again, (answered, answer)) = (Arc::clone(&pool), channel());
        let responder = Responder::from_fn(move |_| answered.send(again.used.try_lock().is_some()).unwrap());
        let (listeners, clock) = (Listeners::default(), SystemClock::default());
        pool.give(&["a"], Request::inspect("a").into(), responder, &listeners, &clock);
        assert_eq!(answer.recv(), Ok(true));
    }

    #[test]
    fn keys_spread_evenly_and_move_to_a_new_connection_only() {
        let keys: Vec<String> = (0..4000).map(|number| format!("orders/{number}")).collect();
        for count in 1..16 {
            let mut shares = vec![0; count + 1];
            for key in &keys {
                let (before, after) = (line(key, count), line(key, count + 1));
                assert!(after == before || after == count, "{key} went from {before} to {after}");
                shares[after] += 1;
            }
            let even = keys.len() / (count + 1);
            assert!(shares.iter().all(|share| (even * 3 / 4..=even * 5 / 4).contains(share)), "{shares:?}");
        }
    }
}
