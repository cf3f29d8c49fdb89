//! Encodes requests to a node as commands for its server.

use std::sync::LazyLock;
use std::time::Duration;

use self::arguments::{arguments, drawing, owned};
use super::resp::encode::CommandWriter;
use super::scripts;
use super::scripts::{Family, Library, Script};
use crate::node::{Request, SharedRequest};
use quorlock_protocol::{Claim, FenceHint, Mode, want_mark_sibling};

mod arguments;
pub(super) mod plain;
mod redisson;
pub(super) mod reply;

/// Encodes the request. Nearly all servers get the same bytes: they are encoded once, and copied for the
/// others.
pub(crate) fn encode_once(
    asked: &SharedRequest,
    history: Option<&str>,
    library: &mut Library,
    buffer: &mut Vec<u8>,
) -> ByHash {
    let usual = history.is_none() && library.has(script_of(asked, library));
    if !usual {
        return encode(asked, history, library, buffer);
    }
    write_once(asked, Form::Usual, buffer, |buffer| {
        encode(asked, history, library, buffer);
    });
    ByHash::Yes
}

/// Writes the bytes that were encoded for another server with the same `form`, or else calls `write`.
pub(crate) fn write_once(
    asked: &SharedRequest,
    form: Form,
    buffer: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    if let Some(command) = asked.encoded(form as u8) {
        buffer.extend_from_slice(command);
        return;
    }
    let begin = buffer.len();
    write(buffer);
    if let Some(command) = buffer.get(begin..) {
        asked.keep_encoded(form as u8, command);
    }
}

/// The form in which a request is encoded.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Form {
    /// A script that the server knows by its hash.
    Usual,
    /// A plain command.
    Plain,
    /// `SET NX` and the raising of the counter: see `commands`.
    Numbered,
    /// `DELIFEQ`, without a script.
    DeletionIfEqual,
    /// `DELEX`, without a script.
    DeletionWithCondition,
}

/// Appends the command for the request to the buffer: by hash if the `library` of the server has the script,
/// or else in full. The lock is the only declared key; see `acquire.lua`.
///
/// For a cluster member, the command includes the `history` under which alone it must be carried out; see
/// `member.lua`.
///
/// Returns whether the server must know the script already.
pub(crate) fn encode(
    request: &Request,
    history: Option<&str>,
    library: &mut Library,
    buffer: &mut Vec<u8>,
) -> ByHash {
    let script = script_of(request, library);
    let script = if history.is_some() { script.for_member() } else { script };
    let mut command = CommandWriter::begin(buffer);
    let by_hash = call(&mut command, script, library);
    match library.redisson() {
        Some(publishing) => redisson::arguments(&mut command, request, publishing),
        None => arguments(&mut command, request),
    }
    if let Some(history) = history {
        command.word(history);
    }
    command.end();
    by_hash
}

/// Appends the command that stores a token without looking for a tombstone.
pub(crate) fn encode_plain(claim: &Claim, ttl: Duration, buffer: &mut Vec<u8>) {
    let mut command = CommandWriter::begin(buffer);
    command.word("SET").word(claim.key()).word(claim.token().as_bytes());
    command.word("NX").word("PX").number(millis(ttl));
    command.end();
}

/// Appends the command that issues a fencing number for a token that is stored without one.
pub(crate) fn encode_draw(
    claim: &Claim,
    fence_hint: FenceHint,
    library: &mut Library,
    buffer: &mut Vec<u8>,
) -> ByHash {
    let mut command = CommandWriter::begin(buffer);
    let by_hash = call(&mut command, &scripts::DRAW, library);
    owned(&mut command, claim);
    drawing(&mut command, claim, Some(fence_hint));
    command.end();
    by_hash
}

