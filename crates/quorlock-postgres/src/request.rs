//! Maps requests to statements, and rows to votes.

use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{
    Claim, FenceHint, FencingToken, MOST_PLACES, Mode, Token, WaiterId, entry_context, fence_counter,
    turn_key,
};
use quorlock::{
    lock::{QueueListing, QueuedWaiter},
    node::{
        Capabilities, Capability, Expiry, Hints, Holding, Identity, NodeError, NodeErrorKind, Order, Queued,
        Request, Response, Vote,
    },
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::RULES;
use crate::error::{failed, of_statement};

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default()
        .with(Capability::Shared)
        .with(Capability::Several)
        .with(Capability::Queue)
        .with(Capability::Transfer)
        .in_order(Order::PerKey)
        .hinting(Hints::Removal)
        .hinting_holders()
        .durable()
}

pub(crate) type Parameter = Box<dyn ToSql + Sync + Send>;

/// A function of the schema; the index into [`FUNCTIONS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
    Acquire,
    Renew,
    Transfer,
    Release,
    Cancel,
    WriteBack,
    Inspect,
    AcquireShared,
    RenewShared,
    ReleaseShared,
    CancelShared,
    Intend,
    Desist,
    Enqueue,
    LeaveQueue,
    ListWaiters,
}

/// The names and parameter types of the functions, in the order of [`Function`].
const FUNCTIONS: [(&str, &[Type]); 16] = [
    ("acquire", &[Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8]),
    ("renew", &[Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA, Type::INT8, Type::INT8]),
    ("transfer", &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8]),
    ("release", &[Type::BYTEA_ARRAY, Type::BYTEA]),
    ("cancel", &[Type::BYTEA_ARRAY, Type::BYTEA, Type::INT8]),
    ("write_back", &[Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA, Type::INT8]),
    ("inspect", &[Type::BYTEA, Type::BYTEA]),
    ("acquire_shared", &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8]),
    ("renew_shared", &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8, Type::INT8]),
    ("release_shared", &[Type::BYTEA, Type::BYTEA]),
    ("cancel_shared", &[Type::BYTEA, Type::BYTEA, Type::INT8]),
    ("intend", &[Type::BYTEA, Type::BYTEA, Type::INT8]),
    ("desist", &[Type::BYTEA, Type::BYTEA]),
    (
        "enqueue",
        &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::TEXT, Type::INT8, Type::INT8, Type::INT8, Type::BYTEA],
    ),
    ("leave_queue", &[Type::BYTEA, Type::BYTEA]),
    ("list_waiters", &[Type::BYTEA]),
];

/// The name in the note and the file of the table of locks, as they are now; `NULL` if that row was restored. So a
/// connection that was open when the data were replaced notices with its next answer. The file is of the moment after the
/// request, which may have waited for the replacement; the name is of the moment before.
pub(crate) const NOTE: &str =
    "(SELECT CASE WHEN h.writer = h.xmin THEN h.name || ' ' || pg_relation_filenode('quorlock.locks') END
    FROM quorlock.history h WHERE h.one)";

/// The functions, prepared on one connection.
pub(crate) struct Statements {
    prepared: Vec<Statement>,
    /// The channel on which this connection is notified of its turns in queues.
    channel: String,
    /// The name of the history for which the connection was made.
    history: String,
}

impl Statements {
    /// No statements: for tables of other programs.
    pub(crate) fn none() -> Statements {
        Statements { prepared: Vec::new(), channel: String::new(), history: String::new() }
    }

    /// Prepares all statements in one round trip.
    pub(crate) async fn prepare(client: &Client, channel: String) -> Result<Statements, Error> {
        let prepared = FUNCTIONS.iter().map(|(name, types)| {
            let places: Vec<_> = (1..=types.len()).map(|place| format!("${place}")).collect();
            let text = format!(
                "SELECT vote, number, holder, remaining, place, readers, waited, {NOTE} FROM quorlock.{RULES}{name}({})",
                places.join(", ")
            );
            async move { client.prepare_typed(&text, types).await }
        });
        let prepared = futures::future::try_join_all(prepared).await?;
        Ok(Statements { prepared, channel, history: String::new() })
    }

