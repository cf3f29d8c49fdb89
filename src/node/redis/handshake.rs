//! What a new connection says before it carries its first vote.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, Value,
};

use super::Settings;
use super::address::{Address, Endpoint};
use super::bounds::Bounded;
use super::failure::{Asked, CLOSED, ended, refused, unconnected, undialled, unexpected};
use super::hints::{self, Listeners, Pushes};
use super::info::{facts_in, field};
use super::state::QUESTIONS;
use super::wire::bytes;
use crate::examination::Facts;
use crate::node::{Instance, Lasting, NodeError};
use crate::protocol::{Moment, age};

/// What a server's list of clients calls our connections. Without spaces.
const CLIENT_NAME: &str = "quorlock";

/// The longest `run_id`, in bytes. Redis and Valkey have 40 hexadecimal digits.
const LONGEST_RUN_ID: usize = 128;

/// A connection that may carry votes.
pub(crate) struct Line {
    pub(crate) connection: MultiplexedConnection,
    /// Moves the bytes. Ends when the connection does, whether or not anybody waits for an answer.
    pub(crate) driver: BoxFuture<'static, ()>,
    /// Who answers at the other end.
    pub(crate) instance: Arc<Instance>,
    /// What the server tells unasked, if somebody listens and it agreed to tell.
    pub(crate) pushes: Option<Pushes>,
    /// What it said of itself.
    pub(crate) facts: Facts,
}

/// Connects to one address, and remembers who answered there.
pub(crate) struct Connector {
    address: Address,
    settings: Settings,
    listeners: Arc<Listeners>,
    protocol: ProtocolVersion,
    last: Option<Seen>,
}

/// The process that answered last.
struct Seen {
    instance: Arc<Instance>,
    answered: Moment,
}

impl Connector {
    pub(crate) fn new(address: Address, settings: Settings, listeners: Arc<Listeners>) -> Connector {
        Connector { address, settings, listeners, protocol: ProtocolVersion::RESP3, last: None }
    }

    /// The ACL user that the questions are asked as.
    pub(crate) fn user(&self) -> &str {
        self.address.user().unwrap_or("default")
    }

    /// Notes that the process at the other end was alive at `now`.
    pub(crate) fn answered(&mut self, now: Moment) {
        if let Some(last) = &mut self.last {
            last.answered = now;
        }
    }

    /// Dials, logs in, and asks who answers, all within one time limit.
    pub(crate) async fn connect(&mut self) -> Result<Line, NodeError> {
        let limit = self.settings.connect_limit;
        let late = self.settings.clock.sleep_until(self.settings.clock.now() + limit);
        if let Either::Left((result, _)) = select(pin!(self.attempt()), late).await {
            return result;
        }
        Err(self.out_of_time(limit))
    }

