//! The guarded resource: a register for each lock that accepts a write only if its fencing token is at
//! least as large as every one before. No fault affects the connections between workers and register.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quorlock::runtime::Mutex;
use quorlock_history::{Answer, What};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::record::Recorder;

/// Whether the register checks fencing tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checks {
    Tokens,
    /// Accepts every write, like a resource without fencing.
    Nothing,
}

/// The server of the registers. Stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Register {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Register {
    pub(crate) async fn start(checks: Checks, recorder: Recorder) -> io::Result<Register> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { checks, recorder, largest: Mutex::default() });
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                // Ends with its client, which ends before the run.
                drop(tokio::spawn(async move { state.serve(stream).await }));
            }
        });
        Ok(Register { address, accepting: accepting.abort_handle() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct State {
    checks: Checks,
    recorder: Recorder,
    largest: Mutex<HashMap<String, u64>>,
}

impl State {
    /// Serves requests of one line each, `RESOURCE ATTEMPT TOKEN`, answered by one line.
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let (input, mut output) = stream.into_split();
        let mut lines = BufReader::new(input).lines();
        while let Some(line) = lines.next_line().await? {
            let mut words = line.split(' ');
            let (Some(resource), Some(attempt), Some(Ok(token))) =
                (words.next(), words.next(), words.next().map(str::parse))
            else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, line));
            };
            let answer = self.write(resource, attempt, token);
            output.write_all(if answer == Answer::Accepted { b"accepted\n" } else { b"refused\n" }).await?;
        }
        Ok(())
    }

    fn write(&self, resource: &str, attempt: &str, token: u64) -> Answer {
        let mut largest = self.largest.lock();
        let seen = largest.entry(resource.to_owned()).or_default();
        let answer = match self.checks {
            Checks::Tokens if token < *seen => Answer::Refused,
            Checks::Tokens | Checks::Nothing => Answer::Accepted,
        };
        *seen = token.max(*seen);
        // Under the same lock, so that the record has the order of the decisions.
        self.recorder.record(What::Wrote {
            resource: resource.into(),
            attempt: attempt.into(),
            fencing_token: token,
            answer,
        });
        answer
    }
}

/// A client of the register.
#[derive(Debug)]
pub(crate) struct Writer {
    answers: Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
}

impl Writer {
    pub(crate) async fn connect(register: SocketAddr) -> io::Result<Writer> {
        let stream = TcpStream::connect(register).await?;
        stream.set_nodelay(true)?;
        let (input, requests) = stream.into_split();
        Ok(Writer { answers: BufReader::new(input).lines(), requests })
    }

    /// Writes, and returns whether the write was accepted.
    pub(crate) async fn write(&mut self, resource: &str, attempt: &str, token: u64) -> io::Result<bool> {
        self.requests.write_all(format!("{resource} {attempt} {token}\n").as_bytes()).await?;
        match self.answers.next_line().await? {
            Some(answer) => Ok(answer == "accepted"),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
