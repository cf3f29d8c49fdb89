//! The network: connections, their latency, and what faults do to them.
//!
//! A connection is two pipes. Bytes in a pipe arrive in order, after a delay determined by the
//! random generator and the state of the link. Closing one end does not take back what was written
//! to it: it still arrives, perhaps much later, and a server may execute it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::{
    redis::{Address, Endpoint},
    runtime::Clock,
    transport::{Dial, Stream},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::clock::HostClock;
use super::{Event, Host, Inside, Time, World, nanos};

/// The direction from the client to the node.
pub(crate) const TO_NODE: usize = 0;
/// The direction back.
pub(crate) const TO_CLIENT: usize = 1;

/// All links and all connections, including closed ones.
#[derive(Debug)]
pub(crate) struct Network {
    /// By source and destination.
    links: Vec<Vec<Link>>,
    pub(crate) connections: Vec<Connection>,
    /// How long a kernel keeps sending the rest of a closed connection.
    pub(crate) lingers: Time,
    /// Until when late requests may have an effect, by client and node: see [`Network::is_late`].
    felt: BTreeMap<(Host, Host), Time>,
}

/// One direction between two hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) latency: Time,
    pub(crate) jitter: Time,
    /// Latency added by faults.
    pub(crate) extra: Time,
    /// How many faults delay bytes.
    pub(crate) held: u32,
    /// How many faults refuse new connections.
    pub(crate) refused: u32,
    /// How many faults leave new connections unanswered.
    pub(crate) hung: u32,
    /// The percentage of late packets, and their minimum delay; the maximum is three times that.
    pub(crate) late: (u64, Time),
}

/// A connection from a client to a node.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Host,
    pub(crate) node: Host,
    pipes: [Pipe; 2],
    /// The requests that reached the node last, for a middlebox to repeat.
    recent: VecDeque<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Pipe {
    flight: VecDeque<Packet>,
    /// When the last chunk arrives.
    last: Time,
    /// Data has arrived at a link that is held.
    stuck: bool,
    inbox: Vec<u8>,
    read: usize,
    ended: Option<Ending>,
    reader: Option<Waker>,
    /// When the writing end was closed, or learned that the connection is broken.
    closed: Option<Time>,
    /// The reading end is closed.
    deserted: bool,
    /// Data has arrived at a machine that was down: it is retransmitted until acknowledged.
    unheard: bool,
}

#[derive(Debug)]
struct Packet {
    at: Time,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    End(Ending),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Like after a close.
    Orderly,
    /// Like after a reset.
    Reset,
}

/// What happens to requests in flight when a connection is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InFlight {
    Lost,
    /// They reach the node after this delay.
    Late(Time),
}

/// A longer delay is due to a fault.
const LATE: Time = 500_000_000;
/// How many requests a middlebox remembers.
const REMEMBERED: usize = 4;
/// After a partition has healed, packets are retransmitted within this time.
const SENT_AGAIN: Duration = Duration::from_millis(200);

impl Network {
    pub(crate) fn new(links: Vec<Vec<Link>>, lingers: Time) -> Network {
        Network { links, connections: Vec::new(), lingers, felt: BTreeMap::new() }
    }

    /// A request arrives later by `by`. Its key may be stored until then, and for the longest TTL
    /// after that if the client has stopped cleaning up by then: the clean-up of a claim lasts for
    /// its TTL, which is at least a quarter of the longest.
    fn is_late(&mut self, number: usize, at: Time, by: Time) {
        let Connection { client, node, .. } = self.connections[number];
        if by > LATE {
            let left = if by > self.lingers / 4 { self.lingers + self.lingers / 10 } else { 0 };
            let felt = self.felt.entry((client, node)).or_default();
            *felt = (*felt).max(at + left);
        }
    }

    /// Until when late requests of the client may have an effect on the node.
    pub(crate) fn felt(&self, client: Host, node: Host) -> Time {
        self.felt.get(&(client, node)).copied().unwrap_or_default()
    }

