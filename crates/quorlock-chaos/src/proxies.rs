//! The network: a proxy between each worker and each node.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorlock::runtime::Mutex;
use quorlock_servers::{Proxy, Way};

/// The links between workers and nodes. Several faults may affect a link at the same time.
pub(crate) struct Proxies {
    /// By worker, then by node.
    proxies: Vec<Vec<Link>>,
}

struct Link {
    proxy: Proxy,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latency in each direction without a fault.
    distance: Duration,
    /// The additional latency of a fault.
    delay: Duration,
    jitter: Duration,
    /// How many faults hold back requests, and answers.
    held: [u32; 2],
}

impl Proxies {
    /// Starts the proxies. `distance` returns the one-way latency from a worker to a node.
    pub(crate) async fn build(
        workers: usize,
        nodes: &[SocketAddr],
        distance: impl Fn(usize, usize) -> Duration,
    ) -> io::Result<Proxies> {
        let mut proxies = Vec::new();
        for worker in 0..workers {
            let mut to_nodes = Vec::new();
            for (node, &address) in nodes.iter().enumerate() {
                let state = State { distance: distance(worker, node), ..State::default() };
                let link = Link { proxy: Proxy::start(address).await?, state: Mutex::new(state) };
                link.change(|_| {});
                to_nodes.push(link);
            }
            proxies.push(to_nodes);
        }
        Ok(Proxies { proxies })
    }

    /// Returns the addresses of the nodes for a worker.
    pub(crate) fn addresses(&self, worker: usize) -> Vec<SocketAddr> {
        self.of_worker(worker).map(|link| link.proxy.address()).collect()
    }

    /// Resets every connection of a node.
    pub(crate) fn cut(&self, node: usize) {
        self.of_node(node).for_each(|link| link.proxy.cut());
    }

    /// Starts or stops resetting every connection of a node, including new ones.
    pub(crate) fn refuse(&self, node: usize, refusing: bool) {
        for link in self.of_node(node) {
            link.proxy.refuse(refusing);
            if refusing {
                link.proxy.cut();
            }
        }
    }

    /// Sets the additional latency and jitter of a node in each direction.
    pub(crate) fn slow(&self, node: usize, delay: Duration, jitter: Duration) {
        for link in self.of_node(node) {
            link.change(|state| (state.delay, state.jitter) = (delay, jitter));
        }
    }

    /// Starts or stops holding back the traffic of a node.
    pub(crate) fn silence_node(&self, node: usize, way: Way, silent: bool) {
        self.of_node(node).for_each(|link| link.hold(way, silent));
    }

    /// Starts or stops holding back the traffic of a worker.
    pub(crate) fn silence_worker(&self, worker: usize, way: Way, silent: bool) {
        self.of_worker(worker).for_each(|link| link.hold(way, silent));
    }

    fn of_node(&self, node: usize) -> impl Iterator<Item = &Link> {
        self.proxies.iter().filter_map(move |of_worker| of_worker.get(node))
    }

    fn of_worker(&self, worker: usize) -> impl Iterator<Item = &Link> {
        self.proxies.get(worker).into_iter().flatten()
    }
}

impl Link {
    fn hold(&self, way: Way, silent: bool) {
        self.change(|state| {
            let [there, back] = &mut state.held;
            let count = |held: &mut u32| *held = if silent { *held + 1 } else { held.saturating_sub(1) };
            if way != Way::ToClient {
                count(there);
            }
            if way != Way::ToServer {
                count(back);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        for (way, held) in [(Way::ToServer, state.held[0]), (Way::ToClient, state.held[1])] {
            self.proxy.delay(way, state.distance + state.delay);
            self.proxy.jitter(way, state.jitter);
            if held > 0 { self.proxy.hold(way) } else { self.proxy.release(way) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn traffic_held_by_two_faults_flows_once_both_have_healed() {
        let node = ([127, 0, 0, 1], 1).into();
        let proxies = Proxies::build(1, &[node], |_, _| Duration::from_millis(3)).await.unwrap();
        let link = &proxies.proxies[0][0];
        let there = || link.proxy.to_server();
        assert_eq!((there().held, there().delay), (false, Duration::from_millis(3)));
        proxies.silence_node(0, Way::ToServer, true);
        proxies.silence_worker(0, Way::Both, true);
        proxies.silence_node(0, Way::ToServer, false);
        assert!(there().held && link.proxy.to_client().held, "the worker is still cut off");
        proxies.silence_worker(0, Way::Both, false);
        assert!(!there().held && !link.proxy.to_client().held);
        proxies.slow(0, Duration::from_millis(20), Duration::ZERO);
        assert_eq!(there().delay, Duration::from_millis(23), "on top of the distance");
    }
}
