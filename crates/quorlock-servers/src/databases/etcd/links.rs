//! The network between the members of a cluster: a proxy in front of each, which knows who connects.
//!
//! A member sends in its requests which one it is, and in those for streams also which one it believes to reach. So each
//! proxy learns the ID of its own member, and all together know the two ends of every connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quorlock::runtime::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The longest head of a request that is read to learn who sends it.
const LONGEST_HEAD: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Links {
    addresses: Vec<SocketAddr>,
    state: Arc<State>,
    accepting: Vec<AbortHandle>,
}

#[derive(Debug)]
struct State {
    /// Which members are cut off from all others.
    cut_off: watch::Sender<Vec<bool>>,
    /// The ID of each member, as the others write it.
    ids: Mutex<Vec<Option<String>>>,
}

impl Links {
    /// Starts a proxy in front of each of these addresses.
    pub(super) async fn start(members: &[SocketAddr]) -> io::Result<Links> {
        let state = Arc::new(State {
            cut_off: watch::Sender::new(vec![false; members.len()]),
            ids: Mutex::new(vec![None; members.len()]),
        });
        let (mut addresses, mut accepting) = (Vec::new(), Vec::new());
        for (member, &upstream) in members.iter().enumerate() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?);
            let accepts = accept(listener, member, upstream, Arc::clone(&state));
            accepting.push(tokio::spawn(accepts).abort_handle());
        }
        Ok(Links { addresses, state, accepting })
    }

    /// Returns the address at which the others reach a member.
    pub(super) fn address(&self, member: usize) -> Option<SocketAddr> {
        self.addresses.get(member).copied()
    }

    /// Cuts a member off from all others, or joins it again.
    pub(super) fn cut_off(&self, member: usize, is_off: bool) {
        self.state.cut_off.send_modify(|all| {
            if let Some(member) = all.get_mut(member) {
                *member = is_off;
            }
        });
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.accepting.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(listener: TcpListener, member: usize, upstream: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move { connect(client, member, upstream, &state).await });
    }
}

/// Passes on what comes over one connection, until one of its ends is cut off.
async fn connect(
    mut client: TcpStream,
    member: usize,
    upstream: SocketAddr,
    state: &State,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let from = state.learn(member, &String::from_utf8_lossy(&head));
    let mut changes = state.cut_off.subscribe();
    let is_cut = |all: &Vec<bool>| {
        let is_off = |member: usize| all.get(member).copied().unwrap_or_default();
        is_off(member) || from.is_some_and(is_off)
    };
    if is_cut(&changes.borrow_and_update()) {
        return Ok(());
    }
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(&head).await?;
    tokio::select! {
        passed = copy_bidirectional(&mut client, &mut server) => passed.map(drop),
        _ = changes.wait_for(is_cut) => Ok(()),
    }
}

impl State {
    /// Learns the ID of this member from a request that was sent to it. Returns who sent it.
    fn learn(&self, member: usize, head: &str) -> Option<usize> {
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim().to_owned())
        };
        let mut ids = self.ids.lock();
        if let (Some(to), Some(known)) = (field("X-Raft-To"), ids.get_mut(member)) {
            *known = Some(to);
        }
        let from = field("X-Server-From")?;
        ids.iter().position(|known| known.as_ref() == Some(&from))
    }
}