    async fn attempt(&mut self) -> Result<Line, NodeError> {
        let LoggedIn { mut connection, mut driver, pushes } = self.greet().await?;

        let mut introduction = Pipeline::with_capacity(3);
        // The name is for people who look at the server's list of clients. Its answer does not
        // matter: a user without the right to set it can vote all the same.
        introduction.cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME);
        if pushes.is_some() {
            // NOLOOP: what we change ourselves, we know.
            introduction.cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP");
        }
        introduction.cmd("INFO");
        let answers = {
            let count = introduction.len();
            let request = pin!(connection.send_packed_commands(&introduction, 0, count));
            match select(request, &mut driver).await {
                Either::Left((answers, _)) => answers,
                // The connection has ended, perhaps right after the answer. It carries nothing more,
                // and its driver must not be polled again.
                Either::Right(((), _)) => {
                    return Err(NodeError::Unreachable { reason: CLOSED.into() });
                }
            }
        };
        let now = self.settings.clock.now();
        let mut answers = answers.map_err(|error| NodeError::Unreachable { reason: ended(&error).into() })?;
        let info = match answers.pop() {
            Some(Value::ServerError(error)) => return Err(refused(&error, self.asked("INFO"))),
            info => info.and_then(bytes).ok_or_else(|| unexpected("unexpected answer to INFO", ""))?,
        };
        let info = String::from_utf8_lossy(&info);
        let process = Process::fit_to_vote(&info)?;
        // Hints are a courtesy: a server or a user that may not give them can vote all the same.
        let pushes = pushes.filter(|_| matches!(answers.pop(), Some(Value::Okay)));
        let facts = facts_in(&info);
        Ok(Line { connection, driver, instance: self.recognise(process, now), pushes, facts })
    }

    /// Dials and logs in, in the newest protocol that the server speaks. Asks nothing yet.
    pub(super) async fn greet(&mut self) -> Result<LoggedIn, NodeError> {
        if self.address.user().is_some() && self.address.password().is_none() {
            // The user is not named: it may be a password that lacks its colon.
            let message = "its address has a user and no password; write `user:password@`, or `:password@`";
            return Err(NodeError::Failed { message: message.into(), lasting: Lasting::UntilMended });
        }
        match self.log_in().await {
            Err(Refusal::Protocol) => {
                // Remembered, so that an old server costs a second connection only once.
                self.protocol = ProtocolVersion::RESP2;
                self.log_in().await
            }
            done => done,
        }
        .map_err(|refusal| match refusal {
            Refusal::Protocol => unexpected("it speaks neither RESP3 nor RESP2", ""),
            Refusal::Error(NodeError::Unreachable { reason }) if *reason == *CLOSED => self.closed_early(),
            Refusal::Error(error) => error,
        })
    }

    /// The error of a connection that ended before the server had said anything.
    fn closed_early(&self) -> NodeError {
        let likely = match self.address.endpoint() {
            Endpoint::Tcp { .. } => {
                "so does a port that speaks TLS (write rediss://), and a server in protected mode or with too many clients"
            }
            Endpoint::Tls { .. } => {
                "so does a server that wants a certificate of ours (`Tls::identity`, --tls-cert and --tls-key)"
            }
            Endpoint::Unix { .. } => "so does a server with too many clients",
        };
        NodeError::Unreachable { reason: format!("{CLOSED} before it said anything; {likely}").into() }
    }

    /// The error of a server that was given up after `limit`.
    pub(super) fn out_of_time(&self, limit: Duration) -> NodeError {
        let limit = humantime::format_duration(limit);
        let likely = match self.address.endpoint() {
            Endpoint::Tls { .. } => "; neither does a port that does not speak TLS (write redis://)",
            Endpoint::Tcp { .. } | Endpoint::Unix { .. } => "",
        };
        let reason = format!("it did not connect and introduce itself within {limit}{likely}");
        NodeError::Unreachable { reason: reason.into() }
    }

    /// Whether the server can say something unasked, as it turned out at the last greeting.
    pub(super) fn hears_pushes(&self) -> bool {
        self.protocol == ProtocolVersion::RESP3
    }

    async fn log_in(&self) -> Result<LoggedIn, Refusal> {
        let dialled = self.settings.dial.dial(&self.address).await;
        let stream = Bounded::new(dialled.map_err(|error| Refusal::Error(undialled(&error)))?);
        let mut login = RedisConnectionInfo::default()
            .set_protocol(self.protocol)
            .set_db(i64::from(self.address.database()))
            .set_lib_name("quorlock", env!("CARGO_PKG_VERSION"));
        if let Some(user) = self.address.user() {
            login = login.set_username(user);
        }
        if let Some(password) = self.address.password() {
            login = login.set_password(password);
        }
        let mut config = AsyncConnectionConfig::new()
            // Every round has its own limit, and a question that timed out is still awaited: its
            // answer tells what to clean up.
            .set_response_timeout(None)
            .set_connection_timeout(None)
            // As many as can be unanswered, so that a request always enters at once and requests
            // keep their order.
            .set_pipeline_buffer_size(QUESTIONS);
        let mut pushes = None;
        if self.protocol == ProtocolVersion::RESP3 && self.listeners.any() {
            let (inlet, outlet) = hints::pushes();
            config = config.set_push_sender(move |push| {
                inlet.take(push);
                Ok::<(), Infallible>(())
            });
            pushes = Some(outlet);
        }
        match MultiplexedConnection::new_with_config(&login, stream, config).await {
            Ok((connection, driver)) => Ok(LoggedIn { connection, driver: Box::pin(driver), pushes }),
            Err(error) if no_resp3(&error) => Err(Refusal::Protocol),
            Err(error) => Err(Refusal::Error(unconnected(error, self.asked("HELLO")))),
        }
    }

    /// The witness for `process`, who answered at `now`.
    ///
    /// A process that was seen before keeps its witness: its age is then reckoned on our own
    /// clock, which nobody puts forward. Another one started after the last answer of the one
    /// before it, whatever its own clock says.
    fn recognise(&mut self, process: Process, now: Moment) -> Arc<Instance> {
        let instance = match &self.last {
            Some(last) if *last.instance.id == *process.run_id => Arc::clone(&last.instance),
            last => {
                let age = age(process.uptime, last.as_ref().map(|last| last.answered), now);
                Arc::new(Instance::new(process.run_id, now, age))
            }
        };
        self.last = Some(Seen { instance: Arc::clone(&instance), answered: now });
        instance
    }

    fn asked(&self, command: &'static str) -> Asked<'_> {
        Asked { command, key: "", user: self.user() }
    }
}

/// A connection that has not introduced itself.
pub(super) struct LoggedIn {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: BoxFuture<'static, ()>,
    /// Where the server's pushes would come.
    pushes: Option<Pushes>,
}

/// Why a login failed.
enum Refusal {
    /// The server does not speak RESP3.
    Protocol,
    Error(NodeError),
}

