//! A minimal client, for tests that inspect a server without going through the library.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::resp::{Resp, read_answer, write_command};

/// Sends one command over a new connection, to any server, after `AUTH` if there is a password.
///
/// # Errors
///
/// If the server cannot be reached, or violates the protocol. An error from the server is an answer:
/// [`Resp::Error`]. There is no timeout.
pub async fn ask(address: SocketAddr, password: Option<&str>, words: &[&str]) -> io::Result<Resp> {
    RedisClient::connect(address, password).await?.ask(words).await
}

/// A connection to any Redis server.
#[derive(Debug)]
pub struct RedisClient {
    stream: TcpStream,
    input: Vec<u8>,
}

impl RedisClient {
    /// Connects, and sends `AUTH` if there is a password. If that is refused, so are the commands that follow.
    ///
    /// # Errors
    ///
    /// As [`ask`].
    pub async fn connect(address: SocketAddr, password: Option<&str>) -> io::Result<RedisClient> {
        let mut client = RedisClient { stream: TcpStream::connect(address).await?, input: Vec::new() };
        if let Some(password) = password {
            client.ask(&["AUTH", password]).await?;
        }
        Ok(client)
    }

    /// Sends one command, and waits for its answer.
    ///
    /// # Errors
    ///
    /// As [`ask`].
    pub async fn ask<Word: AsRef<[u8]>>(&mut self, words: &[Word]) -> io::Result<Resp> {
        let mut output = Vec::new();
        write_command(&words.iter().map(AsRef::as_ref).collect::<Vec<_>>(), &mut output);
        self.stream.write_all(&output).await?;
        self.receive().await
    }

    /// Waits for the next answer, or the next message of a subscription.
    ///
    /// # Errors
    ///
    /// As [`ask`].
    pub async fn receive(&mut self) -> io::Result<Resp> {
        loop {
            match read_answer(&self.input).map_err(|garbage| io::Error::other(garbage.to_string()))? {
                Some((answer, length)) => {
                    self.input.drain(..length);
                    return Ok(answer);
                }
                None if self.stream.read_buf(&mut self.input).await? == 0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                None => {}
            }
        }
    }
}
