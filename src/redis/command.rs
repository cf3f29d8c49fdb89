//! Questions as commands, and replies as votes.

use std::borrow::Cow;
use std::time::Duration;

use redis::Value;

use super::admission::{Ask, Stage};
use super::error;
use super::error::{Whom, explain, unexpected};
use super::resp::decode::{RespReader, RespValue};
use super::resp::encode::Request;
use super::scripts;
use super::scripts::{Family, Library, Script};
use super::server_error::{ServerError, ServerErrorKind};
use crate::node::{Asked, Expiry, Holding, NodeError, Question, Vote};
use crate::protocol::{
    Claim, Draw, FencingToken, Mode, Token, fence_counter_key, intents_sibling, line_keys, readers_sibling,
};

pub(super) mod transaction;

/// As `encode`. Nearly all servers are sent the same: it is written once, and copied for the others.
pub(crate) fn encode_once(
    asked: &Asked,
    history: Option<&str>,
    library: &mut Library,
    buffer: &mut Vec<u8>,
) -> ByHash {
    let usual = history.is_none() && library.has(script_of(asked));
    if !usual {
        return encode(asked, history, library, buffer);
    }
    write_once(asked, Form::Usual, buffer, |buffer| {
        encode(asked, history, library, buffer);
    });
    ByHash::Yes
}

/// Writes what was written for another server that is asked in the same form, or else what `write` does.
pub(crate) fn write_once(asked: &Asked, form: Form, buffer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if let Some(request) = asked.request(form as u8) {
        buffer.extend_from_slice(request);
        return;
    }
    let begin = buffer.len();
    write(buffer);
    if let Some(request) = buffer.get(begin..) {
        asked.keep_request(form as u8, request);
    }
}

/// In which form a server is asked.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Form {
    /// By a script that it knows.
    Usual,
    /// By a plain command.
    Plain,
    /// Without a script: see `transaction`.
    Swift,
    /// Without one, by `DELIFEQ`.
    DeletionIfEqual,
    /// Without one, by `DELEX`.
    DeletionWithCondition,
}

/// Writes the request that asks the question, as short as the `library` of the server allows, behind
/// what is in the buffer. The lock is the only declared key; see `acquire.lua`.
///
/// A member of a cluster is told its `history`, under which alone it is to act; see `member.lua`.
///
/// Says whether the server must know the script already.
pub(crate) fn encode(
    question: &Question,
    history: Option<&str>,
    library: &mut Library,
    buffer: &mut Vec<u8>,
) -> ByHash {
    let script = script_of(question);
    let script = if history.is_some() { script.for_member() } else { script };
    let mut request = Request::begin(buffer);
    let by_hash = call(&mut request, script, library);
    arguments(&mut request, question);
    if let Some(history) = history {
        request.word(history);
    }
    request.end();
    by_hash
}

/// Writes the command that stores a token, and looks for no tombstone.
pub(crate) fn encode_plain(claim: &Claim, ttl: Duration, buffer: &mut Vec<u8>) {
    let mut request = Request::begin(buffer);
    request.word("SET").word(claim.key()).word(claim.token().as_bytes());
    request.word("NX").word("PX").number(millis(ttl));
    request.end();
}

/// Writes the request for the number of a token that stands there without one.
pub(crate) fn encode_draw(claim: &Claim, draw: Draw, library: &mut Library, buffer: &mut Vec<u8>) -> ByHash {
    let mut request = Request::begin(buffer);
    let by_hash = call(&mut request, &scripts::DRAW, library);
    owned(&mut request, claim);
    drawing(&mut request, claim, Some(draw));
    request.end();
    by_hash
}

/// Names the script that is to be run.
fn call(request: &mut Request<'_>, script: &Script, library: &mut Library) -> ByHash {
    if library.knows(script) {
        request.word("EVALSHA").word(script.hash());
        ByHash::Yes
    } else {
        request.word("EVAL").word(script.text());
        ByHash::No
    }
}

/// Whether a request names its script by the hash of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByHash {
    Yes,
    No,
}

fn script_of(question: &Question) -> &'static Script {
    if is_shared(question) {
        return scripts::SHARED.of(question);
    }
    if is_several(question) {
        return scripts::SEVERAL.of(question);
    }
    match question {
        Question::Acquire { draw: None, .. } => &scripts::TAKE,
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
        Question::Forget { .. } => &scripts::FORGET,
    }
}

