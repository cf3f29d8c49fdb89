//! The keys and arguments of the scripts.

use std::time::Duration;

use super::super::resp::encode::CommandWriter;
use super::{is_several, is_shared, millis};
use crate::node::Request;
use quorlock_protocol::{
    Claim, FenceHint, FencingToken, LOG_EXPIRY, MOST_LOGGED, Mode, OTHERS_FOR, WaiterId, fence_counter_key,
    intents_sibling, log_sibling, micros, queue_entry, readers_sibling, turn_key, want_mark_sibling,
};

/// Appends the keys and arguments of the request's script, in the order in which the script expects them.
pub(super) fn arguments(command: &mut CommandWriter<'_>, request: &Request) {
    if let Request::WriteBack { claim, fencing_token } = request {
        return write_back(command, claim, *fencing_token);
    }
    if is_shared(request) {
        return shared_arguments(command, request);
    }
    if is_several(request) {
        return several_arguments(command, request);
    }
    match request {
        Request::Acquire { claim, ttl, fence_hint } => {
            guarded(command, claim, *ttl);
            command.joined(&claim.tombstone_key().pieces());
            drawing(command, claim, *fence_hint);
        }
        Request::Enqueue { key, waiter, elapsed, patience, turn, terms, context, others_seen } => {
            waiting(command, key, *waiter)
                .number(micros(*elapsed))
                .number(millis(*patience))
                .number(millis(*turn));
            command.joined(&want_mark_sibling(key).pieces());
            command.word(queue_entry(terms.as_deref(), context));
            command.number(if *others_seen { millis(OTHERS_FOR) } else { 0 });
        }
        Request::LeaveQueue { key, waiter } => {
            waiting(command, key, *waiter).joined(&want_mark_sibling(key).pieces());
        }
        Request::ListWaiters { key } => {
            command.word("1").word(&**key).joined(&want_mark_sibling(key).pieces());
        }
        Request::LogHold { key, hold, most } => {
            command.word("1").word(&**key).joined(&log_sibling(key).pieces()).word(hold.to_text());
            command.number(u64::try_from(*most).unwrap_or(u64::MAX)).number(millis(LOG_EXPIRY));
        }
        Request::ReadLog { key } => {
            command.word("1").joined(&log_sibling(key).pieces());
            command.number(u64::try_from(MOST_LOGGED).unwrap_or(u64::MAX));
        }
        Request::Transfer { from, to, ttl, fence_hint } => {
            owned(command, from).word(to.token().as_bytes()).number(millis(*ttl));
            command.joined(&to.tombstone_key().pieces());
            drawing(command, to, *fence_hint);
        }
        Request::Renew { claim, ttl, fencing_token: fence } => {
            guarded(command, claim, *ttl).joined(&claim.tombstone_key().pieces());
            numbered(command, claim, *fence);
        }
        Request::Cancel { claim, linger } => {
            guarded(command, claim, *linger).joined(&claim.tombstone_key().pieces());
        }
        Request::Release { claim } => {
            owned(command, claim).joined(&claim.want_mark_key().pieces());
        }
        Request::Offer { claim, next, queued, fence_hint } => {
            owned(command, claim).joined(&claim.want_mark_key().pieces());
            command.word(next.terms.token.as_bytes()).number(millis(next.terms.life));
            command.word(next.terms.channel(claim.key()));
            drawing(command, claim, *fence_hint);
            command.word(if *queued { next.waiter.to_string() } else { String::new() });
            command.joined(&next.terms.tombstone_key(claim.key()).pieces());
        }
        Request::Inspect { key, prefix_len } => {
            let prefix = key.get(..*prefix_len).unwrap_or_default();
            command.word("1").word(&**key).joined(&fence_counter_key(prefix, key).pieces());
            command.joined(&readers_sibling(key).pieces());
        }
        Request::AnnounceWriter { key, waiter, patience } => {
            command.word("1").word(&**key).joined(&intents_sibling(key).pieces());
            command.word(waiter.to_string()).number(millis(*patience));
        }
        Request::WithdrawWriter { key, waiter } => {
            command.word("1").word(&**key).joined(&intents_sibling(key).pieces()).word(waiter.to_string());
        }
        // Above: the same for all claims.
        Request::WriteBack { .. } | _ => {}
    }
}

/// Like `arguments`, for a shared claim.
fn shared_arguments(command: &mut CommandWriter<'_>, request: &Request) {
    match request {
        Request::Acquire { claim, ttl, fence_hint } => {
            guarded(command, claim, *ttl);
            command.joined(&claim.tombstone_key().pieces()).joined(&claim.want_mark_key().pieces());
            command.joined(&readers_sibling(claim.key()).pieces());
            command.joined(&intents_sibling(claim.key()).pieces());
            drawing(command, claim, *fence_hint);
        }
        Request::Renew { claim, ttl, fencing_token: fence } => {
            guarded(command, claim, *ttl).joined(&claim.tombstone_key().pieces());
            command.joined(&readers_sibling(claim.key()).pieces());
            numbered(command, claim, *fence);
        }
        Request::Cancel { claim, linger } => {
            guarded(command, claim, *linger).joined(&claim.tombstone_key().pieces());
            command.joined(&readers_sibling(claim.key()).pieces()).joined(&claim.want_mark_key().pieces());
        }
        Request::Release { claim } | Request::Offer { claim, .. } => {
            owned(command, claim)
                .joined(&readers_sibling(claim.key()).pieces())
                .joined(&claim.want_mark_key().pieces());
        }
        Request::Enqueue { .. }
        | Request::Transfer { .. }
        | Request::WriteBack { .. }
        | Request::LeaveQueue { .. }
        | Request::ListWaiters { .. }
        | Request::LogHold { .. }
        | Request::ReadLog { .. }
        | Request::Inspect { .. }
        | Request::AnnounceWriter { .. }
        | Request::WithdrawWriter { .. }
        | _ => {}
    }
}