/// Whether the server does not know HELLO, or not this version of the protocol. The client crate
/// recognises the first of these by the words of Redis 5 only; newer ones use other quotes.
fn no_resp3(error: &RedisError) -> bool {
    let unknown = |detail: &str| {
        let detail = detail.to_ascii_lowercase();
        detail.contains("unknown command") && detail.contains("hello")
    };
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(unknown)
}

/// What a server says of itself.
#[derive(PartialEq, Eq, Debug)]
struct Process {
    run_id: String,
    uptime: Duration,
}

impl Process {
    /// Reads an answer to `INFO`. Only an independent master that has its data may vote.
    fn fit_to_vote(info: &str) -> Result<Process, NodeError> {
        let field = |name: &str| field(info, name).unwrap_or_default();
        let unfit = |reason: &str| Err(NodeError::Unfit { reason: reason.into() });
        let is = |name: &str, value: &str| field(name) == value;
        if is("redis_mode", "sentinel") || is("server_mode", "sentinel") {
            return unfit(
                "it is a sentinel (redis_mode:sentinel), which stores no keys; give the master's address",
            );
        }
        if is("redis_mode", "cluster") || is("server_mode", "cluster") || is("cluster_enabled", "1") {
            return unfit(
                "it is a cluster member (cluster_enabled:1), and failover would lose locks; give an independent server",
            );
        }
        if is("role", "slave") || is("role", "replica") {
            return unfit(
                "it is a replica (role:slave), and its copy may lag behind; give the master's address",
            );
        }
        if is("loading", "1") {
            let message = "it is still loading its data (loading:1)".into();
            return Err(NodeError::Failed { message, lasting: Lasting::Passing });
        }
        let run_id = field("run_id");
        // It stands in messages and logs.
        if run_id.is_empty() || run_id.len() > LONGEST_RUN_ID || !run_id.bytes().all(|b| b.is_ascii_graphic())
        {
            return unfit("its INFO has no run_id, so a restart would go unseen; use Redis or Valkey");
        }
        // A clock that was put back makes a negative uptime. The least age is zero then, as when
        // the field is missing.
        let uptime = field("uptime_in_seconds").parse().unwrap_or(0);
        Ok(Process { run_id: run_id.into(), uptime: Duration::from_secs(uptime) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:90\r\nloading:0\r\nrole:master\r\ncluster_enabled:0\r\n";

    #[test]
    fn an_independent_master_may_vote() {
        let process = Process { run_id: "abc".into(), uptime: Duration::from_secs(90) };
        assert_eq!(Process::fit_to_vote(INFO), Ok(process));
    }

    #[test]
    fn an_uptime_that_cannot_be_is_no_age() {
        let info = INFO.replace("seconds:90", "seconds:-5");
        assert_eq!(Process::fit_to_vote(&info).unwrap().uptime, Duration::ZERO);
    }

    #[test]
    fn whoever_may_not_vote_is_told_why() {
        for (have, instead, reason, lasts) in [
            ("role:master", "role:slave", "replica (role:slave)", true),
            ("redis_mode:standalone", "redis_mode:sentinel", "sentinel", true),
            ("cluster_enabled:0", "cluster_enabled:1", "cluster member", true),
            ("run_id:abc", "run_id:", "no run_id", true),
            ("run_id:abc", "run_id:a\x1b[2Jc", "no run_id", true),
            ("loading:0", "loading:1", "still loading", false),
        ] {
            let error = Process::fit_to_vote(&INFO.replace(have, instead)).unwrap_err();
            assert!(error.to_string().contains(reason) && error.lasts() == lasts, "{error:?}");
        }
    }

    fn seconds(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn process(run_id: &str, uptime: u64) -> Process {
        Process { run_id: run_id.into(), uptime: Duration::from_secs(uptime) }
    }

    fn connector() -> Connector {
        Connector::new(Address::parse("db-7").unwrap(), super::super::tests::settings(), Arc::default())
    }

    #[test]
    fn a_new_process_is_no_older_than_the_last_answer_of_the_one_before() {
        let mut connector = connector();
        assert_eq!(connector.recognise(process("old", 1_000), seconds(10)).age, Duration::from_secs(999));
        connector.answered(seconds(20));
        let instance = connector.recognise(process("new", 1_000), seconds(23));
        assert_eq!(instance.age, Duration::from_secs(3), "its clock was put forward");
    }

    #[test]
    fn a_process_that_was_seen_before_ages_on_our_clock() {
        let mut connector = connector();
        let first = connector.recognise(process("abc", 5), seconds(10));
        let again = connector.recognise(process("abc", 5_000), seconds(20));
        assert!(Arc::ptr_eq(&first, &again), "its clock was put forward");
        assert_eq!(again.age_at(seconds(20)), Duration::from_secs(14));
    }
}
