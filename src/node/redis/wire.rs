//! Questions as commands, and replies as votes.

use std::fmt::Display;
use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs, ToSingleRedisArg, Value};

use super::failure::{Asked, refused, unexpected};
use super::scripts::{self, Library, Script};
use crate::node::{Expiry, Holding, NodeError, Question, Vote};
use crate::protocol::{
    Claim, Draw, FencingToken, Mode, Token, fence_counter, intents_key, line_keys, readers_key,
};

/// The command that asks the question, as short as the `library` of the server allows. The lock is
/// the only declared key; see `acquire.lua`.
pub(crate) fn encode(question: &Question, library: &mut Library) -> Encoded {
    if let Question::Acquire { claim, ttl, draw: None } = question
        && claim.mode() == Mode::Exclusive
    {
        // Room for all of it: growing step by step would allocate four times.
        let mut command = Cmd::with_capacity(6, 64 + claim.key().len() + claim.token().as_bytes().len());
        command
            .arg("SET")
            .arg(claim.key())
            .arg(claim.token().as_bytes())
            .arg("NX")
            .arg("PX")
            .arg(millis(*ttl));
        return Encoded { command, by_hash: false };
    }
    let script = script_of(question);
    let by_hash = library.knows(script);
    // Room for a usual question, so that it is written without a second allocation.
    let mut command = Cmd::with_capacity(15, 512 + if by_hash { 0 } else { script.text().len() });
    if by_hash {
        command.arg("EVALSHA").arg(script.hash());
    } else {
        command.arg("EVAL").arg(script.text());
    }
    arguments(&mut command, question);
    Encoded { command, by_hash }
}

/// A question as a command.
pub(crate) struct Encoded {
    pub(crate) command: Cmd,
    /// Whether the server must know the script already.
    pub(crate) by_hash: bool,
}

fn script_of(question: &Question) -> &'static Script {
    if is_shared(question) {
        return shared_script_of(question);
    }
    match question {
        Question::Acquire { .. } => &scripts::ACQUIRE,
        Question::AcquireInTurn { .. } => &scripts::ACQUIRE_IN_TURN,
        Question::WriteBack { .. } => &scripts::WRITE_BACK,
        Question::LeaveLine { .. } => &scripts::LEAVE_LINE,
        Question::Transfer { .. } => &scripts::TRANSFER,
        Question::Renew { .. } => &scripts::RENEW,
        Question::Cancel { .. } => &scripts::CANCEL,
        Question::Release { .. } => &scripts::RELEASE,
        Question::Inspect { .. } => &scripts::INSPECT,
        Question::Intend { .. } => &scripts::INTEND,
        Question::Desist { .. } => &scripts::DESIST,
    }
}

/// Whether it is about a claim that shares its lock.
fn is_shared(question: &Question) -> bool {
    question.claim().is_some_and(|claim| claim.mode() == Mode::Shared)
}

/// As `script_of`, for a claim that shares its lock. There is no order of turns among those who do,
/// and nothing that one of them could pass on: whoever is asked for that is asked to share.
fn shared_script_of(question: &Question) -> &'static Script {
    match question {
        Question::WriteBack { .. } => &scripts::WRITE_BACK_SHARED,
        Question::Renew { .. } => &scripts::RENEW_SHARED,
        Question::Cancel { .. } => &scripts::CANCEL_SHARED,
        Question::Release { .. } => &scripts::RELEASE_SHARED,
        Question::Acquire { .. }
        | Question::AcquireInTurn { .. }
        | Question::Transfer { .. }
        | Question::LeaveLine { .. }
        | Question::Inspect { .. }
        | Question::Intend { .. }
        | Question::Desist { .. } => &scripts::ACQUIRE_SHARED,
    }
}

/// The keys and arguments of its script, in the order in which the script has them.
fn arguments(command: &mut Cmd, question: &Question) {
    if is_shared(question) {
        return shared_arguments(command, question);
    }
    match question {
        Question::Acquire { claim, ttl, draw } => {
            guarded(command, claim, *ttl)
                .arg(Written(claim.tombstone_key()))
                .arg(Written(claim.want_mark_key()));
            drawing(command, claim, *draw);
        }
        Question::AcquireInTurn { claim, ttl, ticket, patience, draw } => {
            guarded(command, claim, *ttl);
            command.arg(ticket.wall_micros()).arg(ticket.name()).arg(millis(*patience));
            command.arg(Written(claim.tombstone_key())).arg(&line_keys(claim.key()));
            drawing(command, claim, *draw);
        }
        Question::WriteBack { claim, fence } => {
            command.arg(1).arg(claim.key()).arg(claim.token().as_bytes());
            command.arg(Written(claim.fence_counter_key())).arg(fence.get());
        }
        Question::LeaveLine { key, ticket } => {
            command.arg(2).arg(&line_keys(key)).arg(ticket.name());
        }
        Question::Transfer { from, to, ttl, draw } => {
            command.arg(1).arg(to.key()).arg(from.token().as_bytes()).arg(to.token().as_bytes());
            command.arg(millis(*ttl)).arg(Written(to.tombstone_key()));
            drawing(command, to, *draw);
        }
        Question::Renew { claim, ttl, fence } => {
            guarded(command, claim, *ttl).arg(Written(claim.tombstone_key()));
            match fence {
                Some(fence) => command.arg(Written(claim.fence_counter_key())).arg(fence.get()),
                None => command.arg("").arg(""),
            };
        }
        Question::Cancel { claim, linger } => {
            guarded(command, claim, *linger).arg(Written(claim.tombstone_key()));
        }
        Question::Release { claim } => {
            command.arg(1).arg(claim.key()).arg(claim.token().as_bytes()).arg(Written(claim.want_mark_key()));
        }
        Question::Inspect { key } => {
            command.arg(1).arg(&**key).arg(fence_counter(key)).arg(readers_key(key));
        }
        Question::Intend { key, ticket, patience } => {
            command.arg(1).arg(&**key).arg(intents_key(key)).arg(ticket.name()).arg(millis(*patience));
        }
        Question::Desist { key, ticket } => {
            command.arg(1).arg(&**key).arg(intents_key(key)).arg(ticket.name());
        }
    }
}