    pub(crate) fn link(&mut self, from: Host, to: Host) -> &mut Link {
        &mut self.links[from][to]
    }
}

impl Connection {
    fn ends(&self, way: usize) -> (Host, Host) {
        if way == TO_NODE { (self.client, self.node) } else { (self.node, self.client) }
    }

    /// Whether both ends still use it.
    pub(crate) fn is_open(&self) -> bool {
        self.pipes.iter().all(|pipe| pipe.closed.is_none() && pipe.ended.is_none() && !pipe.deserted)
    }
}

impl Inside {
    pub(crate) fn connect(&mut self, client: Host, node: Host) -> usize {
        let (pipes, recent) = (Default::default(), VecDeque::new());
        self.network.connections.push(Connection { client, node, pipes, recent });
        self.network.connections.len() - 1
    }

    fn send(&mut self, number: usize, way: usize, content: Content, after: Time, now: Time) {
        let connection = &mut self.network.connections[number];
        let (from, to) = connection.ends(way);
        let link = &self.network.links[from][to];
        let mut delay = link.latency + link.extra + self.rng.number(0, link.jitter);
        if self.rng.percent(link.late.0) {
            delay += self.rng.number(link.late.1, link.late.1 * 3);
        }
        let pipe = &mut connection.pipes[way];
        let at = (now + delay + after).max(pipe.last);
        pipe.last = at;
        pipe.flight.push_back(Packet { at, content });
        if way == TO_NODE {
            self.network.is_late(number, at, at - now);
        }
        self.schedule(at, Event::Arrival(number, way));
    }

    /// Delivers what reached the end of a connection; returns the host that has work to do.
    pub(crate) fn arrive(&mut self, number: usize, way: usize, now: Time) -> Option<Host> {
        let lingers = self.network.lingers;
        let connection = &mut self.network.connections[number];
        let (from, to) = connection.ends(way);
        let pipe = &mut connection.pipes[way];
        if self.network.links[from][to].held > 0 {
            pipe.stuck = true;
            return None;
        }
        let (mut arrived, mut refused) = (false, false);
        while let Some(packet) = pipe.flight.front()
            && packet.at <= now
            && let Some(packet) = pipe.flight.pop_front()
        {
            // A kernel does not retransmit forever.
            let forgotten = pipe.closed.is_some_and(|closed| now > closed + lingers);
            if pipe.deserted && way == TO_NODE {
                refused |= self.hosts[to].up;
                pipe.unheard |= !self.hosts[to].up;
            }
            if pipe.ended.is_some() || pipe.deserted || forgotten {
                continue;
            }
            arrived = true;
            match packet.content {
                Content::Bytes(bytes) => {
                    pipe.inbox.extend_from_slice(&bytes);
                    if way == TO_NODE {
                        connection.recent.push_back(bytes);
                        if connection.recent.len() > REMEMBERED {
                            connection.recent.pop_front();
                        }
                    }
                }
                Content::End(ending) => pipe.ended = Some(ending),
            }
        }
        self.wakers.extend(if arrived { pipe.reader.take() } else { None });
        if refused {
            // The kernel answers that there is no reader.
            self.send(number, TO_CLIENT, Content::End(Ending::Reset), 0, now);
        }
        arrived.then_some(to)
    }

    /// Delivers what was held between two hosts.
    pub(crate) fn go_on(&mut self, from: Host, to: Host, now: Time) {
        if self.network.links[from][to].held > 0 {
            return;
        }
        for number in 0..self.network.connections.len() {
            for way in [TO_NODE, TO_CLIENT] {
                let connection = &mut self.network.connections[number];
                if connection.ends(way) == (from, to) && std::mem::take(&mut connection.pipes[way].stuck) {
                    let at = now + self.rng.number(0, nanos(SENT_AGAIN));
                    let pipe = &mut connection.pipes[way];
                    for packet in &mut pipe.flight {
                        packet.at = packet.at.max(at);
                    }
                    pipe.last = pipe.last.max(at);
                    let again: Vec<_> = pipe.flight.iter().map(|packet| packet.at).collect();
                    for at in again {
                        self.schedule(at, Event::Arrival(number, way));
                    }
                }
            }
        }
    }