/// Whether it is about a claim that shares its lock.
fn is_shared(question: &Question) -> bool {
    question.claim().is_some_and(|claim| claim.mode() == Mode::Shared)
}

/// Whether it is about a claim of several locks.
fn is_several(question: &Question) -> bool {
    question.claim().is_some_and(Claim::is_several)
}

impl Family {
    /// There is no order of turns among those who share a lock or want different sets, and nothing that
    /// one of them could pass on: whoever is asked for that is asked to acquire.
    fn of(&self, question: &Question) -> &'static Script {
        match question {
            Question::WriteBack { .. } => self.write_back,
            Question::Renew { .. } => self.renew,
            Question::Cancel { .. } => self.cancel,
            Question::Release { .. } => self.release,
            Question::Acquire { .. }
            | Question::AcquireInTurn { .. }
            | Question::Transfer { .. }
            | Question::LeaveLine { .. }
            | Question::Inspect { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. } => self.acquire,
        }
    }
}

/// The keys and arguments of its script, in the order in which the script has them.
fn arguments(request: &mut Request<'_>, question: &Question) {
    if is_shared(question) {
        return shared_arguments(request, question);
    }
    if is_several(question) {
        return several_arguments(request, question);
    }
    match question {
        Question::Acquire { claim, ttl, draw } => {
            guarded(request, claim, *ttl);
            request.joined(&claim.tombstone_key().pieces()).joined(&claim.want_mark_key().pieces());
            drawing(request, claim, *draw);
        }
        Question::AcquireInTurn { claim, ttl, ticket, patience, draw } => {
            guarded(request, claim, *ttl);
            request.number(ticket.wall_micros()).word(ticket.name());
            // None is no patience at all, and not the least that there is.
            request.number(if patience.is_zero() { 0 } else { millis(*patience) });
            request.joined(&claim.tombstone_key().pieces());
            let [order, until] = line_keys(claim.key());
            request.word(order).word(until);
            drawing(request, claim, *draw);
        }
        Question::WriteBack { claim, fencing_token: fence } => {
            owned(request, claim).joined(&claim.fence_counter_key().pieces()).number(fence.get());
        }
        Question::LeaveLine { key, ticket } => {
            let [order, until] = line_keys(key);
            request.word("2").word(order).word(until).word(ticket.name());
        }
        Question::Transfer { from, to, ttl, draw } => {
            owned(request, from).word(to.token().as_bytes()).number(millis(*ttl));
            request.joined(&to.tombstone_key().pieces());
            drawing(request, to, *draw);
        }
        Question::Renew { claim, ttl, fencing_token: fence } => {
            guarded(request, claim, *ttl).joined(&claim.tombstone_key().pieces());
            numbered(request, claim, *fence);
        }
        Question::Cancel { claim, linger } => {
            guarded(request, claim, *linger).joined(&claim.tombstone_key().pieces());
        }
        Question::Release { claim } => {
            owned(request, claim).joined(&claim.want_mark_key().pieces());
        }
        Question::Inspect { key } => {
            request.word("1").word(&**key).joined(&fence_counter_key(key).pieces());
            request.joined(&readers_sibling(key).pieces());
        }
        Question::Intend { key, ticket, patience } => {
            request.word("1").word(&**key).joined(&intents_sibling(key).pieces());
            request.word(ticket.name()).number(millis(*patience));
        }
        Question::Desist { key, ticket } => {
            request.word("1").word(&**key).joined(&intents_sibling(key).pieces()).word(ticket.name());
        }
        Question::Forget { key } => {
            request.word("1").word(&**key).joined(&fence_counter_key(key).pieces());
        }
    }
}

/// As `arguments`, for a claim that shares its lock.
fn shared_arguments(request: &mut Request<'_>, question: &Question) {
    match question {
        Question::Acquire { claim, ttl, draw }
        | Question::AcquireInTurn { claim, ttl, draw, .. }
        | Question::Transfer { to: claim, ttl, draw, .. } => {
            guarded(request, claim, *ttl);
            request.joined(&claim.tombstone_key().pieces()).joined(&claim.want_mark_key().pieces());
            request.joined(&readers_sibling(claim.key()).pieces());
            request.joined(&intents_sibling(claim.key()).pieces());
            drawing(request, claim, *draw);
        }
        Question::Renew { claim, ttl, fencing_token: fence } => {
            guarded(request, claim, *ttl).joined(&claim.tombstone_key().pieces());
            request.joined(&readers_sibling(claim.key()).pieces());
            numbered(request, claim, *fence);
        }
        Question::WriteBack { claim, fencing_token: fence } => {
            owned(request, claim).joined(&claim.fence_counter_key().pieces()).number(fence.get());
            request.joined(&readers_sibling(claim.key()).pieces());
        }
        Question::Cancel { claim, linger } => {
            guarded(request, claim, *linger).joined(&claim.tombstone_key().pieces());
            request.joined(&readers_sibling(claim.key()).pieces());
        }
        Question::Release { claim } => {
            owned(request, claim).joined(&readers_sibling(claim.key()).pieces());
        }
        Question::LeaveLine { .. }
        | Question::Inspect { .. }
        | Question::Intend { .. }
        | Question::Desist { .. }
        | Question::Forget { .. } => {}
    }
}

