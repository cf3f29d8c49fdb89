//! Checks and prepares a new connection before its first vote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::future::{Either, FutureExt as _, select};
use quorlock::protocol::Moment;
use quorlock::runtime::within;
use quorlock::{
    node::facts::Facts,
    node::{Identity, NodeError, NodeErrorKind},
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

use crate::RULES;
use crate::connect::{Opened, open};
use crate::error::{failed, of_statement, reason, unfit};
use crate::guard::Refusal;
use crate::max_ttl::{MaxTtlRecord, says_max_ttl};
use crate::request::{NOTE, Statements};
use crate::session::{Session, timeout, timeouts};
use crate::settings::Settings;
use crate::shedlock;

mod backend;
mod schema;
mod server;

pub(crate) use backend::Backend;
use schema::{check_owners, find_table, prepare};
use server::{SERVER_FACTS, Server};

/// How many messages without a request a server may send during the setup.
const MOST_UNSOLICITED: u32 = 10_000;

/// Connects, checks that the server may vote, and waits (within a bound) until the backend of the previous
/// connection has terminated, so that nothing sent to it is executed any more.
///
/// # Errors
///
/// Why there is no connection.
pub(crate) async fn connect(
    settings: &Settings,
    predecessor: &mut Option<Backend>,
) -> Result<(Session, Facts), NodeError> {
    let limit = settings.connect_timeout();
    let logging_in = AtomicBool::new(false);
    let connecting = Box::pin(greet(settings, predecessor, &logging_in));
    within(&**settings.seams.clock(), limit, connecting).await.unwrap_or_else(|| {
        let late = format!("no connection within {limit:?}");
        Err(if logging_in.load(Ordering::Relaxed) {
            // Others wait for the end of a line.
            let likely = "it hangs, or is a server of another kind; the port of PostgreSQL is 5432";
            NodeError::Unresponsive { reason: format!("{late}: {likely}").into() }
        } else {
            NodeError::Unreachable { reason: late.into() }
        })
    })
}

async fn greet(
    settings: &Settings,
    predecessor: &mut Option<Backend>,
    logging_in: &AtomicBool,
) -> Result<(Session, Facts), NodeError> {
    let Opened { client, mut carrier, greeted_by } = open(&settings.url, &settings.seams, logging_in).await?;
    // It has answered; what it is asked from here on may have to wait for others.
    logging_in.store(false, Ordering::Relaxed);
    // Whether the `max_ttl` of other clients has changed meanwhile.
    let mut changed = false;
    let (session, facts) = {
        let work = Box::pin(introduce(settings, &client, greeted_by, predecessor));
        let mut unsolicited = 0;
        let carrying = Box::pin(futures::future::poll_fn(|context| {
            while unsolicited < MOST_UNSOLICITED {
                match ready!(carrier.poll_message(context)) {
                    Some(Ok(message)) => {
                        changed |= says_max_ttl(&message);
                        unsolicited += 1;
                    }
                    Some(Err(error)) => return Poll::Ready(Some(error)),
                    None => return Poll::Ready(None),
                }
            }
            Poll::Ready(None)
        }));
        match select(work, carrying).await {
            Either::Left((introduced, _)) => introduced?,
            Either::Right((ended, work)) => {
                if let Some(refusal) = ended.as_ref().and_then(Refusal::behind) {
                    return Err(failed(refusal.kind, refusal.words.as_str()));
                }
                // What arrived before the end may say why.
                work.now_or_never().transpose()?;
                let words = "the connection ended during its setup";
                let reason = ended.map_or_else(|| words.into(), |error| reason(words, &error));
                return Err(NodeError::Unreachable { reason });
            }
        }
    };
    let Introduced { identity, statements, shedlock, max_ttl, backend, round_trip, follows_unended } =
        session;
    *predecessor = Some(backend);
    let max_ttl = max_ttl.map(|record| (record, changed));
    let client = Arc::new(client);
    let session =
        Session { client, carrier, statements, shedlock, max_ttl, identity, round_trip, follows_unended };
    Ok((session, facts))
}

struct Introduced {
    identity: Arc<Identity>,
    statements: Statements,
    shedlock: Option<shedlock::Prepared>,
    max_ttl: Option<MaxTtlRecord>,
    backend: Backend,
    round_trip: Duration,
    /// Whether the previous one may still execute what it was sent.
    follows_unended: bool,
}

async fn introduce(
    settings: &Settings,
    client: &Client,
    greeted_by: i32,
    predecessor: &mut Option<Backend>,
) -> Result<(Introduced, Facts), NodeError> {
    let clock = settings.seams.clock();
    client.batch_execute(&setting_up(settings.limit())).await.map_err(before)?;
    let sent = clock.now();
    let wall = clock.wall();
    let row = client.query_one(SERVER_FACTS, &[]).await.map_err(before)?;
    let round_trip = clock.now().since(sent);
    let server = Server::read(&row).map_err(before)?;
    let mut facts = server.facts(&settings.url, wall, round_trip);
    server.check(greeted_by)?;
    settings.check_timeline(&server)?;
    if let Some(layout) = &settings.url.shedlock {
        return introduce_shedlock(settings, client, layout, (server, sent, round_trip, facts), predecessor)
            .await;
    }
    prepare(client, &server).await?;
    let follows_unended = match predecessor {
        Some(gone) => !gone.end(client, settings).await?,
        None => false,
    };
    if follows_unended {
        tracing::warn!(
            node = %settings.url,
            "the backend of the previous connection does not terminate; tombstones refuse its late statements"
        );
    }
    let (place, fresh) = (server.place(), format!("{:032x}", settings.seams.entropy().next_u128()));
    let parameters: [&(dyn ToSql + Sync); 2] = [&place, &fresh];
    // Random, so that no one else can send to it.
    let channel = format!("quorlock_{:032x}", settings.seams.entropy().next_u128());
    let listen = format!("LISTEN quorlock; LISTEN {channel}");
    let asked = format!("SELECT {NOTE}");
    let since = format!("SELECT quorlock.{RULES}known_since($1, $2), quorlock.{RULES}clock()");
    let sweep = format!("SELECT quorlock.{RULES}sweep(100)");
    let (begun, history, statements, listening, swept) = futures::join!(
        client.query_one(&since, &parameters),
        client.query_one(&asked, &[]),
        Statements::prepare(client, channel),
        client.batch_execute(&listen),
        client.batch_execute(&sweep)
    );
    let begun = begun.map_err(before)?;
    let statements = statements.map_err(before)?;
    let history = history.and_then(|row| row.try_get::<_, Option<String>>(0)).map_err(before)?;
    let Some(history) = history else {
        return Err(NodeError::Unreachable { reason: "its lock tables were restored just now".into() });
    };
    listening.map_err(before)?;
    // Rows that are deleted later hinder no lock; a right that is missing would.
    if let Err(error) = swept.map_err(before)
        && error.is_permanent()
    {
        return Err(error);
    }
    let since: i64 = begun.try_get(0).map_err(before)?;
    let now: i64 = begun.try_get(1).map_err(before)?;
    let age = Duration::from_micros(u64::try_from(now.saturating_sub(since)).unwrap_or_default());
    let max_ttl = MaxTtlRecord::of(settings);
    if let Some(record) = &max_ttl {
        (_, facts.max_ttl) = record.compare(client).await.map_err(before)?;
    }
    let voter = server.voter();
    facts.identity = Some(voter.as_str().into());
    facts.uptime = Some(age);
    let identity = Arc::new(Identity::new(history.as_str(), sent, age).on_server(voter));
    let (backend, statements) = (server.backend, statements.of_history(history));
    let shedlock = None;
    Ok((Introduced { identity, statements, shedlock, max_ttl, backend, round_trip, follows_unended }, facts))
}

/// The counterpart for `ShedLock`'s table, with which no state of ours is stored.
async fn introduce_shedlock(
    settings: &Settings,
    client: &Client,
    layout: &shedlock::Layout,
    (server, sent, round_trip, mut facts): (Server, Moment, Duration, Facts),
    predecessor: &mut Option<Backend>,
) -> Result<(Introduced, Facts), NodeError> {
    let table = find_table(client, &layout.table).await?;
    if table.is_some() {
        check_owners(client, &server, table).await?;
    }
    let prepared = layout.prepare(client, table, settings.seams.clock(), &mut facts).await.map_err(unsent)?;
    if let Some(gone) = *predecessor
        && !gone.end(client, settings).await?
    {
        let words = "the backend of the previous connection does not terminate, and the table has no tombstones \
                     against its late statements: end it by `pg_terminate_backend`";
        return Err(NodeError::Unreachable { reason: words.into() });
    }
    let (identity, age) = (server.voter(), server.data_age());
    facts.identity = Some(identity.as_str().into());
    facts.uptime = Some(age);
    facts.hints = Some(false);
    let (identity, statements) = (Arc::new(Identity::new(identity, sent, age)), Statements::none());
    let (backend, shedlock) = (server.backend, Some(prepared));
    let (max_ttl, follows_unended) = (None, false);
    Ok((Introduced { identity, statements, shedlock, max_ttl, backend, round_trip, follows_unended }, facts))
}

/// Session settings. Every lookup is by key: a plan with a sequential or a bitmap scan would read every dead row version
/// again and again. Rows that a policy hides are an error: locks would seem free.
fn setting_up(limit: Duration) -> String {
    format!(
        "{}; SET idle_in_transaction_session_timeout = {};
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
         SET default_transaction_deferrable = off; SET client_min_messages = error; SET plan_cache_mode = force_generic_plan;
         SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
         SET DateStyle = ISO; SET bytea_output = hex; SET search_path = pg_catalog; SET quote_all_identifiers = off;
         SET row_security = off;
         SELECT set_config('synchronous_commit', 'on', false)
            WHERE current_setting('synchronous_commit') <> 'remote_apply';
         SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
        timeouts(limit),
        timeout(limit)
    )
}

impl Settings {
    /// Refuses a server whose timeline is earlier than one seen here: a primary that was replaced.
    fn check_timeline(&self, server: &Server) -> Result<(), NodeError> {
        let Some(timeline) =
            server.timeline.as_deref().and_then(|digits| u32::from_str_radix(digits, 16).ok())
        else {
            return Ok(());
        };
        let mut timelines = self.timelines.lock();
        let latest = timelines.entry(server.system).or_insert(timeline);
        if timeline < *latest {
            let words = format!(
                "it is a primary that was replaced: its timeline is {timeline}, and {latest} was seen here before; stop it, \
                 or make it a standby of its successor"
            );
            return Err(unfit(NodeErrorKind::WrongServer, words));
        }
        *latest = timeline;
        Ok(())
    }
}

/// Maps an error from before the first request.
fn before(error: Error) -> NodeError {
    unsent(of_statement(error))
}

fn unsent(error: NodeError) -> NodeError {
    if let NodeError::Disconnected { reason } = error { NodeError::Unreachable { reason } } else { error }
}

#[cfg(test)]
mod tests {
    use quorlock::node::Seams;

    use super::server::tests::server;
    use super::*;
    use crate::url::DatabaseUrl;

    #[test]
    fn a_replaced_primary_is_refused_once_its_successor_was_seen() {
        let url = DatabaseUrl::parse("postgres://db/x").unwrap();
        let settings = Settings::new(url, &Seams::default());
        let successor = Server { timeline: Some("0000000B".into()), ..server() };
        assert!(settings.check_timeline(&server()).is_ok());
        assert!(settings.check_timeline(&successor).is_ok());
        assert!(settings.check_timeline(&server()).is_err());
        assert!(settings.check_timeline(&Server { system: 3, ..server() }).is_ok(), "another cluster");
    }
}