    /// Breaks a connection at both ends. The client is notified immediately.
    pub(crate) fn reset(&mut self, number: usize, requests: InFlight, now: Time) {
        let connection = &mut self.network.connections[number];
        for pipe in &mut connection.pipes {
            pipe.closed.get_or_insert(now);
        }
        let back = &mut connection.pipes[TO_CLIENT];
        back.flight.clear();
        back.inbox.clear();
        back.read = 0;
        back.ended = Some(Ending::Reset);
        self.wakers.extend(back.reader.take());
        let there = &mut connection.pipes[TO_NODE];
        match requests {
            InFlight::Lost => {
                there.flight.clear();
                there.ended.get_or_insert(Ending::Reset);
                self.wakers.extend(there.reader.take());
            }
            InFlight::Late(by) => {
                for packet in &mut there.flight {
                    packet.at = packet.at.max(now) + by;
                }
                there.last = there.last.max(now) + by;
                let again: Vec<_> = there.flight.iter().map(|packet| packet.at).collect();
                for at in again {
                    self.network.is_late(number, at, by.max(at - now));
                    self.schedule(at, Event::Arrival(number, TO_NODE));
                }
                self.send(number, TO_NODE, Content::End(Ending::Reset), 0, now);
            }
        }
    }

    /// Closes the connections of a process that has ended, as its kernel does; unless the machine
    /// died with it, and the peers are not notified.
    ///
    /// This happens here and in order, because the runtime drops its tasks in the order of numbers
    /// that it does not reset for each run.
    pub(crate) fn close_all(&mut self, host: Host, silently: bool, now: Time) {
        for number in 0..self.network.connections.len() {
            for way in [TO_NODE, TO_CLIENT] {
                let connection = &mut self.network.connections[number];
                if connection.pipes[way].closed.is_none() && connection.ends(way).0 == host {
                    connection.pipes[way].closed = Some(now);
                    if !silently {
                        self.send(number, way, Content::End(Ending::Orderly), 0, now);
                    }
                }
            }
        }
    }

    /// A machine that died silently is up again, and does not know its old connections: what was
    /// sent to it in the meantime has been retransmitted by now, and is answered with a reset.
    pub(crate) fn refuse_unheard(&mut self, host: Host, now: Time) {
        for number in 0..self.network.connections.len() {
            let connection = &mut self.network.connections[number];
            if connection.node == host && std::mem::take(&mut connection.pipes[TO_NODE].unheard) {
                let after = self.rng.number(0, nanos(SENT_AGAIN));
                self.send(number, TO_CLIENT, Content::End(Ending::Reset), after, now);
            }
        }
    }

    /// Repeats requests to the node on a connection without a client.
    pub(crate) fn replay(&mut self, original: usize, after: Time, now: Time) {
        let Connection { client, node, .. } = self.network.connections[original];
        let requests: Vec<_> = self.network.connections[original].recent.iter().cloned().collect();
        let number = self.connect(client, node);
        self.network.connections[number].pipes[TO_CLIENT].deserted = true;
        for request in requests {
            self.send(number, TO_NODE, Content::Bytes(request), after, now);
        }
        self.send(number, TO_NODE, Content::End(Ending::Orderly), after, now);
        self.schedule(now, Event::Accept(number));
        // A repeated request counts as late, because no client takes it back.
        let at = self.network.connections[number].pipes[TO_NODE].last;
        self.network.is_late(number, at, Time::MAX);
    }

