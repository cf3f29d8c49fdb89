//! Questions as commands, and replies as votes.

use std::time::Duration;

use redis::{Cmd, Value};

use super::failure::{Asked, refused, unexpected};
use super::scripts;
use crate::node::{Expiry, Holding, NodeError, Question, Vote};
use crate::protocol::{Claim, Token, line_keys};

/// The command that asks the question. The lock is the only declared key; see `acquire.lua`.
pub(crate) fn encode(question: &Question) -> Cmd {
    match question {
        Question::Acquire { claim, ttl } => {
            let mut command = guarded(&scripts::ACQUIRE, claim, *ttl);
            command.arg(claim.tombstone()).arg(claim.want_mark());
            command
        }
        Question::AcquireInTurn { claim, ttl, ticket, patience } => {
            let mut command = guarded(&scripts::ACQUIRE_IN_TURN, claim, *ttl);
            command.arg(ticket.wall_micros()).arg(ticket.name()).arg(millis(*patience));
            command.arg(claim.tombstone()).arg(&line_keys(claim.key()));
            command
        }
        Question::LeaveLine { key, ticket } => {
            let mut command = eval(&scripts::LEAVE_LINE, 2);
            command.arg(&line_keys(key)).arg(ticket.name());
            command
        }
        Question::Transfer { from, to, ttl } => {
            let mut command = eval(&scripts::TRANSFER, 1);
            command.arg(to.key()).arg(from.token().as_bytes()).arg(to.token().as_bytes());
            command.arg(millis(*ttl)).arg(to.tombstone());
            command
        }
        Question::Renew { claim, ttl } => {
            let mut command = guarded(&scripts::RENEW, claim, *ttl);
            command.arg(claim.tombstone());
            command
        }
        Question::Cancel { claim, linger } => {
            let mut command = guarded(&scripts::CANCEL, claim, *linger);
            command.arg(claim.tombstone());
            command
        }
        Question::Release { claim } => {
            let mut command = eval(&scripts::RELEASE, 1);
            command.arg(claim.key()).arg(claim.token().as_bytes()).arg(claim.want_mark());
            command
        }
        Question::Inspect { key } => {
            let mut command = eval(&scripts::INSPECT, 1);
            command.arg(&**key);
            command
        }
    }
}

/// What the reply to the question says. The server may be broken or hostile: whatever is not a
/// vote is an error, and never a panic.
pub(crate) fn decode(reply: Value, question: &Question, user: &str) -> Result<Vote, NodeError> {
    if let Value::ServerError(error) = reply {
        return Err(refused(&error, Asked { command: "EVAL", key: key_of(question), user }));
    }
    let items = if let Value::Array(items) = reply { items } else { Vec::new() };
    vote(items).ok_or_else(|| unexpected("unexpected answer to a vote", ""))
}

fn vote(items: Vec<Value>) -> Option<Vote> {
    let mut items = items.into_iter();
    match &*bytes(items.next()?)? {
        b"granted" => Some(Vote::Granted),
        b"wanted" => Some(Vote::Wanted),
        b"restored" => Some(Vote::Restored),
        b"behind" => Some(Vote::Behind),
        b"free" => Some(Vote::Free),
        b"held" => {
            let token = Token::found(&bytes(items.next()?)?);
            let Value::Int(left_ms) = items.next()? else { return None };
            match left_ms {
                // As PTTL has it: no such key any more, and no end.
                -2 => Some(Vote::Free),
                -1 => Some(Vote::Held(Holding::new(token, Expiry::Never))),
                left_ms => {
                    let left = Duration::from_millis(u64::try_from(left_ms).ok()?);
                    Some(Vote::Held(Holding::new(token, Expiry::In(left))))
                }
            }
        }
        _ => None,
    }
}

/// A script over the lock, with a token and a time.
fn guarded(script: &'static str, claim: &Claim, time: Duration) -> Cmd {
    let mut command = eval(script, 1);
    command.arg(claim.key()).arg(claim.token().as_bytes()).arg(millis(time));
    command
}

