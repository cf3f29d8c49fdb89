//! Finds the master of a service through its Sentinels.
//!
//! All Sentinels are asked in parallel, and a majority must name the same master: Sentinels in one part of a
//! partitioned network do not know of a failover in the other, and one that lies gets neither the password nor the
//! vote. After a failover they agree within two seconds. During a connection they are asked again every second,
//! because a master that was replaced without noticing it still answers: the connection ends when a majority names
//! another one, and carries no votes while none has named its master for three seconds. ADR 2 has the reasons.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use redis::{Pipeline, Value};

use super::connection::{Connection, text};
use super::error::{Peer, SENTINEL, SentCommand, failed, refused, unconnected, unexpected};
use super::login::Login;
use super::settings::Settings;
use crate::address::{Address, Endpoint};
use crate::node::Reason;
use crate::node::{NodeError, NodeErrorKind};
use crate::runtime::{Mutex, within};
use quorlock_protocol::{Moment, SENTINELS_WORD};

pub use errors::SentinelErrors;

mod errors;

/// How often the Sentinels are asked whether the master is still the same.
const LOOK: Duration = Duration::from_secs(1);
/// Monitors what the Sentinels report about the master during a connection to it.
pub(super) struct Watch {
    replaced: BoxFuture<'static, Reason>,
    /// When a majority of them was last asked and named it.
    confirmed: Arc<Mutex<Moment>>,
}

impl Watch {
    /// Resolves to the reason when they report another master.
    pub(super) fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<Reason> {
        self.replaced.as_mut().poll(context)
    }

    /// Returns whether the master is confirmed at `now`, or why it is not asked for votes.
    pub(super) fn allows(&self, now: Moment) -> Result<(), NodeError> {
        let confirmed = *self.confirmed.lock();
        if now < confirmed + SENTINELS_WORD {
            return Ok(());
        }
        let good = humantime::format_duration(SENTINELS_WORD);
        let reason = format!("a majority of its Sentinels has not confirmed it as the master within {good}");
        Err(NodeError::Unreachable { reason: reason.into() })
    }
}

/// The Sentinels of a service.
pub(super) struct Sentinels {
    service: String,
    members: Vec<Member>,
    settings: Settings,
    /// Those that are being asked. Once a majority agrees, the answers of the others are worth nothing, but their connections are
    /// kept: otherwise the slowest would have a new one each second.
    asked: FuturesUnordered<Asked>,
}

/// The number of a Sentinel that was asked, its connection, and its report.
type Asked = BoxFuture<'static, (usize, Option<Connection>, Result<Named, NodeError>)>;

struct Member {
    address: Address,
    /// Stays open while replies arrive.
    connection: Option<Connection>,
}

/// The report of a Sentinel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) master: Endpoint,
    /// The number of Sentinels that it knows of, including itself.
    sentinels: usize,
}

impl Sentinels {
    /// Returns the Sentinels of the service at `address`, if it is one.
    pub(super) fn of(address: &Address, settings: &Settings) -> Option<Sentinels> {
        let Endpoint::Sentinel { service, .. } = address.endpoint() else { return None };
        let members = address.sentinels().map(|address| Member { address, connection: None }).collect();
        let (service, settings) = (service.clone(), settings.clone());
        Some(Sentinels { service, members, settings, asked: FuturesUnordered::new() })
    }

    /// Finds the master.
    pub(super) async fn master(&mut self) -> Result<Named, NodeError> {
        let (answers, errors) = self.ask().await;
        let needed = most(&answers, self.members.len());
        if let Some(named) = agreed(&answers, needed) {
            return Ok(named.clone());
        }
        if self.members.len() < needed {
            let (given, needed) = (self.members.len(), needed);
            let message = format!(
                "its address names {given} of its Sentinels, and {needed} must answer; list all of them"
            );
            return Err(failed(NodeErrorKind::Misconfigured, message));
        }
        if answers.len() >= needed {
            return Err(NodeError::Unreachable { reason: disagreement(&answers, needed).into() });
        }
        Err(SentinelErrors::new(errors).of_service(answers.len(), needed, self.members.len()))
    }