    /// Returns the open connections between a client and a node.
    pub(crate) fn between(&self, client: Host, node: Host) -> Vec<usize> {
        let open = |(number, connection): (usize, &Connection)| {
            (connection.client == client && connection.node == node && connection.is_open()).then_some(number)
        };
        self.network.connections.iter().enumerate().filter_map(open).collect()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    world: Arc<World>,
    number: usize,
    /// The direction of what is written here.
    writes: usize,
}

impl End {
    pub(crate) fn of_client(world: &Arc<World>, number: usize) -> End {
        End { world: world.clone(), number, writes: TO_NODE }
    }

    pub(crate) fn of_node(world: &Arc<World>, number: usize) -> End {
        End { world: world.clone(), number, writes: TO_CLIENT }
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.world.with(|inside, _| {
            let pipe = &mut inside.network.connections[self.number].pipes[1 - self.writes];
            let rest = &pipe.inbox[pipe.read..];
            if !rest.is_empty() {
                let taken = rest.len().min(into.remaining());
                into.put_slice(&rest[..taken]);
                pipe.read += taken;
                if pipe.read == pipe.inbox.len() {
                    pipe.inbox.clear();
                    pipe.read = 0;
                }
                return Poll::Ready(Ok(()));
            }
            match pipe.ended {
                Some(Ending::Orderly) => Poll::Ready(Ok(())),
                Some(Ending::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    pipe.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.world.with(|inside, now| {
            if inside.network.connections[self.number].pipes[self.writes].closed.is_some() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            inside.send(self.number, self.writes, Content::Bytes(bytes.to_vec()), 0, now);
            Poll::Ready(Ok(bytes.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.world.with(|inside, now| {
            let pipes = &mut inside.network.connections[self.number].pipes;
            pipes[1 - self.writes].deserted = true;
            pipes[1 - self.writes].reader = None;
            if pipes[self.writes].closed.is_none() {
                pipes[self.writes].closed = Some(now);
                inside.send(self.number, self.writes, Content::End(Ending::Orderly), 0, now);
            }
        });
    }
}

/// Connects a simulated client to simulated nodes, named `node-0`, `node-1` and so on.
#[derive(Debug)]
pub(crate) struct SimDial {
    pub(crate) world: Arc<World>,
    pub(crate) client: Host,
    pub(crate) clock: HostClock,
}

/// How long a kernel waits before it retransmits a connection request.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

impl Dial for SimDial {
    fn dial(&self, address: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (world, client, clock) = (self.world.clone(), self.client, self.clock.clone());
        let node = if let Endpoint::Tcp { host, .. } = address.endpoint() {
            host.strip_prefix("node-").and_then(|number| number.parse().ok())
        } else {
            None
        };
        Box::pin(async move {
            let node: Host = node.ok_or(io::ErrorKind::NotFound)?;
            loop {
                let trip = world.with(|inside, _| {
                    let (there, back) =
                        (inside.network.link(client, node).clone(), inside.network.link(node, client));
                    there.latency
                        + there.extra
                        + back.latency
                        + back.extra
                        + inside.rng.number(0, there.jitter)
                });
                clock.sleep_until(clock.now() + Duration::from_nanos(trip)).await;
                let outcome = world.with(|inside, now| {
                    let (there, back) =
                        (inside.network.link(client, node).clone(), inside.network.link(node, client));
                    if there.held + back.held + there.hung > 0 {
                        return None;
                    }
                    if there.refused > 0 || !inside.hosts[node].up {
                        return Some(Err(io::ErrorKind::ConnectionRefused));
                    }
                    let number = inside.connect(client, node);
                    inside.schedule(now, Event::Accept(number));
                    Some(Ok(number))
                });
                match outcome {
                    Some(Ok(number)) => {
                        return Ok(Box::new(End::of_client(&world, number)) as Box<dyn Stream>);
                    }
                    Some(Err(refused)) => return Err(refused.into()),
                    None => clock.sleep_until(clock.now() + ASKED_AGAIN).await,
                }
            }
        })
    }
}