/// As `arguments`, for a claim that shares its lock.
fn shared_arguments(command: &mut Cmd, question: &Question) {
    match question {
        Question::Acquire { claim, ttl, draw }
        | Question::AcquireInTurn { claim, ttl, draw, .. }
        | Question::Transfer { to: claim, ttl, draw, .. } => {
            guarded(command, claim, *ttl)
                .arg(Written(claim.tombstone_key()))
                .arg(Written(claim.want_mark_key()))
                .arg(readers_key(claim.key()))
                .arg(intents_key(claim.key()));
            drawing(command, claim, *draw);
        }
        Question::Renew { claim, ttl, fence } => {
            guarded(command, claim, *ttl).arg(Written(claim.tombstone_key())).arg(readers_key(claim.key()));
            match fence {
                Some(fence) => command.arg(Written(claim.fence_counter_key())).arg(fence.get()),
                None => command.arg("").arg(""),
            };
        }
        Question::WriteBack { claim, fence } => {
            command.arg(1).arg(claim.key()).arg(claim.token().as_bytes());
            command.arg(Written(claim.fence_counter_key())).arg(fence.get()).arg(readers_key(claim.key()));
        }
        Question::Cancel { claim, linger } => {
            guarded(command, claim, *linger)
                .arg(Written(claim.tombstone_key()))
                .arg(readers_key(claim.key()));
        }
        Question::Release { claim } => {
            command.arg(1).arg(claim.key()).arg(claim.token().as_bytes()).arg(readers_key(claim.key()));
        }
        Question::LeaveLine { .. }
        | Question::Inspect { .. }
        | Question::Intend { .. }
        | Question::Desist { .. } => {}
    }
}

/// What the reply to the question says. The server may be broken or hostile: whatever is not a
/// vote is an error, and never a panic.
pub(crate) fn decode(reply: Value, question: &Question, user: &str) -> Result<Reading, NodeError> {
    if let Value::ServerError(error) = reply {
        if error.code() == "NOSCRIPT" {
            return Ok(Reading::Forgotten);
        }
        let command = if is_plain(question) { "SET" } else { "EVAL" };
        return Err(refused(&error, Asked { command, key: key_of(question), user }));
    }
    if is_plain(question) {
        return if reply == Value::Okay {
            Ok(Reading::Said { vote: Vote::Granted, fence: None })
        } else if reply == Value::Nil {
            Ok(Reading::Refused)
        } else {
            Err(unexpected("unexpected answer to SET", ""))
        };
    }
    let items = if let Value::Array(items) = reply { items } else { Vec::new() };
    said(items).ok_or_else(|| unexpected("unexpected answer to a vote", ""))
}

/// A reply, understood.
#[derive(PartialEq, Debug)]
pub(crate) enum Reading {
    /// The answer.
    Said {
        vote: Vote,
        /// Where the counter of fencing tokens stands.
        fence: Option<FencingToken>,
    },
    /// The server does not know the script by its hash.
    Forgotten,
    /// A plain `SET NX` was refused, which does not say for whom.
    Refused,
}

/// The question that follows a refusal: who holds it?
pub(crate) fn who_holds(question: &Question) -> Question {
    Question::Inspect { key: key_of(question).into() }
}

/// Whether the question is no script.
fn is_plain(question: &Question) -> bool {
    matches!(question, Question::Acquire { claim, draw: None, .. } if claim.mode() == Mode::Exclusive)
}

