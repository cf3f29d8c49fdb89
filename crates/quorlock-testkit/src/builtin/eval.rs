//! `EVAL`, for the scripts that are known.

use std::time::Duration;

use quorlock::{Expiry, Vote, scripts};

use super::Shared;
use super::commands::{millis, pttl};
use crate::resp::Resp;
use crate::store::{InTurn, WrongType};

/// Carries out `EVAL script numkeys key… argument…`.
pub(super) fn eval(shared: &Shared, parts: &[Vec<u8>]) -> Resp {
    let [script, count, rest @ ..] = parts else {
        return Resp::Error("ERR wrong number of arguments for 'eval' command".to_owned());
    };
    let count = millis(count).and_then(|count| usize::try_from(count.as_millis()).ok());
    let Some((keys, arguments)) = count.and_then(|count| rest.split_at_checked(count)) else {
        return Resp::Error("ERR Number of keys can't be greater than number of args".to_owned());
    };
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    let time = |at: usize| arguments.get(at).and_then(|digits| millis(digits)).unwrap_or(Duration::ZERO);
    let (now, mut store) = (shared.now(), shared.store());
    let vote = match (script.as_slice(), keys.as_slice(), arguments.as_slice()) {
        (script, [key], [token, _, tomb, mark]) if is(script, &scripts::ACQUIRE) => {
            store.acquire(now, key, [tomb, mark], token, time(1))
        }
        (script, [key], [token, _, tomb]) if is(script, &scripts::RENEW) => {
            store.renew(now, key, tomb, token, time(1))
        }
        (script, [key], [token, mark]) if is(script, &scripts::RELEASE) => {
            store.release(now, key, mark, token)
        }
        (script, [key], [token, _, tomb]) if is(script, &scripts::CANCEL) => {
            store.cancel(now, key, tomb, token, time(1))
        }
        (script, [key], [from, to, _, tomb]) if is(script, &scripts::TRANSFER) => {
            store.transfer(now, key, tomb, [from, to], time(2))
        }
        (script, [key], [token, _, place, name, _, tombstone, order, until])
            if is(script, &scripts::ACQUIRE_IN_TURN) =>
        {
            let place = std::str::from_utf8(place).ok().and_then(|digits| digits.parse().ok());
            let Some(place) = place else { return Resp::Error("ERR value is not a valid float".to_owned()) };
            let (line, ttl, patience) = ([*order, *until], time(1), time(4));
            let asked = InTurn { key, tombstone, line, token, ttl, place, name, patience };
            store.acquire_in_turn(now, &asked)
        }
        (script, [order, _], [name]) if is(script, &scripts::LEAVE_LINE) => {
            Ok(store.leave_line(now, order, name))
        }
        (script, [key], []) if is(script, &scripts::INSPECT) => store.inspect(now, key),
        _ => {
            let knows = "the built-in server runs the scripts of quorlock by their text and no others";
            return Resp::Error(format!("ERR unknown script: {knows}; use a real server for this"));
        }
    };
    answer(vote)
}

fn is(script: &[u8], known: &str) -> bool {
    script == known.as_bytes()
}

fn answer(vote: Result<Vote, WrongType>) -> Resp {
    match vote {
        Ok(Vote::Granted) => words(["granted"]),
        Ok(Vote::Wanted) => words(["wanted"]),
        Ok(Vote::Restored) => words(["restored"]),
        Ok(Vote::Behind) => words(["behind"]),
        Ok(Vote::Free) => words(["free"]),
        Ok(Vote::Held(holding)) => {
            let expiry: Expiry = holding.expiry;
            let ttl = Resp::Number(pttl(Some(expiry)));
            Resp::List(vec![Resp::text("held"), Resp::text(holding.token.as_bytes()), ttl])
        }
        Ok(other) => Resp::Error(format!("ERR a vote that the built-in server does not know: {other:?}")),
        Err(wrong) => Resp::Error(wrong.to_string()),
    }
}

fn words<const N: usize>(words: [&str; N]) -> Resp {
    Resp::List(words.iter().map(Resp::text).collect())
}
