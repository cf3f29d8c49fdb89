//! A server that answers correctly until it misbehaves.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use quorlock::{
    redis::Address,
    transport::{Dial, Stream},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// After this many bytes an endless server counts as unbounded.
pub(crate) const ENDLESS: usize = 16 << 20;

/// What a server sends instead of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) first: Vec<u8>,
    /// Repeated after the beginning.
    pub(crate) then: Vec<u8>,
}

/// When a server begins to misbehave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Immediately after the connection is opened.
    Connected,
    /// Instead of its answer to HELLO.
    Login,
    /// Instead of its answer to INFO.
    Introduction,
    /// Instead of its first vote.
    Vote,
    /// On the first request with this word, while the doctor runs.
    Asked(&'static str),
    /// Never: only its own answers may be odd.
    Never,
}

/// A server's answers about itself, and to votes.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) info: String,
    /// Its answers to TIME, CLIENT ID and the rest, by the first words of a command. The default is
    /// stored under `*`.
    pub(crate) answers: BTreeMap<&'static str, String>,
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

impl Words {
    /// The answers of a correct server that has been up for days and grants every request.
    pub(crate) fn sound() -> Words {
        let answers = [
            ("HELLO", "%1\r\n$2\r\nid\r\n:7\r\n"),
            ("CLIENT ID", ":7\r\n"),
            ("CLIENT KILL", ":0\r\n"),
            ("TIME", "*2\r\n$10\r\n1700000000\r\n$1\r\n7\r\n"),
            ("EVAL return 1", ":1\r\n"),
            ("EVAL", "*1\r\n$7\r\ngranted\r\n"),
            ("EVALSHA", "-NOSCRIPT no\r\n"),
            ("SET", "+OK\r\n"),
            ("ZADD", ":1\r\n"),
            ("GET", "$-1\r\n"),
            ("DELIFEQ", "-ERR unknown command 'DELIFEQ'\r\n"),
            ("DELEX", "-ERR unknown command 'DELEX'\r\n"),
            ("*", "+OK\r\n"),
        ];
        let info = "run_id:abc\r\nuptime_in_seconds:900000\r\nrole:master\r\n".to_owned();
        Words { info, answers: answers.map(|(words, answer)| (words, answer.to_owned())).into() }
    }

    fn answer(&self, command: &str) -> String {
        if command.starts_with("INFO") {
            return bulk(&self.info);
        }
        // The longest matching prefix wins.
        let fitting = self.answers.iter().rev().find(|(words, _)| command.starts_with(**words));
        fitting.map_or_else(|| self.answers["*"].clone(), |(_, answer)| answer.clone())
    }
}

/// A server, or several identical ones, one per connection.
#[derive(Clone, Debug)]
pub(crate) struct Hostile {
    pub(crate) words: Words,
    pub(crate) phase: Phase,
    pub(crate) attack: Attack,
    /// The number of connections.
    pub(crate) dials: Arc<AtomicUsize>,
    /// How often it has begun to misbehave.
    pub(crate) attacks: Arc<AtomicUsize>,
    /// How many requests it has answered.
    pub(crate) replies: Arc<AtomicUsize>,
    /// How many votes it has given.
    pub(crate) votes: Arc<AtomicUsize>,
    /// The most bytes that the client read over one connection.
    pub(crate) taken: Arc<AtomicUsize>,
}

impl Hostile {
    pub(crate) fn new(phase: Phase, attack: Attack) -> Hostile {
        Hostile {
            words: Words::sound(),
            phase,
            attack,
            dials: Arc::default(),
            attacks: Arc::default(),
            replies: Arc::default(),
            votes: Arc::default(),
            taken: Arc::default(),
        }
    }

    /// One that answers, but with odd values.
    pub(crate) fn saying(words: Words) -> Hostile {
        let nothing = Attack { name: "nothing", first: Vec::new(), then: Vec::new() };
        Hostile { words, ..Hostile::new(Phase::Never, nothing) }
    }

    pub(crate) fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

impl Dial for Hostile {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        tokio::spawn(async move { server.serve(far).await });
        Box::pin(async { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

impl Hostile {
    async fn serve(self, mut stream: DuplexStream) -> io::Result<()> {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let mut heard = Vec::new();
        if self.phase == Phase::Connected {
            return self.attack(stream).await;
        }
        loop {
            let mut answers = String::new();
            while let Some(command) = next_command(&mut heard) {
                let is_vote = command.starts_with("SET")
                    || command.starts_with("EVALSHA")
                    || (command.starts_with("EVAL") && !command.starts_with("EVAL return 1"));
                let misbehaves = match self.phase {
                    Phase::Connected => true,
                    Phase::Login => command.starts_with("HELLO"),
                    Phase::Introduction => command.starts_with("INFO"),
                    Phase::Vote => is_vote,
                    Phase::Asked(word) => command.contains(word),
                    Phase::Never => false,
                };
                if misbehaves {
                    stream.write_all(answers.as_bytes()).await?;
                    return self.attack(stream).await;
                }
                self.replies.fetch_add(1, Ordering::Relaxed);
                self.votes.fetch_add(usize::from(is_vote), Ordering::Relaxed);
                answers.push_str(&self.words.answer(&command));
            }
            stream.write_all(answers.as_bytes()).await?;
            if stream.read_buf(&mut heard).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn attack(&self, mut stream: DuplexStream) -> io::Result<()> {
        self.attacks.fetch_add(1, Ordering::Relaxed);
        stream.write_all(&self.attack.first).await?;
        let mut sent = self.attack.first.len();
        // Blocks here if the client does not read, which is fine.
        while !self.attack.then.is_empty() && sent < ENDLESS {
            self.taken.fetch_max(sent, Ordering::Relaxed);
            stream.write_all(&self.attack.then).await?;
            sent += self.attack.then.len();
        }
        self.taken.fetch_max(sent, Ordering::Relaxed);
        let mut heard = vec![0; 16 * 1024];
        while stream.read(&mut heard).await? > 0 {}
        Ok(())
    }
}

/// Returns the first command, with spaces between its words, if it is complete.
fn next_command(heard: &mut Vec<u8>) -> Option<String> {
    let text = String::from_utf8_lossy(heard).into_owned();
    let (count, mut rest) = text.strip_prefix('*')?.split_once("\r\n")?;
    let mut words = Vec::new();
    for _ in 0..count.parse().ok()? {
        let (length, behind) = rest.strip_prefix('$')?.split_once("\r\n")?;
        let length: usize = length.parse().ok()?;
        words.push(behind.get(..length)?);
        rest = behind.get(length + 2..)?;
    }
    let command = words.join(" ");
    heard.drain(..text.len() - rest.len());
    Some(command)
}