    /// Monitors the master that they reported when they were asked at this moment.
    pub(super) fn watch(mut self, current: Named, asked: Moment) -> Watch {
        let confirmed = Arc::new(Mutex::new(asked));
        let last = Arc::clone(&confirmed);
        let replaced = async move {
            let clock = Arc::clone(&self.settings.clock);
            loop {
                let next = clock.now() + LOOK;
                within(&*clock, LOOK, self.take_back()).await;
                clock.sleep_until(next).await;
                let asked = clock.now();
                let (answers, _) = self.ask().await;
                match agreed(&answers, most(&answers, self.members.len())) {
                    Some(named) if named.master == current.master => *last.lock() = asked,
                    Some(next) => {
                        return format!("the Sentinels report another master, {}", next.master).into();
                    }
                    None => {}
                }
            }
        };
        Watch { replaced: Box::pin(replaced), confirmed }
    }

    /// Returns the reports, once a majority names the same master, all have answered or the timeout has passed, and
    /// the errors of the others, by address.
    async fn ask(&mut self) -> (Vec<Named>, Vec<(Arc<str>, NodeError)>) {
        let clock = Arc::clone(&self.settings.clock);
        let given = self.members.len();
        let limit = self.settings.connect_timeout.sentinels();
        let addresses: Vec<Arc<str>> =
            self.members.iter().map(|member| member.address.to_string().into()).collect();
        // The first error of each Sentinel without a report, in the order of the address.
        let mut errors = vec![Some(NodeError::Unanswered { waited: limit }); given];
        // Those that have still not answered hang: they are dialled again.
        self.asked = (0..given).filter_map(|index| self.asking(index)).collect();
        let mut answers = Vec::new();
        let collect = async {
            while let Some((index, outcome)) = self.next_answer().await {
                let error = match outcome {
                    Ok(named) => {
                        answers.push(named);
                        None
                    }
                    Err(error) => Some(error),
                };
                if let Some(entry) = errors.get_mut(index) {
                    *entry = error;
                }
                if agreed(&answers, most(&answers, given)).is_some() {
                    return;
                }
            }
        };
        within(&*clock, limit, collect).await;
        let errors = addresses.into_iter().zip(errors).filter_map(|(address, error)| Some((address, error?)));
        (answers, errors.collect())
    }

    /// Asks one of them.
    fn asking(&mut self, index: usize) -> Option<Asked> {
        let member = self.members.get_mut(index)?;
        let mut member = Member { address: member.address.clone(), connection: member.connection.take() };
        let (service, settings) = (self.service.clone(), self.settings.clone());
        Some(Box::pin(async move {
            let outcome = member.ask(&service, &settings).await;
            (index, member.connection, outcome)
        }))
    }

    /// Returns the next report, and keeps the connection. `None` if all have answered.
    async fn next_answer(&mut self) -> Option<(usize, Result<Named, NodeError>)> {
        let (index, connection, outcome) = self.asked.next().await?;
        if let Some(member) = self.members.get_mut(index) {
            member.connection = connection;
        }
        Some((index, outcome))
    }

    /// Keeps the connections to those that were slower than the majority.
    async fn take_back(&mut self) {
        while self.next_answer().await.is_some() {}
    }
}

impl Member {
    /// # Cancel safety
    ///
    /// Cancel safe: the next call reconnects.
    async fn ask(&mut self, service: &str, settings: &Settings) -> Result<Named, NodeError> {
        let Some(connection) = self.connection.take() else { return self.ask_anew(service, settings).await };
        match self.say(connection, service).await {
            Err(error)
                if error.may_have_acted()
                    || matches!(error, NodeError::Unreachable { .. } | NodeError::Unresponsive { .. }) =>
            {
                self.ask_anew(service, settings).await
            }
            outcome => outcome,
        }
    }

