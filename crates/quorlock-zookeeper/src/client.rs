//! One connection to one member, for one session. Requests are carried out in the order in which they are sent, and answered
//! in it. Nothing is sent twice.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::Member;
use quorlock::node::{NodeError, Reason, Seams};
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Mutex, within};
use quorlock::transport::Stream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::address::ZooKeeperAddress;
use crate::error::{Failure, no_zookeeper};
use crate::wire::{Access, Call, Done, LONGEST, Reader, Stat, Writer, broken, op};

/// The longest path of an event: no place of ours has a longer one. Nothing is remembered of others.
const LONGEST_PATH: usize = 1 << 14;
/// The longest answer to the first message.
const LONGEST_GREETING: usize = 4096;

/// The numbers of messages that are not answers to requests.
const EVENT: i32 = -1;
const LOGIN: i32 = -4;

/// A session, as a server has granted it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    /// Zero if the session that was asked for has ended.
    pub(crate) id: i64,
    pub(crate) password: Vec<u8>,
    /// For how long it outlives its last connection.
    pub(crate) timeout: Duration,
}

/// What a client wants of a session.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The session to continue; nothing for a new one.
    pub(crate) old: Option<Granted>,
    pub(crate) timeout: Duration,
}

/// A change of a node that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Created,
    Deleted,
    Data,
    /// Watching has ended, or something else that is not known.
    Other,
}

/// What the server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The latest change that the member knew.
    pub(crate) zxid: i64,
    code: i32,
    /// The whole message.
    message: Vec<u8>,
}

/// How long the head of an answer is: its number, the latest change, and a code.
const HEAD: usize = 16;

/// A connection. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    sender: UnboundedSender<Vec<u8>>,
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    limit: Duration,
    access: Access,
    tasks: [AbortHandle; 2],
}

#[derive(Default)]
struct State {
    last: i32,
    waiting: VecDeque<Awaited>,
    /// Why the connection has ended.
    ended: Option<Reason>,
}

/// A request without an answer.
struct Awaited {
    number: i32,
    /// How long the answer may be.
    longest: usize,
    answer: oneshot::Sender<Answer>,
}

/// A request that was sent, if the connection had not ended.
pub(crate) struct Sent {
    answer: oneshot::Receiver<Answer>,
    /// Why it was not.
    unsent: Option<Reason>,
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    limit: Duration,
    op: i32,
    /// When.
    pub(crate) at: Moment,
}

impl Client {
    /// Connects to a member, asks for a session, and logs in where there is a user. Each later request takes at most `limit`.
    /// Events are sent to `events`.
    ///
    /// # Errors
    ///
    /// Why that failed, with its cure.
    pub(crate) async fn connect(
        address: &ZooKeeperAddress,
        member: &Member,
        seams: &Seams,
        (wanted, limit): (Wanted, Duration),
        events: Sender<Event>,
    ) -> Result<(Client, Granted), NodeError> {
        let mut stream = address.members.dial(member, seams, None).await?;
        // Before the session begins, whose time would pass.
        let login = address.members.login(seams).await?;
        let granted = greet(&mut stream, &wanted).await.map_err(|error| no_zookeeper(error, member))?;
        let (reader, writer) = tokio::io::split(stream);
        let (sender, messages) = unbounded_channel();
        let state = Arc::<Mutex<State>>::default();
        let reading = tokio::spawn(read(reader, Arc::clone(&state), events));
        let writing = tokio::spawn(write(writer, messages, Arc::clone(&state)));
        let access = if login.is_some() { Access::Creator } else { Access::Everyone };
        let (clock, tasks) = (Arc::clone(seams.clock()), [reading.abort_handle(), writing.abort_handle()]);
        let client = Client(Arc::new(Inner { sender, state, clock, limit, access, tasks }));
        if let Some((user, password)) = login {
            let mut message = Writer::new();
            message.int(LOGIN);
            message.int(op::LOGIN);
            message.int(0);
            message.text("digest");
            message.text(&format!("{user}:{password}"));
            let sent = client.enlist(Some(LOGIN), (op::LOGIN, LONGEST), |_| message.finish());
            sent.done().await.map_err(Failure::before_anything_changed)?;
        }
        Ok((client, granted))
    }

    /// Sends a request. Those that are sent later are carried out later.
    pub(crate) fn send(&self, call: &Call) -> Sent {
        self.send_for(call, call.longest_answer())
    }

    /// As [`send`](Client::send), for an answer of another length at most.
    pub(crate) fn send_for(&self, call: &Call, longest: usize) -> Sent {
        self.enlist(None, (call.op(), longest), |number| {
            let mut message = Writer::new();
            message.int(number);
            message.int(call.op());
            call.write(&mut message, self.0.access);
            message.finish()
        })
    }

