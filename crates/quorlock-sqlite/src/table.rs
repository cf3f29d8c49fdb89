//! The records of locks, within one transaction. Each is one row, as text.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::{Outcome, Record, Records};
use quorlock::node::{Reason, Request};
use quorlock::protocol::FencingToken;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::failure::Failure;
use crate::mark::Marks;

/// The records, within one transaction.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) database: &'a Connection,
    pub(crate) marks: &'a Marks,
    /// The mark of this process, stored with each grant.
    pub(crate) mark: Option<&'a Arc<str>>,
    /// The boot clock, in microseconds.
    pub(crate) now: u64,
    /// The calendar clock.
    pub(crate) wall: Duration,
    /// No fencing token drawn before this boot is larger.
    pub(crate) floor: FencingToken,
    /// Whether what is stored is of an earlier boot, which only fencing counters outlive.
    pub(crate) is_void: bool,
    /// Whether the transaction may write.
    pub(crate) may_write: bool,
    /// The largest number to which a counter was raised.
    pub(crate) largest: FencingToken,
}

/// The largest integer in SQL.
const LAST: u64 = u64::MAX / 2;
/// How many rows one request examines for whether they have expired: more than it adds.
const SWEPT: u32 = 4;

impl Table<'_> {
    /// Applies the request.
    pub(crate) fn apply(&mut self, request: &Request) -> Result<Outcome, Failure> {
        let records = Records::at(self.now).with_wall(self.wall).with_floor(self.floor);
        let mut records = records.with_mark(self.mark.cloned()).without_queues();
        for key in Records::needed_for(request) {
            let record = self.read(&key)?;
            records.add(key, None, record);
        }
        let outcome = records.apply(request)?;
        // What an inspection finds to tidy up is left to a request that writes.
        if matches!(request, Request::Inspect { .. }) {
            return Ok(outcome);
        }
        let changes = records.changes();
        if !changes.is_empty() {
            if !self.may_write {
                return Err(Failure::MustWrite);
            }
            self.sweep()?;
        }
        for change in changes {
            self.write(change.key, change.record)?;
            // A counter that another program has put too high changes nothing here.
            self.largest =
                FencingToken::new(change.record.counter).unwrap_or(FencingToken::ZERO).max(self.largest);
        }
        Ok(outcome)
    }

    /// Returns the record as it is now.
    pub(crate) fn record(&self, key: &str) -> Result<Record, Failure> {
        let record = self.read(key)?.map_err(|reason| Failure::Wrong(reason.to_string()))?;
        Ok(record.at(self.now))
    }

    pub(crate) fn is_gone(&self, mark: Option<&str>) -> bool {
        mark.is_some_and(|mark| Some(mark) != self.mark.map(|own| &**own) && self.marks.is_gone(mark))
    }

    /// Returns the record without the marks of crashed processes; or, if the row is none, why.
    fn read(&self, key: &str) -> Result<Result<Record, Reason>, Failure> {
        let mut statement = self.database.prepare_cached("SELECT record FROM locks WHERE key = ?1")?;
        let text: Option<String> = statement.query_row([key], |row| row.get(0)).optional()?;
        let record: Option<Record> =
            text.map_or_else(|| Some(Record::default()), |text| Record::decode(text.as_bytes()));
        let record = record.ok_or_else(|| Reason::new("the row of the key does not hold a lock"));
        Ok(record.map(|record| match record {
            Record { counter, .. } if self.is_void => Record { counter, ..Record::default() },
            record => record.without(|mark| self.is_gone(Some(mark))),
        }))
    }

    fn write(&self, key: &str, record: &Record) -> Result<(), Failure> {
        if *record == Record::default() {
            self.database.prepare_cached("DELETE FROM locks WHERE key = ?1")?.execute([key])?;
            return Ok(());
        }
        let sql = "INSERT OR REPLACE INTO locks (key, record, dead_at) VALUES (?1, ?2, ?3)";
        self.database.prepare_cached(sql)?.execute(params![key, record.encode(), record.ends().min(LAST)])?;
        Ok(())
    }

    /// Deletes expired records, and leaves what has not expired to a later sweep.
    fn sweep(&self) -> Result<(), Failure> {
        let sql = "SELECT key, record FROM locks WHERE dead_at <= ?1 ORDER BY dead_at LIMIT ?2";
        let mut due = self.database.prepare_cached(sql)?;
        let due = due.query_map(params![self.now, SWEPT], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let due: Vec<(String, String)> = due.collect::<Result<_, _>>()?;
        for (key, text) in due {
            // A row that is no record is left for the operator.
            let Some(record) = Record::decode(text.as_bytes()) else {
                let sql = "UPDATE locks SET dead_at = ?2 WHERE key = ?1";
                self.database.prepare_cached(sql)?.execute(params![key, LAST])?;
                continue;
            };
            self.write(&key, &record.at(self.now))?;
        }
        Ok(())
    }

    /// Forgets everything but the fencing counters, when the boot clock has started again.
    pub(crate) fn begin_boot(&self) -> Result<(), Failure> {
        let mut rows = self.database.prepare("SELECT key, record FROM locks")?;
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
        for (key, text) in rows {
            if let Some(Record { counter, .. }) = Record::decode(text.as_bytes()) {
                let record = Record { counter, ..Record::default() };
                self.write(&key, &record.at(self.now))?;
            }
        }
        Ok(())
    }
}