    async fn ask_anew(&mut self, service: &str, settings: &Settings) -> Result<Named, NodeError> {
        let mut login = Login::new(self.address.clone(), Peer::Sentinel, settings);
        let connection = login.hello().await?;
        self.say(connection, service).await
    }

    async fn say(&mut self, mut connection: Connection, service: &str) -> Result<Named, NodeError> {
        let mut requests = Pipeline::with_capacity(2);
        requests.cmd(SENTINEL).arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        requests.cmd(SENTINEL).arg("MASTER").arg(service);
        let answers = connection.exchange(&requests).await.map_err(unconnected)?;
        let outcome = self.understood(answers, service);
        self.connection = Some(connection);
        outcome
    }

    fn understood(&self, answers: Vec<Value>, service: &str) -> Result<Named, NodeError> {
        let mut answers = answers.into_iter();
        let (Some(place), Some(rest)) = (answers.next(), answers.next()) else {
            return Err(unexpected("unexpected answer of a Sentinel"));
        };
        if let Value::ServerError(error) = &place {
            let user = self.address.user().unwrap_or("default");
            return Err(refused(
                error,
                SentCommand { command: SENTINEL, key: "", user, peer: Peer::Sentinel },
            ));
        }
        if place == Value::Nil {
            return Err(failed(
                NodeErrorKind::Misconfigured,
                format!("it does not know a master `{service}`"),
            ));
        }
        let tls = matches!(self.address.endpoint(), Endpoint::Tls { .. });
        let master = place_in(place, tls).ok_or_else(|| unexpected("unexpected answer of a Sentinel"))?;
        let rest = MasterInfo::of(rest);
        let sentinels = usize::try_from(rest.number("num-other-sentinels")).unwrap_or(0).saturating_add(1);
        Ok(Named { master, sentinels })
    }
}

/// Returns how many Sentinels must name the master, if the address names `many` of them.
fn most(answers: &[Named], many: usize) -> usize {
    answers.iter().map(|named| named.sentinels).fold(many, usize::max) / 2 + 1
}

/// Returns the report of the master that at least `needed` name, which are more than half.
fn agreed(answers: &[Named], needed: usize) -> Option<&Named> {
    answers.iter().find(|named| votes_for(&named.master, answers) >= needed)
}

fn votes_for(master: &Endpoint, answers: &[Named]) -> usize {
    answers.iter().filter(|named| named.master == *master).count()
}

/// Describes reports of which none is that of `needed` Sentinels.
fn disagreement(answers: &[Named], needed: usize) -> String {
    let mut named: Vec<String> = Vec::new();
    for (place, Named { master, .. }) in answers.iter().enumerate() {
        if answers.iter().position(|other| other.master == *master) == Some(place) {
            named.push(format!("{master} by {}", votes_for(master, answers)));
        }
    }
    let is_address = |named: &&Named| match &named.master {
        Endpoint::Tcp { host, .. } | Endpoint::Tls { host, .. } => host.parse::<IpAddr>().is_ok(),
        Endpoint::Unix { .. } | Endpoint::Sentinel { .. } => false,
    };
    let addresses = answers.iter().filter(is_address).count();
    let cure = if (1..answers.len()).contains(&addresses) {
        "they agree only if all of them name it by address, or all by host name: give them the same \
         `resolve-hostnames`, `announce-hostnames` and `sentinel monitor`"
    } else {
        "they do some seconds after a failover; if not, compare `SENTINEL GET-MASTER-ADDR-BY-NAME` on each"
    };
    let named = named.join(", ");
    format!("its Sentinels name different masters ({named}), and {needed} must agree: {cure}")
}

