//! Reads an ensemble of ZooKeeper without the library: the few requests that this takes, over a session of its own.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Requests, as they are numbered.
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const CLOSE: i32 = -11;
/// The answer about a node that does not exist.
const NO_NODE: i32 = -101;
/// For how long the session outlives its connection, in milliseconds.
const TIMEOUT: i32 = 5000;

pub(super) struct Reader {
    stream: TcpStream,
    last: i32,
}

impl Reader {
    /// Connects to a member, which catches up with its leader first.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Reader> {
        let mut reader = Reader { stream: TcpStream::connect(address).await?, last: 0 };
        let mut greeting = Vec::new();
        // The version, the last change that was seen, and the session to continue with its password: none.
        greeting.extend([0; 12]);
        greeting.extend(TIMEOUT.to_be_bytes());
        greeting.extend([0; 8]);
        buffer(&mut greeting, &[0; 16]);
        greeting.push(0);
        reader.send(&greeting).await?;
        reader.receive().await?;
        let mut path = Vec::new();
        buffer(&mut path, b"/");
        reader.call(SYNC, &path).await?;
        Ok(reader)
    }

    /// Returns the names of the nodes below this one; none if it does not exist.
    pub(super) async fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let Some(answer) = self.read(GET_CHILDREN, path).await? else { return Ok(Vec::new()) };
        let mut rest = answer.as_slice();
        let count = int(&mut rest)?;
        (0..count).map(|_| Ok(String::from_utf8_lossy(taken(&mut rest)?).into_owned())).collect()
    }

    /// Returns the data of a node, if it exists.
    pub(super) async fn data(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let answer = self.read(GET_DATA, path).await?;
        answer.map(|answer| Ok(taken(&mut answer.as_slice())?.to_vec())).transpose()
    }

    /// Ends the session.
    pub(super) async fn close(mut self) -> io::Result<()> {
        self.call(CLOSE, &[]).await.map(drop)
    }

    async fn read(&mut self, kind: i32, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        buffer(&mut body, path.as_bytes());
        // It is not watched.
        body.push(0);
        self.call(kind, &body).await
    }

    /// Returns the body of the answer; nothing if the node does not exist.
    async fn call(&mut self, kind: i32, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.last += 1;
        self.send(&[&self.last.to_be_bytes(), &kind.to_be_bytes(), body].concat()).await?;
        let answer = self.receive().await?;
        let (number, mut rest) = answer.split_at_checked(4).ok_or(io::ErrorKind::UnexpectedEof)?;
        debug_assert_eq!(number, self.last.to_be_bytes(), "answers have the order of the requests");
        let _latest_change = (int(&mut rest)?, int(&mut rest)?);
        match int(&mut rest)? {
            0 => Ok(Some(rest.to_vec())),
            NO_NODE => Ok(None),
            code => Err(io::Error::other(format!("ZooKeeper refuses with {code}"))),
        }
    }

    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut framed = Vec::new();
        buffer(&mut framed, message);
        self.stream.write_all(&framed).await
    }

    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let length = self.stream.read_u32().await?;
        let mut message = Vec::new();
        (&mut self.stream).take(length.into()).read_to_end(&mut message).await?;
        Ok(message)
    }
}

/// Appends the length of some bytes, and them.
fn buffer(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(bytes);
}

fn int(rest: &mut &[u8]) -> io::Result<i32> {
    let (taken, left) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = left;
    Ok(i32::from_be_bytes(*taken))
}

fn taken<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = usize::try_from(int(rest)?).unwrap_or(0);
    let (taken, left) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = left;
    Ok(taken)
}
