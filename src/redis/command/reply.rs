//! Decodes replies of a server as votes, and its errors as errors of the node, which are unknown or a refusal
//! and never a vote.

use std::borrow::Cow;
use std::time::Duration;

use redis::Value;

use crate::node::{Expiry, Holding, NodeError, QueueListing, Queued, QueuedWaiter, Request, Vote};
use crate::redis::error::{Peer, SentCommand, explain};
use crate::redis::redisson::no_lock;
use crate::redis::resp::decode::{RespReader, RespValue};
use crate::redis::server_error::{ServerError, ServerErrorKind};
use quorlock_protocol::{FencingToken, LoggedHold, Token, WaiterId, entry_context};

/// Decodes the reply of the request's script. The server may be broken or hostile: anything that is not a
/// vote is an error, never a panic.
pub(crate) fn decode(answer: &[u8], request: &Request, user: &str) -> Result<CommandOutcome, NodeError> {
    if answer == DONE {
        // Nearly all replies are this one, and need not be parsed.
        return Ok(CommandOutcome::Voted { vote: Vote::Granted, fence: None });
    }
    if let Some(refusal) = error_in(answer, "EVAL", request, user) {
        return refusal;
    }
    parse_reply(RespReader::of(answer), request).ok_or_else(|| {
        no_lock(answer, request.key()).unwrap_or_else(|| not_understood("unexpected answer to a vote"))
    })
}

/// The error of a reply that does not show whether the request was carried out.
pub(super) fn not_understood(what: &str) -> NodeError {
    NodeError::UnexpectedReply { reason: what.into() }
}

/// Decodes the reply of the request's plain command.
pub(crate) fn decode_plain(
    answer: &[u8],
    request: &Request,
    user: &str,
) -> Result<CommandOutcome, NodeError> {
    if answer == STORED {
        return Ok(CommandOutcome::Voted { vote: Vote::Granted, fence: None });
    }
    if let Some(refusal) = error_in(answer, "SET", request, user) {
        return refusal;
    }
    match RespReader::of(answer).next() {
        Some(RespValue::Text(b"OK")) => Ok(CommandOutcome::Voted { vote: Vote::Granted, fence: None }),
        Some(RespValue::Nothing) => Ok(CommandOutcome::Refused),
        Some(RespValue::Text(_) | RespValue::Number(_) | RespValue::List(_)) | None => {
            Err(not_understood("unexpected answer to SET"))
        }
    }
}

/// Returns the outcome of an error reply to `command`; `None` if it is not an error.
fn error_in(
    answer: &[u8],
    command: &'static str,
    request: &Request,
    user: &str,
) -> Option<Result<CommandOutcome, NodeError>> {
    if !matches!(answer.first(), Some(b'-' | b'!')) {
        return None;
    }
    let Ok(Value::ServerError(error)) = redis::parse_redis_value(answer) else {
        return Some(Err(not_understood("an error that cannot be read")));
    };
    let error = ServerError::read(&error);
    Some(if *error.kind() == ServerErrorKind::UnknownScript {
        Ok(CommandOutcome::Forgotten)
    } else if *error.kind() == ServerErrorKind::ReadOnlyReplica {
        Ok(CommandOutcome::Demoted)
    } else {
        let key = key_of(request);
        Err(explain(error, SentCommand { command, key: &key, user, peer: Peer::Server }))
    })
}

/// The reply of a plain command that has stored the token.
pub(crate) const STORED: &[u8] = b"+OK\r\n";
/// The reply of a script that has succeeded and returns no fencing number.
pub(crate) const DONE: &[u8] = b"*1\r\n$7\r\ngranted\r\n";

/// A decoded reply.
#[derive(PartialEq, Debug)]
pub(crate) enum CommandOutcome {
    /// A vote.
    Voted {
        vote: Vote,
        /// The fencing number.
        fence: Option<FencingToken>,
    },
    /// The server does not know the script by its hash.
    Forgotten,
    /// A `SET NX` was refused, without the holder.
    Refused,
    /// The token was stored, but the counter is ahead of the number.
    Unnumbered,
    /// A command of the transaction failed: the token may be stored.
    Unclear,
    /// The server has become a replica since the handshake.
    Demoted,
}