/// Returns host and port as an endpoint.
fn place_in(answer: Value, tls: bool) -> Option<Endpoint> {
    let Value::Array(parts) = answer else { return None };
    let mut parts = parts.into_iter().filter_map(text);
    let (host, port) = (parts.next()?, parts.next()?);
    let port = port.parse().ok().filter(|port| *port > 0)?;
    // It is dialled and shown in messages.
    if host.is_empty() || host.len() > 255 || !host.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    Some(if tls { Endpoint::Tls { host, port } } else { Endpoint::Tcp { host, port } })
}

/// The fields that a Sentinel reports about a master.
struct MasterInfo(Vec<(Value, Value)>);

impl MasterInfo {
    fn of(answer: Value) -> MasterInfo {
        MasterInfo(if let Value::Map(pairs) = answer {
            pairs
        } else if let Value::Array(parts) = answer {
            let mut parts = parts.into_iter();
            std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect()
        } else {
            Vec::new()
        })
    }

    /// Returns a number; 0 if it is missing.
    fn number(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|(key, _)| text(key.clone()).as_deref() == Some(name));
        found.and_then(|(_, number)| text(number.clone())?.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Named {
        Named { master: Endpoint::Tcp { host: "10.0.0.1".into(), port }, sentinels: 3 }
    }

    #[test]
    fn t1_the_master_is_what_a_majority_names_and_not_what_one_does() {
        assert_eq!(agreed(&[], 2), None);
        assert_eq!(agreed(&[at(1)], 2), None);
        assert_eq!(agreed(&[at(2), at(1)], 2), None, "as just after a failover, or if one lies");
        assert_eq!(agreed(&[at(2), at(1), at(1)], 2), Some(&at(1)));
        assert_eq!(agreed(&[at(2), at(1), at(2)], 2), Some(&at(2)));
        let words = disagreement(&[at(2), at(1), at(2)], 3);
        assert!(words.contains("10.0.0.1:2 by 2, redis://10.0.0.1:1 by 1"), "{words}");
        assert!(words.contains("some seconds after a failover"), "{words}");
        let by_name = Named { master: Endpoint::Tcp { host: "db".into(), port: 1 }, sentinels: 3 };
        let words = disagreement(&[at(1), by_name], 2);
        assert!(words.contains("all of them name it by address, or all by host name"), "{words}");
    }

    #[test]
    fn a_majority_counts_all_known_sentinels() {
        assert_eq!(most(&[], 3), 2);
        assert_eq!(most(&[at(1)], 1), 2, "an address that names one of three is not enough");
        assert_eq!(most(&[Named { sentinels: 5, ..at(1) }, at(1)], 3), 3);
        assert_eq!(most(&[Named { sentinels: 1, ..at(1) }], 1), 1);
    }

    #[test]
    fn a_confirmation_by_sentinels_expires() {
        let second = |seconds| Moment::since_origin(Duration::from_secs(seconds));
        let confirmed = Arc::new(Mutex::new(second(10)));
        let watch = Watch { replaced: Box::pin(std::future::pending()), confirmed };
        assert!(watch.allows(second(12)).is_ok());
        assert!(watch.allows(second(13)).is_err(), "another one may have been promoted since");
    }

    #[test]
    fn a_report_of_a_sentinel_is_an_address_or_none() {
        let texts = |words: &[&str]| {
            Value::Array(words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect())
        };
        let place = place_in(texts(&["10.0.0.1", "6379"]), true);
        assert_eq!(place, Some(Endpoint::Tls { host: "10.0.0.1".into(), port: 6379 }));
        for words in
            [&["10.0.0.1"][..], &["", "1"], &["a b", "1"], &["\x1b[2J", "1"], &["a", "0"], &["a", "x"]]
        {
            assert_eq!(place_in(texts(words), false), None, "{words:?}");
        }
        assert_eq!(MasterInfo::of(texts(&["name", "m", "sentinels", "7"])).number("sentinels"), 7);
        for nonsense in [Value::Nil, texts(&["sentinels"]), texts(&["sentinels", "-3"])] {
            assert_eq!(MasterInfo::of(nonsense).number("sentinels"), 0);
        }
    }
}
