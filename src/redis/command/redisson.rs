//! Encodes requests for a server in Redisson's layout.

use super::arguments::{guarded, hinted, owned};
use super::millis;
use crate::node::Request;
use crate::redis::redisson::{Companion, Publishing};
use crate::redis::resp::encode::CommandWriter;
use crate::redis::scripts::{self, Script};
use quorlock_protocol::Claim;

/// Returns the script of the request. Others than these are refused before: see `capabilities` in `redisson`.
pub(super) fn script_of(request: &Request) -> &'static Script {
    match request {
        Request::Acquire { .. } => &scripts::REDISSON_ACQUIRE,
        Request::Transfer { .. } => &scripts::REDISSON_TRANSFER,
        Request::Renew { .. } => &scripts::REDISSON_RENEW,
        Request::Release { .. } => &scripts::REDISSON_RELEASE,
        Request::Cancel { .. } => &scripts::REDISSON_CANCEL,
        Request::WriteBack { .. } => &scripts::REDISSON_WRITE_BACK,
        Request::Inspect { .. }
        | Request::Offer { .. }
        | Request::Enqueue { .. }
        | Request::LeaveQueue { .. }
        | Request::ListWaiters { .. }
        | Request::LogHold { .. }
        | Request::ReadLog { .. }
        | Request::AnnounceWriter { .. }
        | Request::WithdrawWriter { .. }
        | _ => &scripts::REDISSON_INSPECT,
    }
}

/// Appends the keys and arguments of the request's script.
pub(super) fn arguments(command: &mut CommandWriter<'_>, request: &Request, publishing: Publishing) {
    match request {
        Request::Acquire { claim, ttl, fence_hint } => {
            guarded(command, claim, *ttl).joined(&claim.tombstone_key().pieces());
            command.joined(&Companion::Queue.of(claim.key()).pieces());
            hinted(command, &Companion::Token.of(claim.key()).pieces(), *fence_hint);
            command.joined(&Companion::Times.of(claim.key()).pieces());
        }
        Request::Transfer { from, to, ttl, fence_hint } => {
            guarded(command, to, *ttl).joined(&to.tombstone_key().pieces());
            command.joined(&Companion::Queue.of(to.key()).pieces());
            hinted(command, &Companion::Token.of(to.key()).pieces(), *fence_hint);
            command.word(from.token().as_bytes()).joined(&Companion::Times.of(to.key()).pieces());
        }
        Request::Renew { claim, ttl, fencing_token } => {
            guarded(command, claim, *ttl).joined(&claim.tombstone_key().pieces());
            command.joined(&Companion::Queue.of(claim.key()).pieces());
            match fencing_token {
                Some(number) => {
                    command.joined(&Companion::Token.of(claim.key()).pieces()).number(number.get());
                }
                None => {
                    command.word("").word("");
                }
            }
            command.joined(&Companion::Times.of(claim.key()).pieces());
        }
        Request::Release { claim } => write_release(command, claim, publishing),
        Request::Cancel { claim, linger } => {
            write_release(command, claim, publishing);
            command.joined(&claim.tombstone_key().pieces()).number(millis(*linger));
        }
        Request::WriteBack { claim, fencing_token } => {
            owned(command, claim).joined(&Companion::Token.of(claim.key()).pieces());
            command.number(fencing_token.get());
        }
        Request::Inspect { .. }
        | Request::Offer { .. }
        | Request::Enqueue { .. }
        | Request::LeaveQueue { .. }
        | Request::ListWaiters { .. }
        | Request::LogHold { .. }
        | Request::ReadLog { .. }
        | Request::AnnounceWriter { .. }
        | Request::WithdrawWriter { .. }
        | _ => {
            let key = request.key();
            command.word("1").word(key).word("").joined(&Companion::Token.of(key).pieces());
            command.joined(&Companion::Queue.of(key).pieces()).joined(&Companion::Times.of(key).pieces());
        }
    }
}

/// Appends the lock, a token, the channel and the command that publishes there.
fn write_release(command: &mut CommandWriter<'_>, claim: &Claim, publishing: Publishing) {
    owned(command, claim).joined(&Companion::Channel.of(claim.key()).pieces()).word(publishing.command());
}
