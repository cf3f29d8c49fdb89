//! What a new connection says before it carries its first vote.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use redis::{Pipeline, Value};

use super::command::transaction::SupportedCommands;
use super::connect_timeout::ConnectLimit;
use super::connection::{Connection, server_error, text};
use super::error::{Peer, refused, unconnected, unexpected};
use super::info::facts_in;
use super::login::Login;
use super::met::Met;
use super::process::{Process, history_in};
use super::promotion::{max_ttl_answer, max_ttl_request, reign};
use super::push::Listeners;
use super::replicas::ReplicaAck;
use super::sentinel::{Sentinels, Watch};
use super::settings::{Membership, Settings};
use super::start;
use crate::address::{Address, Endpoint};
use crate::node::facts::{Facts, Role};
use crate::node::{Identity, NodeError, NodeErrorKind};
use quorlock_protocol::{InboxId, Moment, Past, SUCCESSION, age, believed};

/// What a server's list of clients calls our connections. Without spaces.
const CLIENT_NAME: &str = "quorlock";

/// Whether the server may offer locks (rule O-8): not where Sentinels or a cluster bound the time since a vote was asked
/// for (rules T-1, T-2 and C-6), where it has to wait for replicas (T-3), or without the restart guard, which leaves
/// it to the server's disk what is remembered.
pub(crate) fn may_offer(address: &Address, settings: &Settings) -> bool {
    settings.membership == Membership::Alone
        && address.service().is_none()
        && address.wait() == 0
        && settings.gate.is_some()
}

/// A connection that may carry votes.
pub(crate) struct ReadyConnection {
    pub(crate) line: Connection,
    /// Who answers at the other end.
    pub(crate) identity: Arc<Identity>,
    /// What replicas must have before it counts.
    pub(crate) copies: Option<ReplicaAck>,
    /// Whether the server tells unasked what changes.
    pub(crate) hints: bool,
    /// Whether it tells what our own scripts change, too, as Redis 6.0 does.
    pub(crate) tells_own: bool,
    /// Whether it sends messages to our inboxes.
    pub(crate) inbox: bool,
    /// What it said of itself.
    pub(crate) facts: Facts,
    /// What the history of its data is called, if it is a member of a cluster.
    pub(crate) history: Option<Arc<str>>,
    /// What its Sentinels say of it, where they have named it.
    pub(crate) watch: Option<Watch>,
    /// What it can do without scripts.
    pub(crate) supported: SupportedCommands,
    /// How long it took to introduce itself.
    pub(crate) round_trip: Duration,
}

/// Connects to one address, and remembers who answered there.
pub(crate) struct Connector {
    login: Login,
    settings: Settings,
    listeners: Arc<Listeners>,
    last: Option<Seen>,
    met: Met,
    /// Connections to that process over which something may still come that stores a key.
    behind: Vec<i64>,
    /// Whether the server pushes what is sent to channels, as far as is known.
    has_channels: bool,
}

/// The process that answered last.
struct Seen {
    identity: Arc<Identity>,
    history: Option<String>,
    answered: Moment,
}

impl Connector {
    pub(crate) fn new(address: Address, settings: Settings, listeners: Arc<Listeners>) -> Connector {
        Connector {
            login: Login::new(address, Peer::Server, &settings),
            settings,
            listeners,
            last: None,
            met: Met::default(),
            behind: Vec::new(),
            has_channels: true,
        }
    }

    /// The connection that the server calls so has ended, and not all that was asked over it was answered.
    pub(crate) fn leaves_behind(&mut self, client: Option<i64>) {
        self.behind.extend(client);
    }

    /// The ACL user that the requests are asked as.
    pub(crate) fn user(&self) -> &str {
        self.login.user()
    }

    /// Whether the server can say something unasked, as it turned out at the last greeting.
    pub(super) fn hears_pushes(&self) -> bool {
        self.login.hears_pushes()
    }

    /// Notes that the process at the other end was alive at `now`.
    pub(crate) fn answered(&mut self, now: Moment) {
        if let Some(last) = &mut self.last {
            last.answered = now;
        }
    }

    /// Dials, logs in, and asks who answers, as long as that does not take too long.
    pub(crate) async fn connect(&mut self) -> Result<ReadyConnection, NodeError> {
        let late = self.login.steps.late();
        if let Either::Left((result, _)) = select(pin!(self.attempt()), pin!(late)).await {
            return result;
        }
        Err(self.out_of_time())
    }

    /// The same, without asking who answers.
    pub(super) async fn greet_in_time(&mut self) -> Result<(Connection, Option<Watch>), NodeError> {
        let late = self.login.steps.late();
        if let Either::Left((result, _)) = select(pin!(self.greet()), pin!(late)).await {
            return result;
        }
        Err(self.out_of_time())
    }