/// Appends the command that notifies the next waiter for the lock at `key`, after a release without a script.
pub(crate) fn encode_notify_next(key: &str, library: &mut Library, buffer: &mut Vec<u8>) -> ByHash {
    let mut command = CommandWriter::begin(buffer);
    let by_hash = call(&mut command, &scripts::LEAVE_QUEUE, library);
    // No waiter has an empty name.
    let mark = want_mark_sibling(key);
    command.word("2").word(key).joined(&mark.pieces()).word("").joined(&mark.pieces());
    command.end();
    by_hash
}

/// Appends the name of the script to run.
fn call(command: &mut CommandWriter<'_>, script: &Script, library: &mut Library) -> ByHash {
    if library.knows(script) {
        command.word("EVALSHA").word(script.hash());
        ByHash::Yes
    } else {
        command.word("EVAL").word(script.text());
        ByHash::No
    }
}

/// Whether a command names its script by hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByHash {
    Yes,
    No,
}

fn script_of(request: &Request, library: &Library) -> &'static Script {
    if library.redisson().is_some() {
        return redisson::script_of(request);
    }
    if let Request::WriteBack { .. } = request {
        return &scripts::WRITE_BACK;
    }
    let several = || is_several(request).then_some(&scripts::SEVERAL);
    let family = if is_shared(request) { Some(&scripts::SHARED) } else { several() };
    if let Some(script) = family.and_then(|family| family.of(request)) {
        return script;
    }
    match request {
        Request::Acquire { fence_hint: None, .. } => &scripts::TAKE,
        Request::Acquire { .. } => &scripts::ACQUIRE,
        Request::Enqueue { .. } => &scripts::ENQUEUE,
        Request::WriteBack { .. } => &scripts::WRITE_BACK,
        Request::LeaveQueue { .. } => &scripts::LEAVE_QUEUE,
        Request::ListWaiters { .. } => &scripts::LIST_WAITERS,
        Request::LogHold { .. } => &scripts::LOG_HOLD,
        Request::ReadLog { .. } => &scripts::READ_LOG,
        Request::Transfer { .. } => &scripts::TRANSFER,
        Request::Renew { .. } => &scripts::RENEW,
        Request::Cancel { .. } => &scripts::CANCEL,
        Request::Release { .. } => &scripts::RELEASE,
        Request::Offer { .. } => &scripts::OFFER,
        Request::Inspect { .. } => &scripts::INSPECT,
        Request::AnnounceWriter { .. } => &scripts::INTEND,
        Request::WithdrawWriter { .. } | _ => &scripts::DESIST,
    }
}

/// Returns whether the request has a shared claim, and a script for those.
fn is_shared(request: &Request) -> bool {
    scripts::SHARED.of(request).is_some() && request.claim().is_some_and(|claim| claim.mode() == Mode::Shared)
}

/// Returns whether the request has a claim of several locks, and a script for those.
fn is_several(request: &Request) -> bool {
    scripts::SEVERAL.of(request).is_some() && request.claim().is_some_and(Claim::is_several)
}

impl Family {
    /// Returns the script for a request about such a claim. What is not for these claims has none: an acquisition in its
    /// place would take the lock.
    fn of(&self, request: &Request) -> Option<&'static LazyLock<Script>> {
        match request {
            Request::Acquire { .. } => Some(self.acquire),
            Request::Renew { .. } => Some(self.renew),
            Request::Cancel { .. } => Some(self.cancel),
            Request::Release { .. } | Request::Offer { .. } => Some(self.release),
            Request::WriteBack { .. }
            | Request::Transfer { .. }
            | Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. }
            | Request::Inspect { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | _ => None,
        }
    }
}