fn parse_reply(mut parts: RespReader<'_>, request: &Request) -> Option<CommandOutcome> {
    let RespValue::List(_) = parts.next()? else { return None };
    let RespValue::Text(word) = parts.next()? else { return None };
    let mut vote = match word {
        b"granted" => Vote::Granted,
        b"wanted" => Vote::ReleasedContended,
        b"told" => Vote::Notified,
        b"queued" => return queued(parts),
        b"waiters" if matches!(request, Request::ListWaiters { .. }) => return waiters(parts),
        b"log" if matches!(request, Request::ReadLog { .. }) => return log(parts),
        b"restored" => Vote::Restored,
        b"behind" => Vote::NotYourTurn,
        b"ahead" => Vote::FenceAhead,
        b"free" => Vote::Free,
        b"demoted" => return Some(CommandOutcome::Demoted),
        b"held" => holding(&mut parts)?.map_or(Vote::Free, Vote::from),
        _ => return None,
    };
    let fence = match parts.next() {
        None | Some(RespValue::Number(0)) => None,
        Some(RespValue::Number(number)) => Some(FencingToken::new(u64::try_from(number).ok()?)?),
        Some(RespValue::Text(_) | RespValue::List(_) | RespValue::Nothing) => return None,
    };
    if let Vote::Held(holding) = &mut vote
        && let Some(claim) = request.claim().filter(|claim| claim.is_several())
    {
        // The position of the key in the claim, counted from one.
        let Some(RespValue::Number(place)) = parts.next() else { return None };
        let place = usize::try_from(place).ok()?.checked_sub(1)?;
        holding.key = Some(claim.keys().nth(place)?.clone());
    }
    if let Vote::Held(holding) = &mut vote {
        let mut rest = parts.clone();
        if let Some(RespValue::Number(depth)) = rest.next() {
            holding.depth = Some(u64::try_from(depth).ok()?);
            parts = rest;
        }
        let readers = parts.map(|part| match part {
            RespValue::Text(token) => Some(Token::found(token)),
            RespValue::Number(_) | RespValue::List(_) | RespValue::Nothing => None,
        });
        holding.readers = readers.collect::<Option<_>>()?;
    }
    Some(CommandOutcome::Voted { vote, fence })
}

/// Decodes the content of the key; the inner `None` means that it has expired meanwhile.
#[expect(clippy::option_option, reason = "the outer one is a malformed reply")]
fn holding(parts: &mut RespReader<'_>) -> Option<Option<Holding>> {
    let (RespValue::Text(token), RespValue::Number(left_ms)) = (parts.next()?, parts.next()?) else {
        return None;
    };
    // As in PTTL: -2 for a key that is gone, -1 for one without expiry.
    let expiry = match left_ms {
        -2 => return Some(None),
        -1 => Expiry::Never,
        left_ms => Expiry::In(Duration::from_millis(u64::try_from(left_ms).ok()?)),
    };
    Some(Some(Holding::new(Token::found(token), expiry)))
}

/// Decodes a place in the queue, and the content of the key if the script has read it.
fn queued(mut parts: RespReader<'_>) -> Option<CommandOutcome> {
    let Some(RespValue::Number(ahead)) = parts.next() else { return None };
    let ahead = u32::try_from(ahead).ok()?;
    let mut rest = parts.clone();
    let holding = if rest.next().is_none() { None } else { holding(&mut parts)? };
    Some(CommandOutcome::Voted { vote: Queued::new(ahead, holding).into(), fence: None })
}

/// Decodes a list of waiters.
fn waiters(mut parts: RespReader<'_>) -> Option<CommandOutcome> {
    let Some(RespValue::Number(has_more @ (0 | 1))) = parts.next() else { return None };
    let mut waiters = Vec::new();
    while let Some(part) = parts.next() {
        let (RespValue::Text(id), Some(RespValue::Number(waited)), Some(RespValue::Text(entry))) =
            (part, parts.next(), parts.next())
        else {
            return None;
        };
        // Negative if it started by a clock that was ahead.
        let waited = Duration::from_micros(u64::try_from(waited).unwrap_or_default());
        waiters.push(QueuedWaiter::new(WaiterId::parse(id)?, waited, entry_context(entry)));
    }
    Some(CommandOutcome::Voted { vote: QueueListing::new(waiters, has_more == 1).into(), fence: None })
}

/// Decodes a log. Skips what another program has written there.
fn log(parts: RespReader<'_>) -> Option<CommandOutcome> {
    let text = |part| if let RespValue::Text(text) = part { Some(LoggedHold::parse(text)) } else { None };
    let holds = parts.map(text).collect::<Option<Vec<_>>>()?;
    let holds: Box<[LoggedHold]> = holds.into_iter().flatten().collect();
    Some(CommandOutcome::Voted { vote: Vote::Log(holds), fence: None })
}

