//! The same round without a client crate: commands are encoded before the clock starts and written to
//! plain sockets, those of many tasks in one write; replies are counted but not parsed further.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::task::AtomicWaker;
use quorlock::runtime::{Entropy, SystemEntropy};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::{COMPARE_AND_DELETE, NEEDED};

pub struct Raw {
    nodes: Vec<Arc<Node>>,
    hash: String,
}

/// The two commands of one task, ready to be written.
pub struct Encoded {
    set: Vec<u8>,
    delete: Vec<u8>,
}

#[derive(Default)]
struct Node {
    outbox: Mutex<Outbox>,
    bell: Notify,
}

#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    rounds: Vec<Arc<Round>>,
}

#[derive(Default)]
struct Round {
    granted: AtomicUsize,
    waker: AtomicWaker,
}

impl Raw {
    pub async fn connect(addresses: impl Iterator<Item = std::net::SocketAddr>) -> Raw {
        let mut nodes = Vec::new();
        for address in addresses {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let node = Arc::new(Node::default());
            tokio::spawn(serve(stream, node.clone()));
            nodes.push(node);
        }
        // The multiplexed baseline has loaded the script.
        Raw { nodes, hash: redis::Script::new(COMPARE_AND_DELETE).get_hash().to_owned() }
    }

    pub fn encode(&self, key: &str) -> Encoded {
        let token = format!("{:032x}", SystemEntropy::default().next_u128());
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&token).arg("NX").arg("PX").arg(30_000);
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.hash).arg(1).arg(key).arg(&token);
        Encoded { set: set.get_packed_command(), delete: delete.get_packed_command() }
    }

    /// Acquires and releases once.
    pub async fn cycle(&self, encoded: &Encoded) {
        self.round(&encoded.set).await;
        self.round(&encoded.delete).await;
    }

    async fn round(&self, command: &[u8]) {
        let round = Arc::new(Round::default());
        for node in &self.nodes {
            let mut outbox = node.outbox.lock().unwrap();
            let idle = outbox.bytes.is_empty();
            outbox.bytes.extend_from_slice(command);
            outbox.rounds.push(round.clone());
            drop(outbox);
            if idle {
                node.bell.notify_one();
            }
        }
        poll_fn(|context| {
            round.waker.register(context.waker());
            if round.granted.load(Ordering::Acquire) >= NEEDED { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

async fn serve(mut stream: TcpStream, node: Arc<Node>) {
    let mut pending: VecDeque<Arc<Round>> = VecDeque::new();
    let (mut out, mut news) = (Vec::new(), vec![0; 64 * 1024]);
    // The first two bytes of the reply that is being read.
    let (mut head, mut length) = ([0; 2], 0);
    loop {
        {
            let mut outbox = node.outbox.lock().unwrap();
            std::mem::swap(&mut outbox.bytes, &mut out);
            pending.extend(outbox.rounds.drain(..));
        }
        if !out.is_empty() {
            stream.write_all(&out).await.unwrap();
            out.clear();
        }
        tokio::select! {
            biased;
            ready = stream.readable() => ready.unwrap(),
            () = node.bell.notified() => continue,
        }
        let Ok(count) = stream.try_read(&mut news) else { continue };
        if count == 0 {
            return;
        }
        for byte in &news[..count] {
            if length < 2 {
                head[length] = *byte;
            }
            length += 1;
            if *byte == b'\n' {
                length = 0;
                assert_ne!(head[0], b'-', "a server answered with an error");
                let round = pending.pop_front().unwrap();
                if matches!(head, [b'+', _] | [b':', b'1'])
                    && round.granted.fetch_add(1, Ordering::AcqRel) + 1 == NEEDED
                {
                    round.waker.wake();
                }
            }
        }
    }
}