fn eval(script: &'static str, keys: u8) -> Cmd {
    // Room for a usual question, so that it is written without a second allocation.
    let mut command = Cmd::with_capacity(7, script.len() + 256);
    command.arg("EVAL").arg(script).arg(keys);
    command
}

/// Rounded down, so that a key never outlives what was asked, and at least 1, since Redis refuses 0.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).max(1)
}

fn key_of(question: &Question) -> &str {
    match question {
        Question::Acquire { claim, .. }
        | Question::AcquireInTurn { claim, .. }
        | Question::Transfer { to: claim, .. }
        | Question::Renew { claim, .. }
        | Question::Release { claim }
        | Question::Cancel { claim, .. } => claim.key(),
        Question::LeaveLine { key, .. } | Question::Inspect { key } => key,
    }
}

/// The bytes of any kind of string.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    if let Value::BulkString(bytes) = value {
        Some(bytes)
    } else if let Value::SimpleString(text) | Value::VerbatimString { text, .. } = value {
        Some(text.into_bytes())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::node::Lasting;

    fn claim() -> Arc<Claim> {
        Arc::new(Claim::new("orders/42".into(), Token::new(7, "db-7:1")))
    }

    fn inspect() -> Question {
        Question::Inspect { key: "orders/42".into() }
    }

    fn list(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| Value::BulkString(item.as_bytes().to_vec())).collect())
    }

    fn held(left_ms: i64) -> Value {
        let word = Value::SimpleString("held".into());
        Value::Array(vec![word, Value::BulkString(b"\xff".to_vec()), Value::Int(left_ms)])
    }

    #[test]
    fn each_word_is_a_vote() {
        for (reply, vote) in [
            (list(&["granted"]), Vote::Granted),
            (list(&["restored"]), Vote::Restored),
            (list(&["behind"]), Vote::Behind),
            (list(&["free"]), Vote::Free),
            (held(-2), Vote::Free),
            (held(-1), Vote::Held(Holding::new(Token::found(b"\xff"), Expiry::Never))),
            (held(5), Vote::Held(Holding::new(Token::found(b"\xff"), Expiry::In(Duration::from_millis(5))))),
        ] {
            assert_eq!(decode(reply, &inspect(), "anna"), Ok(vote));
        }
    }

    #[test]
    fn anything_else_is_an_error_that_may_pass() {
        for reply in [Value::Nil, Value::Okay, list(&[]), list(&["yes"]), list(&["held", "x"]), held(-3)] {
            let error = decode(reply, &inspect(), "anna").unwrap_err();
            assert!(matches!(&error, NodeError::Failed { lasting: Lasting::Passing, .. }), "{error:?}");
            assert!(error.to_string().contains("unexpected answer"), "{error}");
        }
    }

    #[test]
    fn a_ttl_is_rounded_down_and_at_least_a_millisecond() {
        for (ttl, last) in [
            (Duration::from_micros(1_999), "1"),
            (Duration::ZERO, "1"),
            (Duration::MAX, "9223372036854775807"),
        ] {
            let command = encode(&Question::Acquire { claim: claim(), ttl });
            let packed = String::from_utf8(command.get_packed_command()).unwrap();
            assert!(packed.contains(&format!("\r\n{last}\r\n$")), "{packed}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let word = prop_oneof!["granted", "wanted", "restored", "behind", "free", "held", ".{0,5}"];
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            any::<bool>().prop_map(Value::Boolean),
            word.clone().prop_map(Value::SimpleString),
            word.prop_map(|word| Value::BulkString(word.into_bytes())),
            any::<Vec<u8>>().prop_map(Value::BulkString),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let items = prop::collection::vec(inner, 0..4);
            prop_oneof![items.clone().prop_map(Value::Array), items.prop_map(Value::Set)]
        })
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(reply in values()) {
            drop(decode(reply, &inspect(), "anna"));
        }
    }
}
