//! Fencing counters, as `fence.lua` keeps them.

use std::collections::BTreeMap;

use quorlock::node::Vote;
use quorlock::protocol::{FenceHint, FencingToken, Moment, Token};

use super::{Entry, Failure, ScriptResult, Store, Value};

/// A fencing counter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the scripts")]
pub struct Counter {
    /// The largest number so far.
    pub current: u64,
    /// The numbers that were drawn for tokens that do not state them, by random part.
    pub notes: BTreeMap<Vec<u8>, u64>,
}

/// The maximum number of notes; those with the largest numbers are kept.
const NOTES: usize = 7;

/// How a script draws a number.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Drawing<'a> {
    /// The key of the counter.
    pub counter: &'a [u8],
    /// The hint of the client.
    pub fence_hint: FenceHint,
}

impl Store {
    /// `write_back.lua`: raises the counter to `fencing_token`, if the token holds the key and the counter is
    /// not ahead.
    ///
    /// # Errors
    ///
    /// If the key is not a string, or no number can be drawn from the counter.
    pub fn write_back(
        &mut self,
        now: Moment,
        key: &[u8],
        token: &[u8],
        name: &[u8],
        fencing_token: FencingToken,
    ) -> Result<ScriptResult, Failure> {
        if self.get(now, key)? != Some(token) {
            return Ok(self.holding(now, key)?.into());
        }
        let counter = self.counter(now, name)?;
        if !fencing_token.may_follow(counter, self.wall) {
            return Ok(self.ahead(counter));
        }
        let raised = self.raise(now, name, fencing_token);
        self.note(now, name, token, Noted { number: fencing_token, usual: None });
        Ok(ScriptResult::with(Vote::Granted, Some(raised)))
    }

    /// Answers that the counter is ahead, or may have been before it was lost.
    pub(super) fn ahead(&self, counter: FencingToken) -> ScriptResult {
        let gone = counter == FencingToken::ZERO;
        ScriptResult::with(
            Vote::FenceAhead,
            Some(if gone { FencingToken::forgotten(self.wall) } else { counter }),
        )
    }

    /// Returns the counter if it is usable; zero if there is none.
    pub(super) fn counter(&mut self, now: Moment, name: &[u8]) -> Result<FencingToken, Failure> {
        let counter = self.fencing_token(now, name)?;
        if counter < FencingToken::MAX { Ok(counter) } else { Err(Failure::OutOfRange) }
    }

    /// Returns the counter; zero if there is none.
    pub(super) fn fencing_token(&mut self, now: Moment, name: &[u8]) -> Result<FencingToken, Failure> {
        let number = self.score(now, name)?.unwrap_or_default();
        FencingToken::new(number).ok_or(Failure::OutOfRange)
    }

    /// Returns what was drawn for the holder of a key; or the counter, if the holder's token does not state
    /// it.
    pub(super) fn fence_of(&mut self, now: Moment, name: &[u8], holder: &Token) -> Option<FencingToken> {
        let Some(Entry { value: Value::Number(counter), .. }) = self.live(now, name) else {
            return holder.number();
        };
        let noted = counter.notes.get(random_part(holder.as_bytes())).copied();
        let noted = noted.and_then(FencingToken::new).or(holder.number());
        noted.or_else(|| FencingToken::new(counter.current))
    }

    /// Records what was drawn for a token, if it differs from `usual`.
    pub(super) fn note(&mut self, now: Moment, name: &[u8], token: &[u8], drawn: Noted) {
        if Some(drawn.number) == drawn.usual {
            return;
        }
        let Some(Entry { value: Value::Number(counter), .. }) = self.live(now, name) else { return };
        counter.notes.insert(random_part(token).to_vec(), drawn.number.get());
        while counter.notes.len() > NOTES {
            let least = counter.notes.iter().min_by_key(|(member, score)| (**score, (*member).clone()));
            let Some(least) = least.map(|(member, _)| member.clone()) else { return };
            counter.notes.remove(&least);
        }
    }