/// Rounds down, so that a key never outlives its TTL, and to at least 1 and at most `i64::MAX`, since Redis
/// refuses other values.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::reply::{CommandOutcome, decode};
    use super::*;
    use crate::node::{Capabilities, NodeErrorKind};
    use crate::redis::tests::{any_claim, inspect, plain, release};
    use quorlock_protocol::Token;

    fn written(request: &Request, library: &mut Library) -> (ByHash, String) {
        let mut buffer = Vec::new();
        let by_hash = encode(request, None, library, &mut buffer);
        (by_hash, String::from_utf8(buffer).unwrap())
    }

    #[test]
    fn a_shared_claim_is_never_a_plain_set() {
        let request = plain(&Arc::new(Claim::clone(&any_claim()).shared()));
        let (_, packed) = written(&request, &mut Library::default());
        assert!(packed.contains(scripts::ACQUIRE_SHARED.text()), "a reader would exclude readers: {packed}");
        assert!(decode(b"+OK\r\n", &request, "anna").is_err(), "not a reply of its script");
    }

    /// It would take the lock for the next token beside the present one's.
    #[test]
    fn a_transfer_of_a_share_or_of_several_is_no_acquisition() {
        let several = Claim::new("job".into(), Token::new(7, "")).and(Arc::new(["other".into()]));
        for claim in [Claim::clone(&any_claim()).shared(), several] {
            let (from, to) = (Arc::new(claim.clone()), Arc::new(claim));
            let request = Request::Transfer { from, to, ttl: Duration::from_secs(1), fence_hint: None };
            let refused = Capabilities::all().check(&request).unwrap_err();
            assert_eq!(refused.kind(), NodeErrorKind::Unsupported);
            let (_, packed) = written(&request, &mut Library::default());
            assert!(packed.contains(scripts::TRANSFER.text()), "{packed}");
        }
    }

    #[test]
    fn a_cluster_member_acts_under_its_history_only() {
        for request in [inspect(), plain(&any_claim())] {
            let (mut library, mut buffer) = (Library::default(), Vec::new());
            encode(&request, Some("f00"), &mut library, &mut buffer);
            let packed = String::from_utf8(buffer).unwrap();
            assert!(packed.contains("master_replid:"), "its history is not checked: {packed}");
            assert!(packed.ends_with("\r\nf00\r\n"), "{packed}");
            let read = decode(b"*1\r\n$7\r\ndemoted\r\n", &request, "anna");
            assert_eq!(read, Ok(CommandOutcome::Demoted));
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
            encode_plain(&any_claim(), ttl, &mut buffer);
            let packed = String::from_utf8(buffer).unwrap();
            assert!(packed.ends_with(&format!("\r\n{last}\r\n")), "{packed}");
        }
    }

    #[test]
    fn a_script_is_sent_in_full_once_and_after_a_flush() {
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
    fn a_request_is_copied_only_for_the_same_encoding() {
        let asked = SharedRequest::from(release(&any_claim()));
        let written = |asked: &SharedRequest, history: Option<&str>, library: &mut Library| {
            let mut buffer = b"before".to_vec();
            let by_hash = encode_once(asked, history, library, &mut buffer);
            (by_hash, String::from_utf8(buffer.split_off(6)).unwrap())
        };
        let (mut knows, full) = (Library::default(), scripts::RELEASE.text());
        let (by_hash, first) = written(&asked, None, &mut knows);
        assert!(by_hash == ByHash::No && first.contains(full) && asked.encoded(Form::Usual as u8).is_none());
        let short = written(&asked, None, &mut knows);
        assert!(short.0 == ByHash::Yes && asked.encoded(Form::Usual as u8) == Some(short.1.as_bytes()));
        assert_eq!(written(&asked, None, &mut knows), short);
        assert_eq!(
            written(&asked, None, &mut Library::default()),
            (ByHash::No, first),
            "it knows no script yet"
        );
        let (_, of_member) = written(&asked, Some("f00"), &mut knows);
        assert!(of_member.ends_with("\r\nf00\r\n"), "a cluster member gets another command: {of_member}");

        // Servers with different forms do not share bytes either.
        let (mixed, mut buffer) = (SharedRequest::from(release(&any_claim())), Vec::new());
        write_once(&mixed, Form::Numbered, &mut buffer, |buffer| buffer.extend_from_slice(b"fast"));
        assert_eq!(written(&mixed, None, &mut knows), short);
        write_once(&mixed, Form::Numbered, &mut buffer, |_| panic!("it is encoded already"));
        assert_eq!(buffer, b"fastfast");
    }
}
