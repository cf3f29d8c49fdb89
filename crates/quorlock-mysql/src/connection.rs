//! One connection: sends packets of statements one after the other, each within a timeout.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use quorlock::{
    node::{NodeError, Reason},
    runtime::{Clock, within},
};

use crate::error::{Trouble, not_connected};

/// A connection to the server. After [`Trouble::Lost`] it must be dropped, as a late answer may still arrive.
pub(crate) struct Connection {
    conn: Conn,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

/// The results of a packet: the rows of each statement.
pub(crate) type ResultSets = Vec<Vec<Row>>;

impl Connection {
    /// Connects and logs in within `limit`, which is then also the timeout of each packet.
    pub(crate) async fn open(
        options: OptsBuilder,
        clock: &Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Connection, NodeError> {
        let opened = within(&**clock, limit, Conn::new(options)).await;
        let late = || Reason::new(format!("it did not accept the connection within {limit:?}"));
        let conn = opened.ok_or_else(|| NodeError::Unreachable { reason: late() })?;
        Ok(Connection { conn: conn.map_err(not_connected)?, clock: Arc::clone(clock), limit })
    }

    /// Sets the timeout of each later packet.
    pub(crate) fn set_timeout(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends the statements in one packet, which the server executes in order.
    pub(crate) async fn run(&mut self, statements: String) -> Result<ResultSets, Trouble> {
        let (limit, clock) = (self.limit, Arc::clone(&self.clock));
        let asked = async {
            let mut result = self.conn.query_iter(statements).await?;
            let mut sets = Vec::new();
            while !result.is_empty() {
                sets.push(result.collect().await?);
            }
            // An error after the first statement is reported only when the next result is requested.
            result.drop_result().await?;
            Ok::<ResultSets, mysql_async::Error>(sets)
        };
        match within(&*clock, limit, asked).await {
            Some(answer) => answer.map_err(Trouble::from),
            None => Err(Trouble::Lost(Reason::new(format!("it did not answer within {limit:?}")))),
        }
    }

    /// Runs one statement. Returns the number of changed rows.
    pub(crate) async fn change(&mut self, statement: String) -> Result<u64, Trouble> {
        self.run(statement).await?;
        Ok(self.conn.affected_rows())
    }

    /// Closes the connection properly, so that the server does not log an aborted one.
    pub(crate) async fn close(self) {
        drop(within(&*self.clock, self.limit, self.conn.disconnect()).await);
    }
}