/// As `arguments`, for a claim of several locks: the same for all its scripts.
fn several_arguments(request: &mut Request<'_>, question: &Question) {
    let (time, number, lead) = match question {
        Question::Acquire { ttl, draw, .. }
        | Question::AcquireInTurn { ttl, draw, .. }
        | Question::Transfer { ttl, draw, .. } => {
            (*ttl, draw.map(|draw| draw.hint), draw.map_or(Duration::ZERO, |draw| draw.lead))
        }
        Question::Renew { ttl, fencing_token: fence, .. } => (*ttl, *fence, Duration::ZERO),
        Question::WriteBack { fencing_token: fence, .. } => (Duration::ZERO, Some(*fence), Duration::ZERO),
        Question::Cancel { linger, .. } => (*linger, None, Duration::ZERO),
        Question::Release { .. }
        | Question::LeaveLine { .. }
        | Question::Inspect { .. }
        | Question::Intend { .. }
        | Question::Desist { .. }
        | Question::Forget { .. } => (Duration::ZERO, None, Duration::ZERO),
    };
    let Some(claim) = question.claim() else { return };
    request.number(u64::try_from(claim.keys().count()).unwrap_or(u64::MAX));
    for key in claim.keys() {
        request.word(&**key);
    }
    request.word(claim.token().as_bytes()).number(millis(time));
    match number {
        Some(number) => request.number(number.get()),
        None => request.word(""),
    };
    request.number(micros(lead));
    for siblings in claim.siblings() {
        for sibling in siblings {
            request.joined(&sibling.pieces());
        }
    }
}

/// What the answer of its script to the question says. The server may be broken or hostile: whatever is not a
/// vote is an error, and never a panic.
pub(crate) fn decode(answer: &[u8], question: &Question, user: &str) -> Result<Reading, NodeError> {
    if answer == DONE {
        // Nearly all answers are this, and need not be taken apart.
        return Ok(Reading::Said { vote: Vote::Granted, fence: None });
    }
    if let Some(refusal) = error_in(answer, "EVAL", question, user) {
        return refusal;
    }
    said(RespReader::of(answer), question).ok_or_else(|| unexpected("unexpected answer to a vote"))
}

/// What the answer of the plain command to the question says.
pub(crate) fn decode_plain(answer: &[u8], question: &Question, user: &str) -> Result<Reading, NodeError> {
    if answer == STORED {
        return Ok(Reading::Said { vote: Vote::Granted, fence: None });
    }
    if let Some(refusal) = error_in(answer, "SET", question, user) {
        return refusal;
    }
    match RespReader::of(answer).next() {
        Some(RespValue::Text(b"OK")) => Ok(Reading::Said { vote: Vote::Granted, fence: None }),
        Some(RespValue::Nothing) => Ok(Reading::Refused),
        Some(RespValue::Text(_) | RespValue::Number(_) | RespValue::List(_)) | None => {
            Err(unexpected("unexpected answer to SET"))
        }
    }
}

/// What an error says to whoever has asked by the `command`, if it is one.
fn error_in(
    answer: &[u8],
    command: &'static str,
    question: &Question,
    user: &str,
) -> Option<Result<Reading, NodeError>> {
    if !matches!(answer.first(), Some(b'-' | b'!')) {
        return None;
    }
    let Ok(Value::ServerError(error)) = redis::parse_redis_value(answer) else {
        return Some(Err(unexpected("an error that cannot be read")));
    };
    let error = ServerError::read(&error);
    Some(if *error.kind() == ServerErrorKind::UnknownScript {
        Ok(Reading::Forgotten)
    } else if *error.kind() == ServerErrorKind::ReadOnlyReplica {
        Ok(Reading::Demoted)
    } else {
        let key = key_of(question);
        Err(explain(error, error::Asked { command, key: &key, user, whom: Whom::Server }))
    })
}