fn said(items: Vec<Value>) -> Option<Reading> {
    let mut items = items.into_iter();
    let mut vote = match &*bytes(items.next()?)? {
        b"granted" => Vote::Granted,
        b"wanted" => Vote::Wanted,
        b"restored" => Vote::Restored,
        b"behind" => Vote::Behind,
        b"ahead" => Vote::Ahead,
        b"free" => Vote::Free,
        b"held" => {
            let token = Token::found(&bytes(items.next()?)?);
            let Value::Int(left_ms) = items.next()? else { return None };
            match left_ms {
                // As PTTL has it: no such key any more, and no end.
                -2 => Vote::Free,
                -1 => Vote::Held(Holding::new(token, Expiry::Never)),
                left_ms => {
                    let left = Duration::from_millis(u64::try_from(left_ms).ok()?);
                    Vote::Held(Holding::new(token, Expiry::In(left)))
                }
            }
        }
        _ => return None,
    };
    let fence = match items.next() {
        None | Some(Value::Int(0)) => None,
        Some(Value::Int(number)) => Some(FencingToken::new(u64::try_from(number).ok()?)?),
        Some(_) => return None,
    };
    if let Vote::Held(holding) = &mut vote {
        let readers = items.map(|item| Some(Token::found(&bytes(item)?)));
        holding.readers = readers.collect::<Option<_>>()?;
    }
    Some(Reading::Said { vote, fence })
}

/// The lock, with a token and a time.
fn guarded<'a>(command: &'a mut Cmd, claim: &Claim, time: Duration) -> &'a mut Cmd {
    command.arg(1).arg(claim.key()).arg(claim.token().as_bytes()).arg(millis(time))
}

/// Counter, hint and lead, or nothing instead.
fn drawing(command: &mut Cmd, claim: &Claim, draw: Option<Draw>) {
    match draw {
        Some(Draw { hint, lead, .. }) => {
            command.arg(Written(claim.fence_counter_key())).arg(hint.get()).arg(micros(lead))
        }
        None => command.arg("").arg("").arg(""),
    };
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// An argument that is written where it belongs, without a string of its own.
struct Written<T>(T);

impl<T: Display> ToRedisArgs for Written<T> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, command: &mut W) {
        command.write_arg_fmt(&self.0);
    }
}

impl<T: Display> ToSingleRedisArg for Written<T> {}

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
        | Question::WriteBack { claim, .. }
        | Question::Release { claim }
        | Question::Cancel { claim, .. } => claim.key(),
        Question::LeaveLine { key, .. }
        | Question::Intend { key, .. }
        | Question::Desist { key, .. }
        | Question::Inspect { key } => key,
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

    fn unnumbered(vote: Vote) -> Reading {
        Reading::Said { vote, fence: None }
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
            (list(&["ahead"]), Vote::Ahead),
            (list(&["free"]), Vote::Free),
            (held(-2), Vote::Free),
            (held(-1), Vote::Held(Holding::new(Token::found(b"\xff"), Expiry::Never))),
            (held(5), Vote::Held(Holding::new(Token::found(b"\xff"), Expiry::In(Duration::from_millis(5))))),
        ] {
            assert_eq!(decode(reply, &inspect(), "anna"), Ok(unnumbered(vote)));
        }
    }

    #[test]
    fn a_number_follows_the_vote_and_nought_is_none() {
        let numbered = |number| Value::Array(vec![Value::SimpleString("granted".into()), Value::Int(number)]);
        for (number, fence) in [(0, None), (42, FencingToken::new(42))] {
            let read = decode(numbered(number), &inspect(), "anna");
            assert_eq!(read, Ok(Reading::Said { vote: Vote::Granted, fence }));
        }
        for number in [-1, 1 << 53] {
            assert!(decode(numbered(number), &inspect(), "anna").is_err(), "{number} is no fencing token");
        }
    }

    #[test]
    fn a_plain_set_is_granted_or_refused() {
        let plain = Question::Acquire { claim: claim(), ttl: Duration::from_secs(1), draw: None };
        assert_eq!(decode(Value::Okay, &plain, "anna"), Ok(unnumbered(Vote::Granted)));
        assert_eq!(decode(Value::Nil, &plain, "anna"), Ok(Reading::Refused));
        assert!(decode(list(&["granted"]), &plain, "anna").is_err(), "no answer of SET");
        assert!(matches!(who_holds(&plain), Question::Inspect { key } if *key == *claim().key()));
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
            let question = Question::Acquire { claim: claim(), ttl, draw: None };
            let Encoded { command, .. } = encode(&question, &mut Library::default());
            let packed = String::from_utf8(command.get_packed_command()).unwrap();
            assert!(packed.ends_with(&format!("\r\n{last}\r\n")), "{packed}");
        }
    }

    #[test]
    fn a_script_is_sent_in_full_once_and_again_when_it_was_forgotten() {
        let mut library = Library::default();
        let words = |library: &mut Library| {
            let Encoded { command, by_hash } = encode(&inspect(), library);
            let packed = String::from_utf8(command.get_packed_command()).unwrap();
            (by_hash, packed.contains(scripts::INSPECT.text()), packed.contains(scripts::INSPECT.hash()))
        };
        assert_eq!(words(&mut library), (false, true, false));
        assert_eq!(words(&mut library), (true, false, true));
        library.forget();
        assert_eq!(words(&mut library), (false, true, false));
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