    /// Sets the name of the history that the connection was made for.
    pub(crate) fn of_history(self, history: String) -> Statements {
        Statements { history, ..self }
    }

    /// Whether this answer is of that history.
    pub(crate) fn know(&self, row: &Row) -> bool {
        row.try_get::<_, Option<&str>>(7).is_ok_and(|name| name == Some(&*self.history))
    }

    fn of(&self, function: Function) -> Option<&Statement> {
        self.prepared.get(function as usize)
    }
}

/// Returns the statement and the parameters of a request.
///
/// # Errors
///
/// If the node does not support the request.
pub(crate) fn statement<'a>(
    request: &Request,
    statements: &'a Statements,
) -> Result<(&'a Statement, Vec<Parameter>), NodeError> {
    capabilities().check(request)?;
    let (function, parameters) = called(request, &statements.channel).ok_or_else(unknown)?;
    Ok((statements.of(function).ok_or_else(unknown)?, parameters))
}

fn unknown() -> NodeError {
    failed(NodeErrorKind::Unsupported, "a PostgreSQL node does not know this request")
}

fn called(request: &Request, channel: &str) -> Option<(Function, Vec<Parameter>)> {
    let drawn = |hint: &Option<FenceHint>| {
        let number = hint.map(|hint| i64::from(hint.hint));
        (Box::new(number) as Parameter, Box::new(hint.map_or(0, |hint| micros(hint.lead))) as Parameter)
    };
    Some(match request {
        Request::Acquire { claim, ttl, fence_hint } => {
            let (hint, lead) = drawn(fence_hint);
            let function = by_mode(claim, Function::Acquire, Function::AcquireShared);
            (function, vec![keys_of(claim), counters_of(claim), token(claim), time(*ttl), hint, lead])
        }
        Request::Renew { claim, ttl, fencing_token } => {
            let number = Box::new(fencing_token.map(i64::from));
            let function = by_mode(claim, Function::Renew, Function::RenewShared);
            (function, vec![keys_of(claim), counters_of(claim), token(claim), time(*ttl), number])
        }
        Request::Transfer { from, to, ttl, fence_hint } => {
            let (hint, lead) = drawn(fence_hint);
            let counter = bytes(&to.fence_counter());
            (
                Function::Transfer,
                vec![bytes(to.key()), counter, token(from), token(to), time(*ttl), hint, lead],
            )
        }
        Request::Release { claim } => {
            (by_mode(claim, Function::Release, Function::ReleaseShared), vec![keys_of(claim), token(claim)])
        }
        Request::Cancel { claim, linger } => {
            let function = by_mode(claim, Function::Cancel, Function::CancelShared);
            (function, vec![keys_of(claim), token(claim), time(*linger)])
        }
        Request::WriteBack { claim, fencing_token } => {
            let (keys, counters) = (all_keys_of(claim), all_counters_of(claim));
            (Function::WriteBack, vec![keys, counters, token(claim), Box::new(i64::from(*fencing_token))])
        }
        Request::Inspect { key, prefix_len } => {
            let counter = fence_counter(key.get(..*prefix_len).unwrap_or_default(), key);
            (Function::Inspect, vec![bytes(key), bytes(&counter)])
        }
        Request::AnnounceWriter { key, waiter, patience } => {
            (Function::Intend, vec![bytes(key), bytes(&waiter.to_string()), time(*patience)])
        }
        Request::WithdrawWriter { key, waiter } => {
            (Function::Desist, vec![bytes(key), bytes(&waiter.to_string())])
        }
        // Offers are not supported, so the field that accepts them is unused.
        Request::Enqueue { key, waiter, elapsed, patience, turn, context, .. } => {
            let turn_key = turn_key(key, *waiter);
            let [elapsed, patience, turn] = [elapsed, patience, turn].map(|length| time(*length));
            let (name, channel) = (bytes(&waiter.to_string()), Box::new(channel.to_owned()));
            (
                Function::Enqueue,
                vec![bytes(key), name, bytes(&turn_key), channel, elapsed, patience, turn, bytes(context)],
            )
        }
        Request::LeaveQueue { key, waiter } => {
            (Function::LeaveQueue, vec![bytes(key), bytes(&waiter.to_string())])
        }
        Request::ListWaiters { key } => (Function::ListWaiters, vec![bytes(key)]),
        // Refused above, or newer than this node.
        Request::Offer { .. } | Request::LogHold { .. } | Request::ReadLog { .. } | _ => return None,
    })
}