/// What a plain command says that has stored the token.
pub(crate) const STORED: &[u8] = b"+OK\r\n";
/// What a script says that has done as it was asked, and has no number to tell.
pub(crate) const DONE: &[u8] = b"*1\r\n$7\r\ngranted\r\n";

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
    /// A `SET NX` was refused, which does not say for whom.
    Refused,
    /// The token was stored, and the counter is ahead of the number.
    Unnumbered,
    /// Some of the requests that make up the question have failed: the token may be stored.
    Unclear,
    /// It has become a replica since it introduced itself.
    Demoted,
}

/// What a plain command does as well as a script, for a server that lets nothing come late (rule I-41).
/// What was refused is asked by a script, which tells who has it.
pub(crate) fn plainly(ask: &Ask) -> Option<(&Claim, Duration)> {
    let Question::Acquire { claim, ttl, draw: None } = &*ask.question else { return None };
    let alone = claim.mode() == Mode::Exclusive && !claim.is_several();
    (alone && ask.stage == Stage::Fresh).then_some((claim, *ttl))
}

fn said(mut parts: RespReader<'_>, question: &Question) -> Option<Reading> {
    let RespValue::List(_) = parts.next()? else { return None };
    let RespValue::Text(word) = parts.next()? else { return None };
    let mut vote = match word {
        b"granted" => Vote::Granted,
        b"wanted" => Vote::Wanted,
        b"restored" => Vote::Restored,
        b"behind" => Vote::Behind,
        b"ahead" => Vote::Ahead,
        b"free" => Vote::Free,
        b"demoted" => return Some(Reading::Demoted),
        b"held" => {
            let (RespValue::Text(token), RespValue::Number(left_ms)) = (parts.next()?, parts.next()?) else {
                return None;
            };
            let token = Token::found(token);
            match left_ms {
                // As PTTL has it: no such key any more, and no end.
                -2 => Vote::Free,
                -1 => Vote::from(Holding::new(token, Expiry::Never)),
                left_ms => {
                    let left = Duration::from_millis(u64::try_from(left_ms).ok()?);
                    Vote::from(Holding::new(token, Expiry::In(left)))
                }
            }
        }
        _ => return None,
    };
    let fence = match parts.next() {
        None | Some(RespValue::Number(0)) => None,
        Some(RespValue::Number(number)) => Some(FencingToken::new(u64::try_from(number).ok()?)?),
        Some(RespValue::Text(_) | RespValue::List(_) | RespValue::Nothing) => return None,
    };
    if let Vote::Held(holding) = &mut vote
        && let Some(claim) = question.claim().filter(|claim| claim.is_several())
    {
        // Which of the keys it is, counted from one.
        let Some(RespValue::Number(place)) = parts.next() else { return None };
        let place = usize::try_from(place).ok()?.checked_sub(1)?;
        holding.key = Some(claim.keys().nth(place)?.clone());
    }
    if let (Vote::Held(holding), Question::Acquire { .. }) = (&mut vote, question)
        && !is_shared(question)
    {
        holding.first = match parts.next() {
            // Some only leave a mark, and no name.
            Some(RespValue::Text(token)) => Some(token).filter(|token| token.len() > 1).map(Token::found),
            None => None,
            Some(RespValue::Number(_) | RespValue::List(_) | RespValue::Nothing) => return None,
        };
    }
    if let Vote::Held(holding) = &mut vote {
        let readers = parts.map(|part| match part {
            RespValue::Text(token) => Some(Token::found(token)),
            RespValue::Number(_) | RespValue::List(_) | RespValue::Nothing => None,
        });
        holding.readers = readers.collect::<Option<_>>()?;
    }
    Some(Reading::Said { vote, fence })
}

/// The lock, with a token.
fn owned<'a, 'b>(request: &'a mut Request<'b>, claim: &Claim) -> &'a mut Request<'b> {
    request.word("1").word(claim.key()).word(claim.token().as_bytes())
}

/// The same, with a time.
fn guarded<'a, 'b>(request: &'a mut Request<'b>, claim: &Claim, time: Duration) -> &'a mut Request<'b> {
    owned(request, claim).number(millis(time))
}