/// Like `arguments`, for a claim of several locks: the same for all its scripts.
fn several_arguments(command: &mut CommandWriter<'_>, request: &Request) {
    let (time, number, lead) = match request {
        Request::Acquire { ttl, fence_hint, .. } => (
            *ttl,
            fence_hint.map(|fence_hint| fence_hint.hint),
            fence_hint.map_or(Duration::ZERO, |fence_hint| fence_hint.lead),
        ),
        Request::Renew { ttl, fencing_token: fence, .. } => (*ttl, *fence, Duration::ZERO),
        Request::Cancel { linger, .. } => (*linger, None, Duration::ZERO),
        Request::WriteBack { .. }
        | Request::Transfer { .. }
        | Request::Release { .. }
        | Request::Offer { .. }
        | Request::Enqueue { .. }
        | Request::LeaveQueue { .. }
        | Request::ListWaiters { .. }
        | Request::LogHold { .. }
        | Request::ReadLog { .. }
        | Request::Inspect { .. }
        | Request::AnnounceWriter { .. }
        | Request::WithdrawWriter { .. }
        | _ => (Duration::ZERO, None, Duration::ZERO),
    };
    let Some(claim) = request.claim() else { return };
    owned_together(command, claim).number(millis(time));
    match number {
        Some(number) => command.number(number.get()),
        None => command.word(""),
    };
    command.number(micros(lead));
    for siblings in claim.siblings() {
        for sibling in siblings {
            command.joined(&sibling.pieces());
        }
    }
}

/// Appends the arguments of a write-back: the same for all claims.
fn write_back(command: &mut CommandWriter<'_>, claim: &Claim, fencing_token: FencingToken) {
    owned_together(command, claim).number(fencing_token.get());
    match claim.mode() {
        Mode::Shared => command.joined(&readers_sibling(claim.key()).pieces()),
        Mode::Exclusive => command.word(""),
    };
    for [.., counter] in claim.siblings() {
        command.joined(&counter.pieces());
    }
}

/// Appends all locks and the token.
fn owned_together<'a, 'b>(command: &'a mut CommandWriter<'b>, claim: &Claim) -> &'a mut CommandWriter<'b> {
    command.number(u64::try_from(claim.keys().count()).unwrap_or(u64::MAX));
    for key in claim.keys() {
        command.word(&**key);
    }
    command.word(claim.token().as_bytes())
}

/// Appends the lock, the key of the waiter's turn, and the waiter's ID.
fn waiting<'a, 'b>(
    command: &'a mut CommandWriter<'b>,
    key: &str,
    waiter: WaiterId,
) -> &'a mut CommandWriter<'b> {
    command.word("2").word(key).word(turn_key(key, waiter)).word(waiter.to_string())
}

/// Appends the lock and a token.
pub(super) fn owned<'a, 'b>(command: &'a mut CommandWriter<'b>, claim: &Claim) -> &'a mut CommandWriter<'b> {
    command.word("1").word(claim.key()).word(claim.token().as_bytes())
}

/// Appends the lock, a token and a TTL.
pub(super) fn guarded<'a, 'b>(
    command: &'a mut CommandWriter<'b>,
    claim: &Claim,
    time: Duration,
) -> &'a mut CommandWriter<'b> {
    owned(command, claim).number(millis(time))
}

/// Appends counter, hint and lead, or empty words.
pub(super) fn drawing(command: &mut CommandWriter<'_>, claim: &Claim, fence_hint: Option<FenceHint>) {
    hinted(command, &claim.fence_counter_key().pieces(), fence_hint);
}

/// Appends the `counter`, given by its pieces, with hint and lead, or empty words.
pub(super) fn hinted(command: &mut CommandWriter<'_>, counter: &[&str], fence_hint: Option<FenceHint>) {
    match fence_hint {
        Some(FenceHint { hint, lead, .. }) => {
            command.joined(counter).number(hint.get()).number(micros(lead));
        }
        None => {
            command.word("").word("").word("");
        }
    }
}

/// Appends counter and number, or empty words.
pub(super) fn numbered(command: &mut CommandWriter<'_>, claim: &Claim, fence: Option<FencingToken>) {
    match fence {
        Some(fence) => {
            command.joined(&claim.fence_counter_key().pieces()).number(fence.get());
        }
        None => {
            command.word("").word("");
        }
    }
}
