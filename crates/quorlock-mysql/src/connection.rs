//! One connection: sends packets of statements one after the other, each within a timeout.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorlock::{
    node::{NodeError, Reason, Seams},
    runtime::{Clock, within},
};

use crate::address::Database;
use crate::error::{Failure, ServerError};
use crate::login::log_in;
use crate::wire::{FIELD, Fields, Wire, broken};

/// A connection to the server. After [`Failure::Lost`] it must be dropped, as a late answer may still arrive.
pub(crate) struct Connection {
    wire: Wire,
    clock: Arc<dyn Clock>,
    limit: Duration,
    /// The number of rows that the last statement without a result has changed.
    changed: u64,
}

/// A row of a result.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Arc<[String]>,
    values: Vec<Option<Box<[u8]>>>,
}

impl Row {
    /// Returns the value in this column. `None` if it is NULL, or there is no such column.
    pub(crate) fn get(&self, column: usize) -> Option<&[u8]> {
        self.values.get(column)?.as_deref()
    }

    /// Returns the place of the column with one of these names.
    pub(crate) fn column(&self, names: &[&str]) -> Option<usize> {
        self.columns.iter().position(|column| names.contains(&&**column))
    }
}

/// The results of a packet: the rows of each statement.
pub(crate) type ResultSets = Vec<Vec<Row>>;

/// The maximum number of columns. The widest result that we read describes replicas, with 60.
const MOST_COLUMNS: u64 = 256;
/// The maximum number of results. The longest packet of statements has three for each key of 128 requests.
const MOST_RESULTS: usize = 16_384;
/// The bit in the server's status: another result follows.
const MORE_RESULTS: u64 = 8;
const QUERY: &[u8] = &[3];

/// The error of a login that has not ended within `limit`.
fn late(accepted: &AtomicBool, limit: Duration) -> NodeError {
    if accepted.load(Ordering::Relaxed) {
        let likely = "it hangs, or is a server of another kind; the port of MariaDB and MySQL is 3306";
        NodeError::Unresponsive { reason: format!("the login did not end within {limit:?}: {likely}").into() }
    } else {
        NodeError::Unreachable { reason: format!("it did not accept the connection within {limit:?}").into() }
    }
}

impl Connection {
    /// Connects and logs in within `limit`, which is then also the timeout of each packet.
    pub(crate) async fn open(
        database: &Database,
        seams: &Seams,
        limit: Duration,
    ) -> Result<Connection, NodeError> {
        let clock = Arc::clone(seams.clock());
        let accepted = AtomicBool::new(false);
        let opened = within(&*clock, limit, log_in(database, seams, &accepted)).await;
        let wire = opened.unwrap_or_else(|| Err(late(&accepted, limit)))?;
        Ok(Connection { wire, clock, limit, changed: 0 })
    }

    /// Sets the timeout of each later packet.
    pub(crate) fn set_timeout(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends the statements in one packet, which the server executes in order.
    pub(crate) async fn run(&mut self, statements: String) -> Result<ResultSets, Failure> {
        let (limit, clock) = (self.limit, Arc::clone(&self.clock));
        let asked = async {
            self.wire.ask(&[QUERY, statements.as_bytes()].concat()).await?;
            let mut sets = Vec::new();
            while sets.len() < MOST_RESULTS {
                let (rows, more) = self.result().await?;
                sets.push(rows);
                if !more {
                    return Ok(sets);
                }
            }
            Err(broken(format!("it sent more than {MOST_RESULTS} results")).into())
        };
        let late = || Failure::Lost(Reason::new(format!("it did not answer within {limit:?}")));
        within(&*clock, limit, asked).await.unwrap_or_else(|| Err(late()))
    }

    /// Reads the result of a statement, and whether another one follows.
    async fn result(&mut self) -> Result<(Vec<Row>, bool), Failure> {
        let packet = self.wire.read().await?;
        let mut fields = Fields(&packet);
        match packet.first() {
            Some(0) => {
                fields.bytes(1)?;
                self.changed = fields.length()?.unwrap_or_default();
                fields.length()?;
                return Ok((Vec::new(), fields.number(2)? & MORE_RESULTS > 0));
            }
            Some(0xff) => return Err(Failure::refused(ServerError::read(&packet)?)),
            Some(0xfb) => return Err(broken("it asks for a file of this machine").into()),
            _ => {}
        }
        // Only now is anything reserved.
        let count = fields.length()?.unwrap_or_default();
        if !(1..=MOST_COLUMNS).contains(&count) {
            return Err(
                broken(format!("it announced {count} columns, and the maximum is {MOST_COLUMNS}")).into()
            );
        }
        let mut columns = Vec::new();
        for _ in 0..count {
            let packet = self.wire.read().await?;
            columns.push(column_name(&packet)?);
        }
        let columns: Arc<[String]> = columns.into();
        if end(&self.wire.read().await?).is_none() {
            return Err(broken("it sent more columns than it announced").into());
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.wire.read().await?;
            if let Some(status) = end(&packet) {
                return Ok((rows, status? & MORE_RESULTS > 0));
            }
            if packet.first() == Some(&0xff) {
                return Err(Failure::refused(ServerError::read(&packet)?));
            }
            self.wire.weigh(FIELD * columns.len())?;
            let mut fields = Fields(&packet);
            let mut values = Vec::with_capacity(columns.len());
            for _ in 0..columns.len() {
                values.push(fields.value()?.map(Box::from));
            }
            rows.push(Row { columns: Arc::clone(&columns), values });
        }
    }

    /// Runs one statement. Returns the number of changed rows.
    pub(crate) async fn change(&mut self, statement: String) -> Result<u64, Failure> {
        self.run(statement).await?;
        Ok(self.changed)
    }

    /// Closes the connection properly, so that the server does not log an aborted one.
    pub(crate) async fn close(self) {
        within(&*self.clock, self.limit, self.wire.close()).await;
    }
}

/// Returns the server's status if this packet ends columns or rows. A row may begin with the same byte, and is
/// longer then.
fn end(packet: &[u8]) -> Option<io::Result<u64>> {
    match packet {
        [0xfe, rest @ ..] if packet.len() < 9 => {
            let mut fields = Fields(rest);
            Some(fields.bytes(2).and_then(|_| fields.number(2)))
        }
        _ => None,
    }
}

/// Returns the name from the definition of a column: the fifth of its texts.
fn column_name(packet: &[u8]) -> io::Result<String> {
    let mut fields = Fields(packet);
    for _ in 0..4 {
        fields.value()?;
    }
    Ok(String::from_utf8_lossy(fields.value()?.unwrap_or_default()).into_owned())
}