/// Counter, hint and lead, or nothing instead.
fn drawing(request: &mut Request<'_>, claim: &Claim, draw: Option<Draw>) {
    match draw {
        Some(Draw { hint, lead, .. }) => {
            request.joined(&claim.fence_counter_key().pieces()).number(hint.get()).number(micros(lead));
        }
        None => {
            request.word("").word("").word("");
        }
    }
}

/// Counter and number, or nothing instead.
fn numbered(request: &mut Request<'_>, claim: &Claim, fence: Option<FencingToken>) {
    match fence {
        Some(fence) => {
            request.joined(&claim.fence_counter_key().pieces()).number(fence.get());
        }
        None => {
            request.word("").word("");
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Rounded down, so that a key never outlives what was asked, and at least 1, since Redis refuses 0
/// and whatever is beyond its signed numbers.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX.unsigned_abs())
}

/// The key of the lock, or the keys of several: for messages.
fn key_of(question: &Question) -> Cow<'_, str> {
    if let Some(claim) = question.claim().filter(|claim| claim.is_several()) {
        return claim.keys().map(|key| &**key).collect::<Vec<_>>().join("` or `").into();
    }
    key_of_one(question).into()
}

pub(crate) fn key_of_one(question: &Question) -> &str {
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
        | Question::Forget { key }
        | Question::Inspect { key } => key,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::node::NodeErrorKind;
    use crate::protocol::SHARED_MARKER;

    fn claim() -> Arc<Claim> {
        Arc::new(Claim::new("orders/42".into(), Token::new(7, "db-7:1")))
    }

    fn inspect() -> Question {
        Question::Inspect { key: "orders/42".into() }
    }

    fn list(items: &[&str]) -> Vec<u8> {
        let texts: Vec<_> = items.iter().map(|item| format!("${}\r\n{item}\r\n", item.len())).collect();
        format!("*{}\r\n{}", items.len(), texts.concat()).into_bytes()
    }

    fn unnumbered(vote: Vote) -> Reading {
        Reading::Said { vote, fence: None }
    }

    fn held(left_ms: i64) -> Vec<u8> {
        [b"*3\r\n+held\r\n$1\r\n\xff\r\n:", left_ms.to_string().as_bytes(), b"\r\n"].concat()
    }

    fn written(question: &Question, library: &mut Library) -> (ByHash, String) {
        let mut buffer = Vec::new();
        let by_hash = encode(question, None, library, &mut buffer);
        (by_hash, String::from_utf8(buffer).unwrap())
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
            (held(-1), Vote::from(Holding::new(Token::found(b"\xff"), Expiry::Never))),
            (held(5), Vote::from(Holding::new(Token::found(b"\xff"), Expiry::In(Duration::from_millis(5))))),
        ] {
            assert_eq!(decode(&reply, &inspect(), "anna"), Ok(unnumbered(vote)));
        }
    }

    #[test]
    fn a_number_follows_the_vote_and_nought_is_none() {
        let numbered = |number: i64| format!("*2\r\n+granted\r\n:{number}\r\n").into_bytes();
        for (number, fence) in [(0, None), (42, FencingToken::new(42))] {
            let read = decode(&numbered(number), &inspect(), "anna");
            assert_eq!(read, Ok(Reading::Said { vote: Vote::Granted, fence }));
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
        assert_eq!(read, Ok(Reading::Said { vote: holding.into(), fence: FencingToken::new(9) }));
        for rest in [":1\r\n:2\r\n", "$1\r\na\r\n_\r\n", "*1\r\n+a\r\n+b\r\n"] {
            assert!(decode(shared(rest).as_bytes(), &inspect(), "anna").is_err(), "{rest:?}");
        }
    }

    #[test]
    fn a_shared_claim_is_never_a_plain_set() {
        let shared = Arc::new(Claim::clone(&claim()).shared());
        let question = Question::Acquire { claim: shared, ttl: Duration::from_secs(1), draw: None };
        let (_, packed) = written(&question, &mut Library::default());
        assert!(packed.contains(scripts::ACQUIRE_SHARED.text()), "a reader would keep readers out: {packed}");
        assert!(decode(b"+OK\r\n", &question, "anna").is_err(), "no answer of its script");
    }

    #[test]
    fn a_member_of_a_cluster_acts_under_its_history_only() {
        let plain = Question::Acquire { claim: claim(), ttl: Duration::from_secs(1), draw: None };
        for question in [inspect(), plain] {
            let (mut library, mut buffer) = (Library::default(), Vec::new());
            encode(&question, Some("f00"), &mut library, &mut buffer);
            let packed = String::from_utf8(buffer).unwrap();
            assert!(packed.contains("master_replid:"), "nobody asks for its history: {packed}");
            assert!(packed.ends_with("\r\nf00\r\n"), "{packed}");
            let read = decode(&list(&["demoted"]), &question, "anna");
            assert_eq!(read, Ok(Reading::Demoted));
        }
    }

    #[test]
    fn a_plain_set_is_granted_or_refused() {
        let plain = Question::Acquire { claim: claim(), ttl: Duration::from_secs(1), draw: None };
        assert_eq!(decode_plain(STORED, &plain, "anna"), Ok(unnumbered(Vote::Granted)));
        for nothing in ["_\r\n", "$-1\r\n"] {
            assert_eq!(decode_plain(nothing.as_bytes(), &plain, "anna"), Ok(Reading::Refused));
        }
        assert!(decode_plain(&list(&["granted"]), &plain, "anna").is_err(), "no answer of SET");
        assert!(decode(STORED, &plain, "anna").is_err(), "no answer of a script");
    }

    #[test]
    fn anything_else_is_an_error_that_may_pass() {
        for reply in [
            b"$-1\r\n".to_vec(),
            b"+OK\r\n".to_vec(),
            list(&[]),
            list(&["yes"]),
            list(&["held", "x"]),
            held(-3),
        ] {
            let error = decode(&reply, &inspect(), "anna").unwrap_err();
            assert!(matches!(&error, NodeError::Failed { kind: NodeErrorKind::Other, .. }), "{error:?}");
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
            let mut buffer = Vec::new();
            encode_plain(&claim(), ttl, &mut buffer);
            let packed = String::from_utf8(buffer).unwrap();
            assert!(packed.ends_with(&format!("\r\n{last}\r\n")), "{packed}");
        }
    }

    #[test]
    fn a_script_is_sent_in_full_once_and_again_when_it_was_forgotten() {
        let mut library = Library::default();
        let words = |library: &mut Library| {
            let (by_hash, packed) = written(&inspect(), library);
            (by_hash, packed.contains(scripts::INSPECT.text()), packed.contains(scripts::INSPECT.hash()))
        };
        assert_eq!(words(&mut library), (ByHash::No, true, false));
        assert_eq!(words(&mut library), (ByHash::Yes, false, true));
        library.forget();
        assert_eq!(words(&mut library), (ByHash::No, true, false));
    }

    #[test]
    fn a_request_is_copied_for_servers_that_are_sent_the_same_and_no_others() {
        let asked = Asked::from(Question::Release { claim: claim() });
        let written = |asked: &Asked, history: Option<&str>, library: &mut Library| {
            let mut buffer = b"before".to_vec();
            let by_hash = encode_once(asked, history, library, &mut buffer);
            (by_hash, String::from_utf8(buffer.split_off(6)).unwrap())
        };
        let (mut knows, full) = (Library::default(), scripts::RELEASE.text());
        let (by_hash, first) = written(&asked, None, &mut knows);
        assert!(by_hash == ByHash::No && first.contains(full) && asked.request(Form::Usual as u8).is_none());
        let short = written(&asked, None, &mut knows);
        assert!(short.0 == ByHash::Yes && asked.request(Form::Usual as u8) == Some(short.1.as_bytes()));
        assert_eq!(written(&asked, None, &mut knows), short);
        assert_eq!(written(&asked, None, &mut Library::default()), (ByHash::No, first), "it knows no script");
        let (_, of_member) = written(&asked, Some("f00"), &mut knows);
        assert!(of_member.ends_with("\r\nf00\r\n"), "a member of a cluster is asked otherwise: {of_member}");

        // Nor are servers that are asked in different forms.
        let (mixed, mut buffer) = (Asked::from(Question::Release { claim: claim() }), Vec::new());
        write_once(&mixed, Form::Swift, &mut buffer, |buffer| buffer.extend_from_slice(b"swift"));
        assert_eq!(written(&mixed, None, &mut knows), short);
        write_once(&mixed, Form::Swift, &mut buffer, |_| panic!("it is written already"));
        assert_eq!(buffer, b"swiftswift");
    }

    fn replies() -> impl Strategy<Value = String> {
        let word = prop_oneof!["granted", "wanted", "restored", "behind", "free", "held", ".{0,5}"];
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