    /// `ZSCORE` of the only member of a counter.
    ///
    /// # Errors
    ///
    /// If the key is not a counter.
    pub fn score(&mut self, now: Moment, name: &[u8]) -> Result<Option<u64>, Failure> {
        match self.live(now, name) {
            Some(Entry { value: Value::Number(counter), .. }) => Ok(Some(counter.current)),
            Some(Entry { value: Value::Text(_) | Value::List(_) | Value::Fields(_), .. }) => {
                Err(Failure::WrongType)
            }
            Some(Entry { value: Value::Scores(_), .. }) | None => Ok(None),
        }
    }

    /// `ZADD GT CH` of the only member of a counter: raises it to `number` if it is lower. Returns whether it
    /// was.
    ///
    /// # Errors
    ///
    /// If the key is not a counter.
    pub fn exceed(&mut self, now: Moment, name: &[u8], number: u64) -> Result<bool, Failure> {
        let before = self.score(now, name)?;
        let lower = before.is_none_or(|before| before < number);
        if lower {
            self.stand(now, name, number);
        }
        Ok(lower)
    }

    /// `forget.lua`: deletes a counter.
    pub fn forget(&mut self, now: Moment, counter: &[u8]) -> Vote {
        if self.del(now, counter) { Vote::Granted } else { Vote::Free }
    }

    /// `fence_hint.lua`: draws a number for a token that holds the key without one.
    ///
    /// # Errors
    ///
    /// If the key is not a string, or no number can be drawn.
    pub fn draw_for(
        &mut self,
        now: Moment,
        key: &[u8],
        token: &[u8],
        drawing: Drawing<'_>,
    ) -> Result<ScriptResult, Failure> {
        if self.get(now, key)? != Some(token) {
            return Ok(self.holding(now, key)?.into());
        }
        let drawing = self.prepare(now, drawing)?;
        Ok(ScriptResult::with(Vote::Granted, Some(self.fence_hint(now, drawing, token))))
    }

    fn stand(&mut self, now: Moment, name: &[u8], number: u64) {
        if let Some(Entry { value: Value::Number(counter), .. }) = self.live(now, name) {
            counter.current = number;
            self.changed(name);
        } else if let Some(Entry { value: Value::Scores(notes), ends }) = self.live(now, name).cloned() {
            self.put(name, Value::Number(Counter { current: number, notes }), ends);
        } else {
            self.put(name, Value::from(number), None);
        }
    }

    /// Determines the next number. Changes nothing; every error occurs here.
    pub(super) fn prepare<'a>(
        &mut self,
        now: Moment,
        Drawing { counter, fence_hint }: Drawing<'a>,
    ) -> Result<Prepared<'a>, Failure> {
        let current = self.counter(now, counter)?;
        let next = fence_hint.from(current, self.wall)?;
        Ok(Prepared { counter, current, next, usual: fence_hint.usual() })
    }

    /// Draws for a token that holds the lock exclusively.
    pub(super) fn fence_hint(&mut self, now: Moment, drawing: Prepared<'_>, token: &[u8]) -> FencingToken {
        let Prepared { counter, next, usual, .. } = drawing;
        let drawn = self.raise(now, counter, next);
        self.note(now, counter, token, Noted { number: next, usual: Some(usual) });
        drawn
    }

    /// Draws for the readers of a lock.
    pub(super) fn draw_for_readers(&mut self, now: Moment, drawing: Prepared<'_>) -> FencingToken {
        self.raise(now, drawing.counter, drawing.next)
    }

    pub(super) fn raise(&mut self, now: Moment, name: &[u8], number: FencingToken) -> FencingToken {
        self.stand(now, name, number.get());
        self.expire_at(now, name, self.wall, number.counter_ends());
        number
    }
}

/// What was drawn for a token, and the number that needs no note.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) number: FencingToken,
    pub(super) usual: Option<FencingToken>,
}

fn random_part(token: &[u8]) -> &[u8] {
    token.get(..32).unwrap_or(token)
}

/// A fencing token that can be drawn.
#[derive(Clone, Copy)]
pub(super) struct Prepared<'a> {
    counter: &'a [u8],
    /// The current counter.
    pub(super) current: FencingToken,
    pub(super) next: FencingToken,
    usual: FencingToken,
}
