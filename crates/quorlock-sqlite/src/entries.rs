//! The rows, within one transaction.
//!
//! Each lock, fencing counter and tombstone is a row under its name, all in one table. Readers and waiting
//! writers of a lock are further rows under the lock's name.

use std::time::Duration;

use quorlock::node::{Expiry, Holding, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Token, fence_counter};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::failure::{Failure, wrong};
use crate::mark::Marks;

/// A vote, and the fencing counter.
pub(crate) type Outcome = (Vote, Option<FencingToken>);

/// The kind of a row. The numbers are stored in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A token holds the lock.
    Lock = 1,
    /// A fencing counter.
    Counter = 2,
    /// A cancelled attempt.
    Tombstone = 3,
    /// A reader of a shared lock.
    Reader = 4,
    /// A writer that waits for the readers.
    Intent = 5,
}

/// The part of all rows except readers and intents.
const MAIN: i64 = 0;

impl What {
    fn part(self) -> i64 {
        match self {
            What::Lock | What::Counter | What::Tombstone => MAIN,
            What::Reader | What::Intent => self as i64,
        }
    }
}

/// A token that holds a lock or a share.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) token: Token,
    /// On the boot clock; `None` if it never expires.
    pub(crate) ends: Option<u64>,
    /// The fencing token.
    pub(crate) number: Option<FencingToken>,
    /// Whether another client was refused while this token held the lock.
    pub(crate) wanted: bool,
    /// The mark by which others detect that the holder has crashed.
    pub(crate) mark: Option<String>,
}

/// A fencing token that can be drawn.
#[derive(Clone, Copy)]
pub(crate) struct Drawing {
    pub(crate) current: FencingToken,
    pub(crate) next: FencingToken,
}

/// The rows, within one transaction.
#[derive(Debug)]
pub(crate) struct Entries<'a> {
    pub(crate) database: &'a Connection,
    pub(crate) marks: &'a Marks,
    /// The mark of this process, stored with each grant.
    pub(crate) mark: Option<&'a str>,
    /// The boot clock, in microseconds.
    pub(crate) now: u64,
    /// The calendar clock.
    pub(crate) wall: Duration,
    /// No fencing token drawn before this boot is larger.
    pub(crate) floor: FencingToken,
    /// Whether the transaction may write.
    pub(crate) may_write: bool,
    /// The largest number to which a counter was set.
    pub(crate) largest: FencingToken,
}

/// How many expired rows of each kind one request deletes.
const SWEPT: u32 = 4;