fn by_mode(claim: &Claim, exclusive: Function, shared: Function) -> Function {
    if claim.mode() == Mode::Shared { shared } else { exclusive }
}

/// One key for a shared claim, otherwise all keys.
fn keys_of(claim: &Claim) -> Parameter {
    if claim.mode() == Mode::Shared { bytes(claim.key()) } else { all_keys_of(claim) }
}

fn all_keys_of(claim: &Claim) -> Parameter {
    Box::new(claim.keys().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>())
}

/// The counters of these keys.
fn counters_of(claim: &Claim) -> Parameter {
    if claim.mode() == Mode::Shared { bytes(&claim.fence_counter()) } else { all_counters_of(claim) }
}

fn all_counters_of(claim: &Claim) -> Parameter {
    let counters = claim.siblings().map(|[.., counter]| counter.to_string().into_bytes());
    Box::new(counters.collect::<Vec<_>>())
}

fn token(claim: &Claim) -> Parameter {
    Box::new(claim.token().as_bytes().to_vec())
}

fn bytes(text: &str) -> Parameter {
    Box::new(text.as_bytes().to_vec())
}

fn time(time: Duration) -> Parameter {
    Box::new(micros(time))
}

/// Rounds up, so that a TTL is never shortened. At most a hundred years, so that no sum overflows.
pub(crate) fn micros(time: Duration) -> i64 {
    const MOST: i64 = 100 * 366 * 24 * 3600 * 1_000_000;
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(MOST).min(MOST)
}

/// Converts a row to a response.
///
/// # Errors
///
/// If the row cannot be read.
pub(crate) fn response(
    request: &Request,
    row: &Row,
    identity: &Arc<Identity>,
) -> Result<Response, NodeError> {
    let number: Option<i64> = row.try_get(1).map_err(of_statement)?;
    let number = number.and_then(|number| u64::try_from(number).ok()).and_then(FencingToken::new);
    let several = request_claim(request).is_some_and(Claim::is_several);
    // Without fencing the response omits the counter.
    let fenced = if let Request::Acquire { fence_hint, .. } | Request::Transfer { fence_hint, .. } = request {
        fence_hint.is_some()
    } else {
        matches!(request, Request::Inspect { .. } | Request::WriteBack { .. })
    };
    let vote = match row.try_get::<_, i32>(0).map_err(of_statement)? {
        0 => Vote::Granted,
        1 => Vote::Free,
        2 => held(row, several)?,
        3 => Vote::NotYourTurn,
        4 => Vote::Restored,
        5 => Vote::FenceAhead,
        6 => Vote::ReleasedContended,
        7 => Vote::Notified,
        8 => queued(row)?,
        9 => listed(row)?,
        other => {
            let reason = format!("the schema `quorlock` answered with the unknown vote {other}").into();
            return Err(NodeError::UnexpectedReply { reason });
        }
    };
    // As a rule it is the number in the token.
    let inspected = matches!(request, Request::Inspect { .. });
    let in_token = if let Vote::Held(holding) = &vote { holding.token.number() } else { None };
    let number = number.or(in_token.filter(|_| inspected));
    Ok(Response::new(vote, Arc::clone(identity)).with_fencing_token(number.filter(|_| fenced)))
}

