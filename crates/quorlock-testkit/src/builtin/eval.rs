//! `EVAL`, for the scripts that are known.

use std::time::Duration;

use quorlock::{Expiry, Vote, scripts};

use super::Shared;
use super::commands::{millis, pttl};
use crate::resp::Resp;
use crate::store::WrongType;

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
        (script, [key, tomb], [token, _]) if is(script, scripts::ACQUIRE) => {
            store.acquire(now, key, tomb, token, time(1))
        }
        (script, [key, tomb], [token, _]) if is(script, scripts::RENEW) => {
            store.renew(now, key, tomb, token, time(1))
        }
        (script, [key], [token]) if is(script, scripts::RELEASE) => store.release(now, key, token),
        (script, [key, tomb], [token, _]) if is(script, scripts::CANCEL) => {
            store.cancel(now, key, tomb, token, time(1))
        }
        (script, [key], []) if is(script, scripts::INSPECT) => store.inspect(now, key),
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
        Ok(Vote::Restored) => words(["restored"]),
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