impl Entries<'_> {
    /// Returns the time after this duration, on the boot clock. Never rounds down.
    pub(crate) fn after(&self, time: Duration) -> u64 {
        let micros = time.as_nanos().div_ceil(1000);
        self.now.saturating_add(u64::try_from(micros).unwrap_or(u64::MAX)).min(LAST)
    }

    /// Returns the holder of the lock.
    pub(crate) fn held(&self, key: &str) -> Result<Option<Held>, Failure> {
        let found = self.main(key)?;
        let Some((what, held)) = found.filter(|(what, held)| self.lives(*what, held.ends)) else {
            return Ok(None);
        };
        if what != What::Lock as i64 {
            return Err(wrong("the key does not hold a lock"));
        }
        if self.is_gone(held.mark.as_deref()) {
            return Ok(None);
        }
        // Crashed readers no longer hold it.
        let crashed = held.token.is_marker() && self.all_readers_are_gone(key)?;
        Ok((!crashed).then_some(held))
    }

    /// Returns the row, even if it has expired.
    fn main(&self, key: &str) -> Result<Option<(i64, Held)>, Failure> {
        let sql = "SELECT token, ends, number, wanted, mark, what FROM entries \
                   WHERE key = ?1 AND part = 0 AND member = x''";
        let mut statement = self.database.prepare_cached(sql)?;
        Ok(statement.query_row([key], |row| Ok((row.get(5)?, held_of(row)?))).optional()?)
    }

    fn lives(&self, what: i64, ends: Option<u64>) -> bool {
        let now = if what == What::Counter as i64 { micros(self.wall) } else { self.now };
        ends.is_none_or(|ends| ends > now)
    }

    pub(crate) fn is_gone(&self, mark: Option<&str>) -> bool {
        mark.is_some_and(|mark| Some(mark) != self.mark && self.marks.is_gone(mark))
    }

    /// Whether there is a row under this name, of any kind.
    pub(crate) fn exists(&self, key: &str) -> Result<bool, Failure> {
        Ok(self.main(key)?.is_some_and(|(what, held)| self.lives(what, held.ends)))
    }

    pub(crate) fn is_cancelled(&self, claim: &Claim) -> Result<bool, Failure> {
        self.exists(&claim.tombstone())
    }

    pub(crate) fn holding(&self, held: &Held) -> Holding {
        let left = |ends: u64| Expiry::In(Duration::from_micros(ends.saturating_sub(self.now)));
        Holding::new(held.token.clone(), held.ends.map_or(Expiry::Never, left))
    }

    pub(crate) fn put(&mut self, what: What, key: &str, member: &[u8], held: &Held) -> Result<(), Failure> {
        self.writes()?;
        let sql = "INSERT OR REPLACE INTO entries (key, part, member, what, ends, token, number, wanted, mark) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let ends = held.ends.map(|ends| ends.min(LAST));
        self.database.prepare_cached(sql)?.execute(params![
            key,
            what.part(),
            member,
            what as i64,
            ends,
            held.token.as_bytes(),
            held.number.map(FencingToken::get),
            held.wanted,
            held.mark,
        ])?;
        Ok(())
    }

    /// Stores the claim's token and the number that was drawn for it, if any. Removes former readers.
    pub(crate) fn grant(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        number: Option<FencingToken>,
        wanted: bool,
    ) -> Result<(), Failure> {
        self.sweep()?;
        let ends = Some(self.after(ttl));
        let held = Held { ends, number, wanted, ..self.new_of(claim.token()) };
        self.put(What::Lock, claim.key(), b"", &held)
    }

    /// Returns the token as this process stores it.
    pub(crate) fn new_of(&self, token: &Token) -> Held {
        // A retained token is meant to outlive its holder.
        let mark = self.mark.filter(|_| !token.is_retained()).map(str::to_owned);
        Held { token: token.clone(), ends: None, number: None, wanted: false, mark }
    }

    /// Extends the life of the lock, and never shortens it.
    pub(crate) fn prolong(&mut self, key: &str, held: &Held, ttl: Duration) -> Result<(), Failure> {
        let wanted = self.after(ttl);
        if held.ends.is_some_and(|ends| ends >= wanted) {
            return Ok(());
        }
        self.put(What::Lock, key, b"", &Held { ends: Some(wanted), ..held.clone() })
    }

    pub(crate) fn remove(&mut self, key: &str) -> Result<(), Failure> {
        self.remove_part(MAIN, key, b"").map(drop)
    }

    pub(crate) fn remove_member(&mut self, what: What, key: &str, member: &[u8]) -> Result<bool, Failure> {
        self.remove_part(what.part(), key, member)
    }

    fn remove_part(&mut self, part: i64, key: &str, member: &[u8]) -> Result<bool, Failure> {
        self.writes()?;
        let sql = "DELETE FROM entries WHERE key = ?1 AND part = ?2 AND member = ?3";
        Ok(self.database.prepare_cached(sql)?.execute(params![key, part, member])? > 0)
    }

    /// Records that another client wants the lock.
    pub(crate) fn want(&mut self, key: &str, held: &Held) -> Result<(), Failure> {
        if held.wanted {
            return Ok(());
        }
        self.writes()?;
        let sql = "UPDATE entries SET wanted = 1 WHERE key = ?1 AND part = 0 AND member = x''";
        self.database.prepare_cached(sql)?.execute([key])?;
        Ok(())
    }

    pub(crate) fn bury(&mut self, claim: &Claim, linger: Duration) -> Result<(), Failure> {
        self.sweep()?;
        let ends = Some(self.after(linger));
        let nothing = Held { token: Token::found(b""), ends, number: None, wanted: false, mark: None };
        self.put(What::Tombstone, &claim.tombstone(), b"", &nothing)
    }

    /// Deletes some expired rows: at least as many as a request adds, if there are that many.
    fn sweep(&mut self) -> Result<(), Failure> {
        self.writes()?;
        let sql = "DELETE FROM entries WHERE (key, part, member) IN \
                   (SELECT key, part, member FROM entries WHERE what = ?1 AND ends <= ?2 ORDER BY ends LIMIT ?3)";
        for what in [What::Lock, What::Counter, What::Tombstone, What::Reader, What::Intent] {
            let now = if what == What::Counter { micros(self.wall) } else { self.now };
            self.database.prepare_cached(sql)?.execute(params![what as i64, now, SWEPT])?;
        }
        Ok(())
    }

    fn writes(&self) -> Result<(), Failure> {
        if self.may_write { Ok(()) } else { Err(Failure::MustWrite) }
    }
}

