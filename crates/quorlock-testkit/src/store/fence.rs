//! The counter of a lock's fencing tokens, as `fence.lua` keeps it.

use std::time::Duration;

use quorlock::Vote;
use quorlock::protocol::{Draw, FencingToken, Moment};

use super::{Failure, Store, Told, Value, millis, span};

/// How a script draws a number.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Drawing<'a> {
    /// The key of the counter.
    pub counter: &'a [u8],
    /// What the asker wants it to be.
    pub draw: Draw,
    /// The server's wall clock: the time since 1970.
    pub wall: Duration,
}

/// How long a counter is kept that nobody raises.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

impl Store {
    /// `write_back.lua`: raises the counter to `fencing_token`, if the key is ours and the counter is not
    /// ahead.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there, or in the counter something from which no
    /// number can be drawn.
    pub fn write_back(
        &mut self,
        now: Moment,
        key: &[u8],
        token: &[u8],
        name: &[u8],
        fencing_token: FencingToken,
    ) -> Result<Told, Failure> {
        if self.get(now, key)? != Some(token) {
            return Ok(self.holding(now, key)?.into());
        }
        let counter = self.counter(now, name)?;
        if !fencing_token.may_follow(counter) {
            return Ok(Told::with(Vote::Ahead, Some(counter)));
        }
        Ok(Told::with(Vote::Granted, Some(self.raise(now, name, fencing_token))))
    }

    /// Where a counter stands that can be used; zero if there is none.
    pub(super) fn counter(&mut self, now: Moment, name: &[u8]) -> Result<FencingToken, Failure> {
        let counter = self.fencing_token(now, name)?;
        if counter < FencingToken::MAX { Ok(counter) } else { Err(Failure::OutOfRange) }
    }

    /// Where the counter stands; zero if there is none.
    pub(super) fn fencing_token(&mut self, now: Moment, name: &[u8]) -> Result<FencingToken, Failure> {
        let text = self.get(now, name)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(FencingToken::ZERO);
        }
        u64::try_from(number(text)?).ok().and_then(FencingToken::new).ok_or(Failure::OutOfRange)
    }

    /// Finds out which number is next, and changes nothing: what fails, fails here.
    pub(super) fn prepare<'a>(
        &mut self,
        now: Moment,
        Drawing { counter, draw, wall }: Drawing<'a>,
    ) -> Result<Prepared<'a>, Failure> {
        let stands = self.counter(now, counter)?;
        let next = draw.from(stands, wall).ok_or(Failure::OutOfRange)?;
        Ok(Prepared { counter, stands, next })
    }

    pub(super) fn draw(&mut self, now: Moment, Prepared { counter, next, .. }: Prepared<'_>) -> FencingToken {
        self.raise(now, counter, next)
    }

    pub(super) fn raise(&mut self, now: Moment, name: &[u8], number: FencingToken) -> FencingToken {
        let text = Value::Text(number.to_string().into_bytes());
        self.put(name, text, Some(millis(now).saturating_add(span(LIFE))));
        number
    }
}

/// A number that can be drawn.
#[derive(Clone, Copy)]
pub(super) struct Prepared<'a> {
    counter: &'a [u8],
    /// Where the counter stands before.
    pub(super) stands: FencingToken,
    pub(super) next: FencingToken,
}

/// As a server reads it: digits and perhaps a minus, with nothing before, between or after.
fn number(text: &[u8]) -> Result<i64, Failure> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number: &i64| number.to_string().as_bytes() == text).ok_or(Failure::NoNumber)
}
