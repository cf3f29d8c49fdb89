//! A minimal client, for tests that inspect a server without going through the library.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::resp::{Resp, write_command};

/// Sends one command over a new connection, to any server, after `AUTH` if there is a password.
///
/// # Errors
///
/// If the server cannot be reached, or violates the protocol. An error from the server is an answer:
/// [`Resp::Error`]. There is no timeout.
pub async fn ask(address: SocketAddr, password: Option<&str>, words: &[&str]) -> io::Result<Resp> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    exchange(address, password, &words).await
}

pub(super) async fn exchange(
    address: SocketAddr,
    password: Option<&str>,
    words: &[&[u8]],
) -> io::Result<Resp> {
    let mut stream = TcpStream::connect(address).await?;
    let mut output = Vec::new();
    if let Some(password) = password {
        write_command(&[b"AUTH", password.as_bytes()], &mut output);
    }
    write_command(words, &mut output);
    stream.write_all(&output).await?;
    let (mut input, mut to_come) = (Vec::new(), 1 + usize::from(password.is_some()));
    loop {
        match Resp::read(&input)? {
            Some((answer, length)) => {
                input.drain(..length);
                to_come -= 1;
                if to_come == 0 {
                    return Ok(answer);
                }
            }
            None if stream.read_buf(&mut input).await? == 0 => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            None => {}
        }
    }
}