/// Reads a position in the queue; the first two waiters also learn the holder.
fn queued(row: &Row) -> Result<Vote, NodeError> {
    let ahead: Option<i64> = row.try_get(1).map_err(of_statement)?;
    let ahead = ahead.and_then(|ahead| u32::try_from(ahead).ok()).unwrap_or(MOST_PLACES).min(MOST_PLACES);
    let holder: Option<Vec<u8>> = row.try_get(2).map_err(of_statement)?;
    let holding = holder.map(|_| holding(row)).transpose()?;
    Ok(Queued::new(ahead, holding).into())
}

/// At most this many waiters are listed.
const MOST_LISTED: usize = 100;

/// Reads the waiters of a queue: an array of all names followed by all contexts.
fn listed(row: &Row) -> Result<Vote, NodeError> {
    let words: Option<Vec<Vec<u8>>> = row.try_get(5).map_err(of_statement)?;
    let waited: Option<Vec<i64>> = row.try_get(6).map_err(of_statement)?;
    let (words, waited) = (words.unwrap_or_default(), waited.unwrap_or_default());
    let (names, contexts) = words.split_at(words.len() / 2);
    let waiters = names.iter().zip(contexts).zip(&waited).filter_map(|((name, context), waited)| {
        let waited = Duration::from_micros(u64::try_from(*waited).unwrap_or_default());
        let context = entry_context(&[b"1 ", &**context].concat());
        Some(QueuedWaiter::new(WaiterId::parse(name)?, waited, context))
    });
    Ok(QueueListing::new(waiters.take(MOST_LISTED).collect(), names.len() > MOST_LISTED).into())
}

fn held(row: &Row, several: bool) -> Result<Vote, NodeError> {
    let mut holding = holding(row)?;
    if several {
        let place: Option<Vec<u8>> = row.try_get(4).map_err(of_statement)?;
        holding = holding.at(String::from_utf8_lossy(&place.unwrap_or_default()).into());
    }
    Ok(holding.into())
}

fn holding(row: &Row) -> Result<Holding, NodeError> {
    let holder: Vec<u8> = row.try_get(2).map_err(of_statement)?;
    let remaining: Option<i64> = row.try_get(3).map_err(of_statement)?;
    let expiry = remaining.map_or(Expiry::Never, |micros| {
        Expiry::In(Duration::from_micros(u64::try_from(micros).unwrap_or_default()))
    });
    let readers: Option<Vec<Vec<u8>>> = row.try_get(5).map_err(of_statement)?;
    let readers = readers.unwrap_or_default().iter().map(|token| Token::found(token)).collect();
    Ok(Holding::new(Token::found(&holder), expiry).with_readers(readers))
}

fn request_claim(request: &Request) -> Option<&Claim> {
    if let Request::Acquire { claim, .. } | Request::Renew { claim, .. } | Request::WriteBack { claim, .. } =
        request
    {
        Some(claim)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use quorlock::protocol::SHARED_MARKER;

    use super::*;

    #[test]
    fn a_time_is_never_rounded_down() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_millis(3)), 3000);
        assert!(micros(Duration::MAX) > 0);
    }

    #[test]
    fn the_schema_has_every_function_and_the_marker_of_readers() {
        for (name, _) in FUNCTIONS {
            assert!(crate::SCHEMA.contains(&format!("CREATE FUNCTION rules.{name}(")), "{name}");
        }
        assert_eq!(
            FUNCTIONS.get(Function::ListWaiters as usize).map(|(name, _)| *name),
            Some("list_waiters")
        );
        assert!(crate::SCHEMA.contains(&format!("own text := '{RULES}';")));
        assert!(crate::SCHEMA.contains(&format!("'{SHARED_MARKER}'")));
        let max = FencingToken::MAX.get().to_string();
        assert!(crate::SCHEMA.contains(&max), "the largest number");
    }
}