/// Readers and waiting writers.
impl Entries<'_> {
    /// Returns those that have not expired, ordered by expiry.
    pub(crate) fn members(&self, what: What, key: &str) -> Result<Vec<(Vec<u8>, Held)>, Failure> {
        let sql = "SELECT token, ends, number, wanted, mark, member FROM entries \
                   WHERE key = ?1 AND part = ?2 AND ends > ?3 ORDER BY ends, member";
        let mut statement = self.database.prepare_cached(sql)?;
        let rows = statement.query_map(params![key, what.part(), self.now], |row| {
            Ok((row.get::<_, Vec<u8>>(5)?, held_of(row)?))
        })?;
        let mut members = Vec::new();
        for row in rows {
            let (member, held) = row?;
            if !self.is_gone(held.mark.as_deref()) {
                members.push((member, held));
            }
        }
        Ok(members)
    }

    /// Whether there were readers and all have crashed.
    fn all_readers_are_gone(&self, key: &str) -> Result<bool, Failure> {
        let sql = "SELECT mark FROM entries WHERE key = ?1 AND part = ?2 AND ends > ?3";
        let mut statement = self.database.prepare_cached(sql)?;
        let marks = statement.query_map(params![key, What::Reader.part(), self.now], |row| row.get(0))?;
        let mut crashed = false;
        for mark in marks {
            let mark: Option<String> = mark?;
            if !self.is_gone(mark.as_deref()) {
                return Ok(false);
            }
            crashed = true;
        }
        Ok(crashed)
    }

    pub(crate) fn remove_members(&mut self, what: What, key: &str) -> Result<(), Failure> {
        self.writes()?;
        let sql = "DELETE FROM entries WHERE key = ?1 AND part = ?2";
        self.database.prepare_cached(sql)?.execute(params![key, what.part()])?;
        Ok(())
    }
}

/// The fencing counter.
impl Entries<'_> {
    /// Returns the counter; zero if there is none.
    pub(crate) fn counter(&self, key: &str) -> Result<FencingToken, Failure> {
        let found = self.main(&fence_counter(key))?;
        match found.filter(|(what, held)| self.lives(*what, held.ends)) {
            None => Ok(FencingToken::ZERO),
            Some((what, held)) if what == What::Counter as i64 => {
                held.number.ok_or_else(|| wrong("the fencing counter is out of range"))
            }
            Some(_) => Err(wrong("the fencing counter has the wrong type")),
        }
    }

    /// Returns the counter if a number can be drawn from it.
    pub(crate) fn usable_counter(&self, key: &str) -> Result<FencingToken, Failure> {
        let counter = self.counter(key)?;
        let usable = counter < FencingToken::MAX;
        if usable { Ok(counter) } else { Err(wrong("the fencing counter is exhausted")) }
    }

    /// Returns the largest value that the counter may have had before a power loss.
    pub(crate) fn may_have_stood(&self, counter: FencingToken) -> FencingToken {
        let matters = self.floor.counter_ends() > self.wall;
        if matters { counter.max(self.floor) } else { counter }
    }

    /// Determines the next number. Changes nothing; every error occurs here.
    pub(crate) fn prepare(&self, key: &str, hint: Option<FenceHint>) -> Result<Option<Drawing>, Failure> {
        let Some(hint) = hint else { return Ok(None) };
        let current = self.usable_counter(key)?;
        let next =
            hint.from(self.may_have_stood(current), self.wall).map_err(|why| wrong(why.to_string()))?;
        Ok(Some(Drawing { current, next }))
    }

    pub(crate) fn raise(&mut self, key: &str, number: FencingToken) -> Result<(), Failure> {
        self.largest = self.largest.max(number);
        let counter = Held {
            token: Token::found(b""),
            ends: Some(micros(number.counter_ends())),
            number: Some(number),
            wanted: false,
            mark: None,
        };
        self.put(What::Counter, &fence_counter(key), b"", &counter)
    }

    /// Answers that the counter is ahead, or may have been before it was lost.
    pub(crate) fn ahead(&self, counter: FencingToken) -> Outcome {
        (Vote::FenceAhead, above_zero(counter.max(FencingToken::forgotten(self.wall))))
    }
}

/// The largest integer in SQL.
const LAST: u64 = u64::MAX / 2;

fn held_of(row: &Row<'_>) -> rusqlite::Result<Held> {
    let number: Option<i64> = row.get(2)?;
    Ok(Held {
        token: Token::found(row.get_ref(0)?.as_blob_or_null()?.unwrap_or_default()),
        ends: row.get::<_, Option<i64>>(1)?.map(|ends| u64::try_from(ends).unwrap_or(0)),
        number: number.and_then(|number| u64::try_from(number).ok()).and_then(FencingToken::new),
        wanted: row.get(3)?,
        mark: row.get(4)?,
    })
}

pub(crate) fn current(drawing: Option<Drawing>) -> Option<FencingToken> {
    drawing.and_then(|drawing| above_zero(drawing.current))
}

/// Maps a counter of zero to `None`.
pub(crate) fn above_zero(counter: FencingToken) -> Option<FencingToken> {
    (counter > FencingToken::ZERO).then_some(counter)
}

pub(crate) fn micros(time: Duration) -> u64 {
    quorlock::protocol::micros(time).min(LAST)
}