    async fn attempt(&mut self) -> Result<ReadyConnection, NodeError> {
        let (mut line, watch) = self.greet().await?;

        let mut introduction = Pipeline::with_capacity(13);
        if let Some(gate) = &self.settings.gate {
            start::ask(&mut introduction, gate);
        }
        let max_ttl = self.settings.gate.as_ref().zip(self.settings.max_ttls.as_ref());
        if let Some((gate, max_ttls)) = max_ttl {
            // Before the server is told to remember what we read. A user without the right to it can vote all
            // the same.
            let [command, words @ ..] = max_ttl_request(gate, max_ttls.ours());
            introduction.cmd(&command).arg(&words[..]);
        }
        // The name is for people who look at the server's list of clients. Its answer does not
        // check: a user without the right to set it can vote all the same.
        introduction.cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME);
        let hints = self.login.hears_pushes() && self.listeners.any();
        if hints {
            // NOLOOP: what we change ourselves, we know.
            introduction.cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP");
        }
        let alone = self.settings.membership == Membership::Alone;
        if alone {
            SupportedCommands::ask(&mut introduction);
        }
        let asks_for_inboxes = hints && self.subscribe(&mut introduction);
        introduction.cmd("INFO");
        self.login.steps.next(1);
        let asked = self.settings.clock.now();
        let (mut answers, subscribed) =
            line.exchange_subscribing(&introduction, asks_for_inboxes).await.map_err(unconnected)?;
        let round_trip = self.settings.clock.now().since(asked);
        let info = match answers.pop() {
            Some(Value::ServerError(error)) => return Err(refused(&error, self.login.asked("INFO"))),
            info => info.and_then(text).ok_or_else(|| unexpected("unexpected answer to INFO"))?,
        };
        if asks_for_inboxes && !subscribed && !matches!(answers.pop(), Some(Value::ServerError(_))) {
            // What it sends there would be taken for answers. A user without the right to it gets an error, and no
            // offers.
            self.has_channels = false;
            return Err(unexpected("it answers SUBSCRIBE, and does not push: asked once more without"));
        }
        let mut facts = facts_in(&info);
        let membership = self.settings.membership;
        let mut process =
            Process::fit_to_vote(&info, membership).map_err(|unfit| self.not_yet(unfit, &facts))?;
        if membership == Membership::Alone && self.login.address.service().is_none() {
            self.met.note(&process, self.settings.clock.now())?;
        }
        let history = match membership {
            Membership::Alone => None,
            Membership::OfCluster => Some(history_in(&info)?.into()),
        };
        let supported = if alone {
            let now = self.settings.clock.now();
            SupportedCommands::take(&mut answers, line.client, facts.software.as_ref(), now).map_err(
                |reason| NodeError::Unfit { kind: NodeErrorKind::WrongServer, reason: reason.into() },
            )?
        } else {
            SupportedCommands::default()
        };
        // Hints are a courtesy: a server or a user that may not give them can vote all the same.
        let hints = hints && matches!(answers.pop(), Some(Value::Okay));
        if max_ttl.is_some() {
            facts.max_ttl = answers.get(1).and_then(max_ttl_answer);
        }
        if let Some(gate) = &self.settings.gate {
            let wall = self.settings.clock.wall();
            // The answer to the first request.
            facts.known = start::known(answers.into_iter().next(), &process.run_id, wall);
            process.uptime = believed(process.uptime, process.turns, facts.known);
            if facts.known.is_none() {
                start::note(&mut line, gate, &process, wall).await.map_err(unconnected)?;
            }
        }
        let tells_own = facts
            .software
            .as_ref()
            .is_some_and(|software| software.name == "redis" && software.numbers() < [6, 2, 0]);
        facts.service = self.login.address.service().map(Into::into);
        let mut past = Past::Master;
        if let (Some(gate), Some(history)) = (&self.settings.gate, &process.history) {
            self.login.steps.next(1);
            let reign = reign(&mut line, gate, &process, history, self.user()).await?;
            facts.reign = Some(reign);
            past = Past::Promoted { reign };
        }
        let copies = ReplicaAck::wanted(&self.login.address, &self.settings);
        if let Some(copies) = copies {
            self.login.steps.next(1);
            copies.try_out(&mut line, self.user()).await?;
        }
        self.end_those_before(&mut line, &process).await?;
        let now = self.settings.clock.now();
        let identity = self.recognise(process, past, now);
        Ok(ReadyConnection {
            line,
            identity,
            copies,
            hints,
            tells_own,
            inbox: subscribed,
            facts,
            history,
            watch,
            supported,
            round_trip,
        })
    }

    /// Subscribes to the inboxes of those who listen, where the server may offer locks, and says whether it does.
    fn subscribe(&self, introduction: &mut Pipeline) -> bool {
        if !self.has_channels || !may_offer(&self.login.address, &self.settings) {
            return false;
        }
        let channels: Vec<_> = self.listeners.inboxes().into_iter().map(InboxId::channel).collect();
        if !channels.is_empty() {
            introduction.cmd("SUBSCRIBE").arg(&channels[..]);
        }
        !channels.is_empty()
    }

    /// Has the server end earlier connections of ours, if it is the process that they were made to: what
    /// is still on its way over them must not be carried out after what is asked from here on.
    async fn end_those_before(&mut self, line: &mut Connection, process: &Process) -> Result<(), NodeError> {
        if self.last.as_ref().is_none_or(|last| *last.identity.id != *process.run_id) {
            self.behind.clear();
        }
        if self.behind.is_empty() {
            return Ok(());
        }
        let mut ends = Pipeline::with_capacity(self.behind.len());
        for client in &self.behind {
            ends.cmd("CLIENT").arg("KILL").arg("ID").arg(*client);
        }
        self.login.steps.next(1);
        let answers = line.exchange(&ends).await.map_err(unconnected)?;
        self.behind.clear();
        match answers.into_iter().find_map(server_error) {
            Some(error) => Err(refused(&error, self.login.asked("CLIENT KILL"))),
            None => Ok(()),
        }
    }

    /// Finds the server, dials and logs in. Asks nothing yet.
    pub(super) async fn greet(&mut self) -> Result<(Connection, Option<Watch>), NodeError> {
        let Some(mut sentinels) = Sentinels::of(&self.login.address, &self.settings) else {
            return Ok((self.login.hello().await?, None));
        };
        let asked = self.settings.clock.now();
        // That bounds its own time, and says which of them have not answered. So it has to end before this step does,
        // also on a machine that fires timers late.
        let limit = self.settings.connect_timeout;
        self.login.steps.next_within(limit.sentinels().saturating_add(limit.step()));
        let named = sentinels.master().await?;
        self.login.target = self.login.address.at(named.master.clone());
        Ok((self.login.hello().await?, Some(sentinels.watch(named, asked))))
    }

    /// Where it has found the server.
    pub(super) fn target(&self) -> &Address {
        &self.login.target
    }

    /// A replica that Sentinels name as the master will be one, or they will name another.
    fn not_yet(&self, unfit: NodeError, facts: &Facts) -> NodeError {
        if self.login.address.service().is_none() || facts.role != Some(Role::Replica) {
            return unfit;
        }
        let reason = format!("the Sentinels name {} as the master, and it is a replica", self.login.target);
        NodeError::Unreachable { reason: reason.into() }
    }

    /// The error of a server that was given up.
    fn out_of_time(&self) -> NodeError {
        let limit = humantime::format_duration(self.settings.connect_timeout.step());
        let likely = match self.login.target.endpoint() {
            // A plain Redis waits for the end of a line, for which it takes the first bytes of TLS.
            Endpoint::Tls { .. } => "write redis:// if its port does not speak TLS: ",
            Endpoint::Tcp { .. } | Endpoint::Unix { .. } | Endpoint::Sentinel { .. } => "",
        };
        let missed = match self.settings.connect_timeout {
            ConnectLimit::Whole(_) => "connect and introduce itself",
            ConnectLimit::EachStep(_) => "go on connecting or introducing itself",
        };
        NodeError::Unreachable { reason: format!("{likely}it did not {missed} within {limit}").into() }
    }

    /// The witness for `process`, who answered at `now`.
    ///
    /// A process that was seen before keeps its witness: its age is then reckoned on our own
    /// clock, which nobody puts forward. Another one started after the last answer of the one
    /// before it, whatever its own clock says; and so did the reign of one that was promoted since.
    fn recognise(&mut self, process: Process, past: Past, now: Moment) -> Arc<Identity> {
        let Process { run_id, uptime, history, .. } = process;
        let identity = match &self.last {
            Some(last) if *last.identity.id == *run_id && last.history == history => {
                Arc::clone(&last.identity)
            }
            last => {
                // Where Sentinels or clusters promote, its predecessor may be asked for a while: nothing
                // counts before (rules T-2 and C-6).
                let in_cluster = self.settings.membership == Membership::OfCluster;
                let promoted_by_others =
                    past != Past::Master && (in_cluster || self.login.address.service().is_some());
                let alone = if promoted_by_others { SUCCESSION } else { Duration::ZERO };
                let age = age(uptime, past, last.as_ref().map(|last| last.answered), now);
                let still = alone.saturating_sub(age);
                Arc::new(Identity::new(run_id, now + still, age.saturating_sub(alone)))
            }
        };
        self.last = Some(Seen { identity: Arc::clone(&identity), history, answered: now });
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn process(run_id: &str, uptime: u64) -> Process {
        Process { run_id: run_id.into(), uptime: Duration::from_secs(uptime), turns: None, history: None }
    }

    fn connector() -> Connector {
        Connector::new(Address::parse("db-7").unwrap(), super::super::tests::settings(), Arc::default())
    }

    #[test]
    fn o8_there_are_no_offers_where_a_vote_is_bound_to_a_time_or_needs_more_than_one_server() {
        let settings = || super::super::tests::settings();
        let guarded = || Settings { gate: Some("quorlock:gate:{}:reign".into()), ..settings() };
        let offers = |address, settings| may_offer(&Address::parse(address).unwrap(), &settings);
        assert!(offers("redis://a", guarded()));
        assert!(!offers("redis://a", Settings { gate: None, ..settings() }), "without the restart guard");
        assert!(!offers("redis+sentinel://a/m", guarded()));
        assert!(!offers("redis://a?wait=1", guarded()));
        assert!(!offers("redis://a", Settings { membership: Membership::OfCluster, ..guarded() }));
    }

    #[test]
    fn a_new_process_is_no_older_than_the_last_answer_of_the_one_before() {
        let mut connector = connector();
        assert_eq!(
            connector.recognise(process("old", 1_000), Past::Master, seconds(10)).age,
            Duration::from_secs(999)
        );
        connector.answered(seconds(20));
        let identity = connector.recognise(process("new", 1_000), Past::Master, seconds(23));
        assert_eq!(identity.age, Duration::from_secs(3), "its clock was put forward");
    }

    #[test]
    fn a_process_that_was_seen_before_ages_on_our_clock() {
        let mut connector = connector();
        let first = connector.recognise(process("abc", 5), Past::Master, seconds(10));
        let again = connector.recognise(process("abc", 5_000), Past::Master, seconds(20));
        assert!(Arc::ptr_eq(&first, &again), "its clock was put forward");
        assert_eq!(again.age_at(seconds(20)), Duration::from_secs(14));
    }

    #[test]
    fn t2_a_successor_waits_until_the_one_before_it_is_asked_no_more() {
        let age = |address, reign, later: u64| {
            let address = Address::parse(address).unwrap();
            let mut connector = Connector::new(address, super::super::tests::settings(), Arc::default());
            let process = Process { history: Some("first".into()), ..process("abc", 5_000) };
            let past = Past::Promoted { reign: Duration::from_secs(reign) };
            connector.recognise(process, past, seconds(100)).age_at(seconds(100 + later)).as_secs()
        };
        assert_eq!(age("redis://a", 0, 20), 20);
        assert_eq!(age("redis+sentinel://a/m", 0, 20), 12, "3 s, and 5 s to tell each other");
        assert_eq!(age("redis+sentinel://a/m", 5, 2), 0);
        assert_eq!(age("redis+sentinel://a/m", 5, 10), 7);
        assert_eq!(age("redis+sentinel://a/m", 20, 0), 12);

        let settings =
            super::Settings { membership: Membership::OfCluster, ..super::super::tests::settings() };
        let mut member = Connector::new(Address::parse("a").unwrap(), settings, Arc::default());
        let process = Process { history: Some("first".into()), ..process("abc", 5_000) };
        let past = Past::Promoted { reign: Duration::from_secs(20) };
        let age = member.recognise(process, past, seconds(100)).age_at(seconds(100));
        assert_eq!(age.as_secs(), 12, "clusters promote as well");
    }

    #[test]
    fn i17_each_promotion_makes_a_process_new_and_no_older_than_its_reign() {
        let mut connector = connector();
        let mut reigns = |history: &str, reign, at| {
            let process = Process { history: Some(history.into()), ..process("abc", 5_000) };
            let past = Past::Promoted { reign: Duration::from_secs(reign) };
            connector.recognise(process, past, seconds(at)).age_at(seconds(at))
        };
        assert_eq!(reigns("first", 7, 10), Duration::from_secs(7));
        assert_eq!(reigns("first", 100, 12), Duration::from_secs(9), "the same reign, on our clock");
        assert_eq!(reigns("second", 100, 15), Duration::from_secs(3), "its clock was put forward");
    }
}
