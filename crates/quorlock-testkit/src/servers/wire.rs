//! A minimal client, for tests that inspect a server without going through the library.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::resp::{Resp, read_answer, write_command};

/// Sends one command over a new connection, to any server.
///
/// # Errors
///
/// If the server cannot be reached, or violates the protocol. An error from the server is an answer:
/// [`Resp::Error`]. There is no timeout.
pub async fn ask(address: SocketAddr, words: &[&str]) -> io::Result<Resp> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    exchange(address, &[&words]).await?.pop().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Sends `commands` over a new connection and returns their answers.
pub(super) async fn exchange(address: SocketAddr, commands: &[&[&[u8]]]) -> io::Result<Vec<Resp>> {
    let mut stream = TcpStream::connect(address).await?;
    let mut output = Vec::new();
    for command in commands {
        write_command(command, &mut output);
    }
    stream.write_all(&output).await?;
    let (mut input, mut answers) = (Vec::new(), Vec::new());
    while answers.len() < commands.len() {
        match read_answer(&input).map_err(|garbage| io::Error::other(garbage.to_string()))? {
            Some((answer, length)) => {
                input.drain(..length);
                answers.push(answer);
            }
            None if stream.read_buf(&mut input).await? == 0 => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            None => {}
        }
    }
    Ok(answers)
}