/// Returns the key of the lock, or the keys of several: for messages.
fn key_of(request: &Request) -> Cow<'_, str> {
    if let Some(claim) = request.claim().filter(|claim| claim.is_several()) {
        return claim.keys().map(|key| &**key).collect::<Vec<_>>().join("` or `").into();
    }
    request.key().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redis::tests::{any_claim, inspect, plain};
    use quorlock_protocol::SHARED_MARKER;

    fn list(items: &[&str]) -> Vec<u8> {
        let texts: Vec<_> = items.iter().map(|item| format!("${}\r\n{item}\r\n", item.len())).collect();
        format!("*{}\r\n{}", items.len(), texts.concat()).into_bytes()
    }

    fn unnumbered(vote: Vote) -> CommandOutcome {
        CommandOutcome::Voted { vote, fence: None }
    }

    fn held(left_ms: i64) -> Vec<u8> {
        [b"*3\r\n+held\r\n$1\r\n\xff\r\n:", left_ms.to_string().as_bytes(), b"\r\n"].concat()
    }

    fn short() -> Holding {
        Holding::new(Token::found(b"\xff"), Expiry::In(Duration::from_millis(5)))
    }

    #[test]
    fn each_word_is_a_vote() {
        for (reply, vote) in [
            (list(&["granted"]), Vote::Granted),
            (list(&["restored"]), Vote::Restored),
            (list(&["behind"]), Vote::NotYourTurn),
            (list(&["ahead"]), Vote::FenceAhead),
            (list(&["free"]), Vote::Free),
            (list(&["told"]), Vote::Notified),
            (b"*2\r\n+queued\r\n:8\r\n".to_vec(), Queued::new(8, None).into()),
            (b"*4\r\n+queued\r\n:1\r\n$1\r\n\xff\r\n:5\r\n".to_vec(), Queued::new(1, Some(short())).into()),
            (held(-2), Vote::Free),
            (held(-1), Vote::from(Holding::new(Token::found(b"\xff"), Expiry::Never))),
            (held(5), Vote::from(Holding::new(Token::found(b"\xff"), Expiry::In(Duration::from_millis(5))))),
        ] {
            assert_eq!(decode(&reply, &inspect(), "anna"), Ok(unnumbered(vote)));
        }
    }

    #[test]
    fn a_number_follows_the_vote_and_zero_is_none() {
        let numbered = |number: i64| format!("*2\r\n+granted\r\n:{number}\r\n").into_bytes();
        for (number, fence) in [(0, None), (42, FencingToken::new(42))] {
            let read = decode(&numbered(number), &inspect(), "anna");
            assert_eq!(read, Ok(CommandOutcome::Voted { vote: Vote::Granted, fence }));
        }
        for number in [-1, 1 << 53] {
            assert!(decode(&numbered(number), &inspect(), "anna").is_err(), "{number} is no fencing token");
        }
    }

    #[test]
    fn readers_follow_the_number_and_are_texts() {
        let shared = |rest: &str| format!("*6\r\n+held\r\n$15\r\nquorlock:shared\r\n:5\r\n:9\r\n{rest}");
        let read = decode(shared("$1\r\na\r\n+b\r\n").as_bytes(), &inspect(), "anna");
        let readers = vec![Token::found(b"a"), Token::found(b"b")];
        let marker = Token::found(SHARED_MARKER.as_bytes());
        let holding = Holding::new(marker, Expiry::In(Duration::from_millis(5))).with_readers(readers);
        assert_eq!(read, Ok(CommandOutcome::Voted { vote: holding.into(), fence: FencingToken::new(9) }));
        for rest in [":1\r\n:2\r\n", "$1\r\na\r\n_\r\n", "*1\r\n+a\r\n+b\r\n"] {
            assert!(decode(shared(rest).as_bytes(), &inspect(), "anna").is_err(), "{rest:?}");
        }
    }

    #[test]
    fn a_plain_set_is_granted_or_refused() {
        let plain = plain(&any_claim());
        assert_eq!(decode_plain(STORED, &plain, "anna"), Ok(unnumbered(Vote::Granted)));
        for nothing in ["_\r\n", "$-1\r\n"] {
            assert_eq!(decode_plain(nothing.as_bytes(), &plain, "anna"), Ok(CommandOutcome::Refused));
        }
        assert!(decode_plain(&list(&["granted"]), &plain, "anna").is_err(), "not a reply of SET");
        assert!(decode(STORED, &plain, "anna").is_err(), "not a reply of a script");
    }

    #[test]
    fn i5_any_other_reply_is_an_unknown_outcome() {
        for reply in [
            b"$-1\r\n".to_vec(),
            b"+OK\r\n".to_vec(),
            list(&[]),
            list(&["yes"]),
            list(&["held", "x"]),
            held(-3),
        ] {
            let error = decode(&reply, &inspect(), "anna").unwrap_err();
            assert!(error.may_have_acted() && !error.is_permanent(), "{error:?}");
            assert!(error.to_string().contains("unexpected answer"), "{error}");
        }
    }

    fn replies() -> impl Strategy<Value = String> {
        let word = prop_oneof!["granted", "wanted", "told", "queued", "behind", "free", "held", ".{0,5}"];
        let part = prop_oneof![
            word.clone().prop_map(|word| format!("+{word}")),
            word.prop_map(|word| format!("${}\r\n{word}", word.len())),
            any::<i64>().prop_map(|number| format!(":{number}")),
            Just("_".to_owned()),
            ".{0,5}",
            "[*>%~!-][0-9]{1,2}",
        ];
        prop::collection::vec(part, 0..5).prop_map(|parts| parts.join("\r\n") + "\r\n")
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(reply in replies(), list in any::<bool>()) {
            let reply = if list { format!("*3\r\n{reply}") } else { reply };
            drop(decode(reply.as_bytes(), &inspect(), "anna"));
            drop(decode_plain(reply.as_bytes(), &inspect(), "anna"));
        }
    }
}
