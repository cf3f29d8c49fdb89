//! `ShedLock`'s table: `mysql://host/database?layout=shedlock`.
//!
//! The table belongs to `ShedLock`, whose clients lock with the same columns by the clock of the server
//! (`usingDbTime()`): this program neither creates nor alters it. It has no columns for fencing tokens, a
//! queue or tombstones. Late requests are refused in two other ways: a new connection ends the previous one,
//! and cancelled attempts are remembered in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Moment, Token, printable};
use quorlock::{
    node::facts::{Facts, OtherClients},
    node::{Capabilities, Capability, Identity, NodeError, Order, Seams},
};

use crate::address::Layout;
use crate::connection::{Connection, ResultSets};
use crate::error::Failure;
use crate::server::Server;
use crate::table::{number, text};

mod requests;
mod shape;

use shape::{Shape, try_rights};

/// The row that `doctor` uses; it is not deleted.
pub(crate) const CHECKED: &str = "quorlock-doctor";
/// A shorter column might truncate the part that distinguishes attempts.
const LEAST_LOCKED_BY: u64 = 64;
/// How long to wait for the end of the previous connection.
const PREDECESSOR_LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable().shared_with_others()
}

/// The previous connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Predecessor {
    /// The name of a user-level lock that it holds while it lives, by which its successor finds it.
    name: Option<String>,
    /// When its server had started. Servers report that in whole seconds.
    started: Option<u64>,
}

/// The table as a connection has found it, and the cancelled attempts.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    name: Arc<str>,
    /// The maximum length of a name, and of a holder, in characters.
    longest_name: u64,
    longest_holder: u64,
}

/// Cancelled attempts, and until when each is remembered.
pub(crate) type Tombstones = HashMap<Token, Moment>;

/// The result of checking the table.
pub(crate) struct Introduced {
    pub(crate) table: Table,
    pub(crate) identity: Identity,
}

/// Checks the table, and ends the previous connection.
///
/// # Errors
///
/// What is wrong with the table, with the statement that fixes it.
pub(crate) async fn introduce(
    connection: &mut Connection,
    layout: &Layout,
    server: &Server,
    (seams, sent): (&Seams, Moment),
    predecessor: &mut Predecessor,
    facts: &mut Facts,
) -> Result<Introduced, NodeError> {
    let shape = Shape::read(connection, &layout.table).await?;
    shape.check(&layout.table)?;
    try_rights(connection, &layout.table, server).await?;
    // A column of the type TIMESTAMP is read and written in the time zone of the session. ShedLock's clients
    // use that of the server.
    run(connection, "SET SESSION time_zone = @@GLOBAL.time_zone".to_owned()).await?;
    facts.other_clients = Some(other_clients(connection, &layout.table).await?);
    end(connection, predecessor, seams).await?;
    let mut id = format!("{} {} {}", server.id(), layout.table, shape.created);
    let mut age = Duration::from_secs(shape.age);
    if !server.durable() {
        let same = predecessor.started.filter(|started| server.is_start(*started));
        let started = *predecessor.started.insert(same.unwrap_or_else(|| server.started()));
        id = format!("{id} {started}");
        age = age.min(server.uptime);
    }
    let identity = Identity::new(id, sent, age);
    let table = Table {
        name: Arc::clone(&layout.table),
        longest_name: shape.longest_name,
        longest_holder: shape.longest_holder,
    };
    Ok(Introduced { table, identity })
}

/// Ends the previous connection and waits until it has ended: nothing sent over it is executed after that.
/// Then takes a name by which this connection's successor can find it.
async fn end(
    connection: &mut Connection,
    predecessor: &mut Predecessor,
    seams: &Seams,
) -> Result<(), NodeError> {
    let clock = seams.clock();
    if let Some(name) = &predecessor.name {
        let until = clock.now() + PREDECESSOR_LIMIT;
        while let Some(id) = one(connection, format!("SELECT IS_USED_LOCK('{name}')")).await? {
            if clock.now() >= until {
                let words = format!(
                    "the previous connection does not end, and the table has no tombstones against its late statements: \
                     run `KILL {id}`"
                );
                return Err(NodeError::Unreachable { reason: words.into() });
            }
            // It may have ended in the meantime.
            match connection.run(format!("KILL CONNECTION {id}")).await {
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(lost) => return Err(lost.before_anything_changed()),
            }
            clock.sleep_until(clock.now() + PREDECESSOR_LIMIT / 50).await;
        }
    }
    let name = format!("quorlock:{:032x}", seams.entropy().next_u128());
    if one(connection, format!("SELECT GET_LOCK('{name}', 0)")).await? != Some(1) {
        let reason = "it refused a name for the connection (`GET_LOCK`)".into();
        return Err(NodeError::Unreachable { reason });
    }
    predecessor.name = Some(name);
    Ok(())
}

async fn run(connection: &mut Connection, statements: String) -> Result<ResultSets, NodeError> {
    connection.run(statements).await.map_err(Failure::before_anything_changed)
}

/// Returns the number that the statement selects; `None` for NULL.
async fn one(connection: &mut Connection, statement: String) -> Result<Option<u64>, NodeError> {
    let sets = run(connection, statement).await?;
    Ok(sets.first().and_then(|set| set.first()).and_then(|row| number(row, 0)))
}

/// Looks for a row that was locked by a clock ahead of the server's. No row shows a clock that is behind.
async fn other_clients(connection: &mut Connection, table: &str) -> Result<OtherClients, NodeError> {
    const WHO: &str = "is a table of ShedLock, whose providers use the clocks of their hosts unless they are built with \
                       usingDbTime()";
    const CURE: &str = "make sure that every JdbcTemplateLockProvider there is built with usingDbTime(), that no other kind of \
                        provider uses the table, and that no client sets a time zone of its own for its sessions";
    let statement = format!(
        "SELECT name, locked_by, TIMESTAMPDIFF(MICROSECOND, {NOW}, locked_at) DIV 1000 FROM {table} \
         WHERE locked_at > TIMESTAMPADD(SECOND, 1, {NOW}) ORDER BY locked_at DESC LIMIT 1"
    );
    let sets = run(connection, statement).await?;
    let mut others = OtherClients::new(WHO, CURE);
    if let Some(row) = sets.first().and_then(|set| set.first())
        && let (Some(name), Some(holder), Some(ahead)) = (text(row, 0), text(row, 1), number(row, 2))
    {
        let ahead = quorlock::duration::format(Duration::from_millis(ahead));
        let (name, holder) = (printable(&name).cut(80), printable(&holder).cut(80));
        let clock = format!(
            "the lock `{name}` was taken by `{holder}` at a time that is {ahead} ahead of the server's clock"
        );
        others.clock = Some(clock.into());
    }
    Ok(others)
}

/// The server's clock as `ShedLock` writes it.
const NOW: &str = "UTC_TIMESTAMP(6)";