    fn enlist(
        &self,
        number: Option<i32>,
        (op, longest): (i32, usize),
        message: impl FnOnce(i32) -> Vec<u8>,
    ) -> Sent {
        let (sender, answer) = oneshot::channel();
        let at = self.0.clock.now();
        let unsent = {
            let mut state = self.0.state.lock();
            if state.ended.is_none() {
                let number = number.unwrap_or_else(|| {
                    state.last = state.last.checked_add(1).unwrap_or(1);
                    state.last
                });
                state.waiting.push_back(Awaited { number, longest, answer: sender });
                // Within the lock, so that messages have the order of their numbers.
                drop(self.0.sender.send(message(number)));
            }
            state.ended.clone()
        };
        let Inner { state, clock, limit, .. } = &*self.0;
        Sent { answer, unsent, state: Arc::clone(state), clock: Arc::clone(clock), limit: *limit, op, at }
    }

    /// Ends the session, if the server still answers.
    pub(crate) async fn close(self) {
        drop(self.send(&Call::Close).done().await);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Sent {
    /// Waits for the answer, whatever it says.
    async fn any(self) -> Result<Answer, Failure> {
        if let Some(ended) = self.unsent {
            return Err(Failure::Unsent(ended));
        }
        match within(&*self.clock, self.limit, self.answer).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => {
                let ended = self.state.lock().ended.clone();
                Err(Failure::Lost(ended.unwrap_or_else(|| "the connection has ended".into())))
            }
            None => Err(Failure::Silent(self.limit)),
        }
    }

    /// Waits for the answer.
    pub(crate) async fn done(self) -> Result<Answer, Failure> {
        let answer = self.any().await?;
        if answer.code == 0 { Ok(answer) } else { Err(Failure::of(answer.code)) }
    }

    /// Waits for the answer; nothing if the node does not exist.
    pub(crate) async fn found(self) -> Result<Option<Answer>, Failure> {
        match self.done().await {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Refused(crate::wire::code::NO_NODE)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Waits for the results of a transaction, which may have failed, and the change that it was.
    pub(crate) async fn results(self) -> Result<(Vec<Done>, i64), Failure> {
        debug_assert_eq!(self.op, op::MULTI, "only a transaction has several results");
        let answer = self.any().await?;
        let refused = Failure::of(answer.code);
        if answer.code != 0 && (answer.body().is_empty() || matches!(refused, Failure::Lost(_))) {
            return Err(refused);
        }
        Ok((answer.read(|mut body| body.results())?, answer.zxid))
    }
}

impl Answer {
    fn body(&self) -> &[u8] {
        self.message.get(HEAD..).unwrap_or_default()
    }

    fn read<'a, T>(&'a self, read: impl FnOnce(Reader<'a>) -> io::Result<T>) -> Result<T, Failure> {
        read(Reader(self.body())).map_err(|error| Failure::Lost(error.into()))
    }

    pub(crate) fn created(&self) -> Result<(&str, Stat), Failure> {
        self.read(|mut body| Ok((body.text()?, body.stat()?)))
    }

    pub(crate) fn data(&self) -> Result<(&[u8], Stat), Failure> {
        self.read(|mut body| Ok((body.buffer()?, body.stat()?)))
    }

    pub(crate) fn children(&self) -> Result<(Vec<&str>, Stat), Failure> {
        self.read(|mut body| Ok((body.texts()?, body.stat()?)))
    }

    pub(crate) fn paths(&self) -> Result<Vec<&str>, Failure> {
        self.read(|mut body| body.texts())
    }
}

/// Asks for a session.
async fn greet(stream: &mut Box<dyn Stream>, wanted: &Wanted) -> io::Result<Granted> {
    let mut message = Writer::new();
    message.int(0);
    // Not what was seen last: a member that has been set back would be asked in vain for ever.
    message.long(0);
    message.int(i32::try_from(wanted.timeout.as_millis()).unwrap_or(i32::MAX));
    message.long(wanted.old.as_ref().map_or(0, |old| old.id));
    message.buffer(wanted.old.as_ref().map_or(&[0; 16], |old| &old.password));
    // No member that has lost its leader.
    message.flag(false);
    stream.write_all(&message.finish()).await?;
    stream.flush().await?;
    let answer = message_of(stream, || LONGEST_GREETING).await?;
    let mut answer = Reader(&answer);
    let _version = answer.int()?;
    let timeout = Duration::from_millis(u64::try_from(answer.int()?).unwrap_or(0));
    let (id, password) = (answer.long()?, answer.buffer()?.to_vec());
    // A session that has ended has no time left.
    Ok(Granted { id: if timeout.is_zero() { 0 } else { id }, password, timeout })
}

/// Reads a message, with a limit for what the server may announce. What was announced is not reserved before it has arrived.
async fn message_of(
    stream: &mut (impl AsyncRead + Unpin),
    longest: impl FnOnce() -> usize,
) -> io::Result<Vec<u8>> {
    let length = stream.read_i32().await?;
    let longest = longest();
    let length = usize::try_from(length).ok().filter(|length| *length <= longest).ok_or_else(|| {
        broken(format!("it announced a message of {length} bytes, and the maximum is {longest}"))
    })?;
    let mut message = Vec::new();
    stream.take(length as u64).read_to_end(&mut message).await?;
    if message.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(message) }
}

/// Receives messages until the connection ends. No faster than events are taken: a server may send any number of them.
async fn read(reader: impl AsyncRead + Unpin, state: Arc<Mutex<State>>, events: Sender<Event>) {
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    let ended = loop {
        // The next answer is that to the oldest request.
        let longest = || state.lock().waiting.front().map_or(LONGEST, |oldest| oldest.longest.max(LONGEST));
        let message = match message_of(&mut reader, longest).await {
            Ok(message) => message,
            Err(error) => break error,
        };
        match receive(message, &state) {
            // There may be no listener any more.
            Ok(Some(event)) => drop(events.send(event).await),
            Ok(None) => {}
            Err(error) => break error,
        }
    };
    end(&state, Reason::new("the connection has ended").because(ended));
}

/// Passes an answer on to who waits for it, or returns an event.
fn receive(message: Vec<u8>, state: &Mutex<State>) -> io::Result<Option<Event>> {
    let mut reader = Reader(&message);
    let (number, zxid, code) = (reader.int()?, reader.long()?, reader.int()?);
    if number == EVENT {
        let (kind, _state, path) = (reader.int()?, reader.int()?, reader.text()?);
        let change = match kind {
            1 => Change::Created,
            2 => Change::Deleted,
            3 => Change::Data,
            _ => Change::Other,
        };
        return Ok((path.len() <= LONGEST_PATH).then(|| Event { change, path: path.to_owned() }));
    }
    let oldest = state.lock().waiting.pop_front();
    let oldest = oldest.ok_or_else(|| broken("it sent an answer without a request"))?;
    if number != oldest.number {
        return Err(broken(format!("it sent the answer {number} where {} was due", oldest.number)));
    }
    // The caller may have gone.
    drop(oldest.answer.send(Answer { zxid, code, message }));
    Ok(None)
}

/// Sends messages until the connection ends.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut messages: UnboundedReceiver<Vec<u8>>,
    state: Arc<Mutex<State>>,
) {
    const MOST: usize = 256;
    let mut next = Vec::new();
    while messages.recv_many(&mut next, MOST).await > 0 {
        let together = next.concat();
        next.clear();
        let written = async {
            writer.write_all(&together).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return end(&state, Reason::new("the connection has ended").because(error));
        }
    }
}

/// From here on no caller waits for an answer.
fn end(state: &Mutex<State>, why: Reason) {
    let mut state = state.lock();
    state.ended.get_or_insert(why);
    state.waiting.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::LONGEST_LIST;

    /// A fake server may send what costs the most memory.
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_no_longer_than_the_request_explains() {
        for (call, longest) in [
            (Call::GetData { path: "/a".into(), watch: false }, LONGEST),
            (Call::GetChildren { path: "/a".into() }, LONGEST_LIST),
        ] {
            for (length, fits) in [(longest, true), (longest + 1, false)] {
                let (client, mut server) = tokio::io::duplex(1 << 16);
                let state = Arc::<Mutex<State>>::default();
                let (sender, answer) = oneshot::channel();
                let awaited = Awaited { number: 0, longest: call.longest_answer(), answer: sender };
                state.lock().waiting.push_back(awaited);
                let (events, _listener) = tokio::sync::mpsc::channel(4);
                let reading = tokio::spawn(read(client, Arc::clone(&state), events));
                server.write_i32(i32::try_from(length).unwrap()).await.unwrap();
                // Refused by what is announced.
                drop(server.write_all(&vec![0; length]).await);
                assert_eq!(answer.await.is_ok(), fits, "{length}");
                let ended = state.lock().ended.as_ref().map(|reason| format!("{reason:#}"));
                assert_eq!(ended.is_some_and(|why| why.contains("the maximum is")), !fits, "{length}");
                reading.abort();
            }
        }
    }

    /// A server may send any number of events, and large ones.
    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_than_is_taken() {
        let event = |path: &str| {
            let mut event = Writer::new();
            event.int(EVENT);
            event.long(0);
            for number in [0, 2, 3] {
                event.int(number);
            }
            event.text(path);
            event.finish()
        };
        let (client, mut server) = tokio::io::duplex(1 << 12);
        let (sender, mut events) = tokio::sync::mpsc::channel(4);
        let reading = tokio::spawn(read(client, Arc::default(), sender));
        server.write_all(&event(&"/a".repeat(LONGEST_PATH))).await.unwrap();
        server.write_all(&event("/a/b-0000000001")).await.unwrap();
        assert_eq!(events.recv().await.map(|event| event.path).as_deref(), Some("/a/b-0000000001"));
        let flood = event("/a/b-0000000001").repeat(10_000);
        let limit = Duration::from_secs(1);
        let clock = quorlock_testkit::TokioClock::default();
        assert!(within(&clock, limit, server.write_all(&flood)).await.is_none(), "all has been read");
        reading.abort();
    }
}
