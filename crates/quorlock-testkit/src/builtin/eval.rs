//! `EVAL` and `EVALSHA` of the known scripts.

use std::time::Duration;

use quorlock::node::{Expiry, Vote};
use quorlock::protocol::{FenceHint, FencingToken, Moment, queue_entry};
use quorlock::redis::scripts::{self, Script};
use quorlock::runtime::Mutex;

use super::Shared;
use super::words::{inbox_of, millis, pttl};
use crate::resp::Resp;
use crate::store::{Drawing, Enqueue, Failure, Offer, Place, ScriptResult, Several, Sharing, Store};

/// The scripts that a server has run, which can be called by their hashes.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    scripts: Mutex<Vec<&'static Script>>,
}

impl Loaded {
    fn add(&self, text: &[u8]) {
        let script = scripts::all().into_iter().find(|script| is(text, script));
        let mut loaded = self.scripts.lock();
        if let Some(script) = script
            && loaded.iter().all(|known| known.hash() != script.hash())
        {
            loaded.push(script);
        }
    }

    fn find(&self, hash: &[u8]) -> Option<&'static Script> {
        let loaded = self.scripts.lock();
        loaded.iter().find(|script| script.hash().as_bytes() == hash).copied()
    }

    /// `SCRIPT FLUSH`.
    pub(super) fn flush(&self) {
        self.scripts.lock().clear();
    }
}

/// Executes `EVALSHA hash numkeys key… argument…`.
pub(super) fn eval_by_hash(shared: &Shared, parts: &[Vec<u8>]) -> Resp {
    let [hash, rest @ ..] = parts else {
        return Resp::Error("ERR wrong number of arguments for 'evalsha' command".to_owned());
    };
    let Some(script) = shared.loaded.find(hash) else {
        return Resp::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
    };
    let parts: Vec<_> =
        std::iter::once(script.text().as_bytes().to_vec()).chain(rest.iter().cloned()).collect();
    eval(shared, &parts)
}

/// Executes `EVAL script numkeys key… argument…`.
pub(super) fn eval<'a>(shared: &Shared, parts: &'a [Vec<u8>]) -> Resp {
    let [script, count, rest @ ..] = parts else {
        return Resp::Error("ERR wrong number of arguments for 'eval' command".to_owned());
    };
    shared.loaded.add(script);
    let count = millis(count).and_then(|count| usize::try_from(count.as_millis()).ok());
    let Some((keys, arguments)) = count.and_then(|count| rest.split_at_checked(count)) else {
        return Resp::Error("ERR Number of keys can't be greater than number of args".to_owned());
    };
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    let time = |at: usize| arguments.get(at).and_then(|digits| millis(digits)).unwrap_or(Duration::ZERO);
    if let Some(answer) = shared.misbehave(script, &keys) {
        return answer;
    }
    let drawing = |counter, hint, lead| {
        let time = |digits| number(digits).map_or(Duration::ZERO, Duration::from_micros);
        let fence_hint = FenceHint::at(time(hint), None, time(lead));
        Drawing { counter, fence_hint }
    };
    // An empty name tells the scripts that no number is wanted.
    let drawing_if = |counter: &'a [u8], hint, lead| {
        Some(counter).filter(|counter| !counter.is_empty()).map(|counter| drawing(counter, hint, lead))
    };
    let fence = |digits| number(digits).and_then(FencingToken::new).unwrap_or(FencingToken::ZERO);
    let (now, mut store) = (shared.now(), shared.store());
    if let Some(told) = several(&mut store, now, script, &keys, &arguments) {
        return told.map_or_else(|failure| Resp::Error(failure.to_string()), |told| answer(&told, &keys));
    }
    if let Some(told) = waiting(&mut store, now, script, &keys, &arguments) {
        return told.map_or_else(|failure| Resp::Error(failure.to_string()), |told| answer(&told, &keys));
    }
    if let Some(told) = notes(&mut store, (now, shared.clock.wall()), script, &keys, &arguments) {
        return told;
    }
    let told = match (script.as_slice(), keys.as_slice(), arguments.as_slice()) {
        (script, [key], [token, _, tomb, counter, hint, lead]) if is(script, &scripts::ACQUIRE) => {
            store.acquire(now, key, tomb, token, time(1), drawing(counter, hint, lead))
        }
        // The other arguments are those of `ACQUIRE`, and empty.
        (script, [key], [token, _, tomb, ..]) if is(script, &scripts::TAKE) => {
            store.take(now, key, tomb, token, time(1))
        }
        (script, [_], [counter]) if is(script, &scripts::FORGET) => Ok(store.forget(now, counter).into()),
        (script, [key], [token, counter, hint, lead]) if is(script, &scripts::DRAW) => {
            store.draw_for(now, key, token, drawing(counter, hint, lead))
        }
        (script, [key], [token, _, tomb, counter, number]) if is(script, &scripts::RENEW) => {
            let fence = Some((*counter, fence(number))).filter(|(counter, _)| !counter.is_empty());
            store.renew(now, key, tomb, token, time(1), fence)
        }
        (script, [key], [token, counter, number]) if is(script, &scripts::WRITE_BACK) => {
            store.write_back(now, key, token, counter, fence(number))
        }
        (script, [key], [token, mark]) if is(script, &scripts::RELEASE) => {
            store.release(now, key, mark, token)
        }
        (script, [key], [token, mark, next, _, inbox, counter, hint, lead, name, tombstone])
            if is(script, &scripts::OFFER) =>
        {
            let (life, drawing) = (time(3), drawing_if(counter, hint, lead));
            let inbox = inbox_of(inbox).unwrap_or_default();
            let offer = Offer { token, mark, next, life, inbox, drawing, name, tombstone };
            shared.offer(&mut store, now, key, &offer)
        }
        (script, [key], [token, _, tomb]) if is(script, &scripts::CANCEL) => {
            store.cancel(now, key, tomb, token, time(1))
        }
        (script, [key], [from, to, _, tomb, counter, hint, lead]) if is(script, &scripts::TRANSFER) => {
            store.transfer(now, key, tomb, [from, to], time(2), drawing_if(counter, hint, lead))
        }
        (script, [key], [counter, readers]) if is(script, &scripts::INSPECT) => {
            store.inspect(now, key, counter, readers)
        }
        (script, [key], [token, _, tombstone, mark, readers, intents, counter, hint, lead])
            if is(script, &scripts::ACQUIRE_SHARED) =>
        {
            let (ttl, drawing) = (time(1), drawing_if(counter, hint, lead));
            store
                .acquire_shared(now, &Sharing { key, tombstone, mark, readers, intents, token, ttl, drawing })
        }
        (script, [key], [token, _, tomb, readers, counter, number]) if is(script, &scripts::RENEW_SHARED) => {
            let fence = Some((*counter, fence(number))).filter(|(counter, _)| !counter.is_empty());
            store.renew_shared(now, key, [tomb, readers], token, time(1), fence)
        }
        (script, [key], [token, counter, number, readers]) if is(script, &scripts::WRITE_BACK_SHARED) => {
            store.write_back_shared(now, [key, readers], token, counter, fence(number))
        }
        (script, [key], [token, readers, mark]) if is(script, &scripts::RELEASE_SHARED) => {
            store.release_shared(now, [key, readers, mark], token)
        }
        (script, [key], [token, _, tomb, readers, mark]) if is(script, &scripts::CANCEL_SHARED) => {
            store.cancel_shared(now, [key, readers, mark], tomb, token, time(1))
        }
        _ => {
            let knows = "the built-in server runs the scripts of quorlock by their text and no others";
            return Resp::Error(format!("ERR unknown script: {knows}; use a real server for this"));
        }
    };
    told.map_or_else(|failure| Resp::Error(failure.to_string()), |told| answer(&told, &keys))
}

/// Executes a script about the queue; `None` for any other.
fn waiting(
    store: &mut Store,
    now: Moment,
    script: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Option<Result<ScriptResult, Failure>> {
    Some(match (keys, arguments) {
        ([key, turn_key], [name, elapsed, patience, turn, mark, entry, others])
            if is(script, &scripts::ENQUEUE) =>
        {
            let elapsed = number(elapsed).map_or(Duration::ZERO, Duration::from_micros);
            let [patience, turn] = [patience, turn].map(|time| millis(time).unwrap_or_default());
            let others_seen = *others != b"0";
            store.enqueue(
                now,
                &Enqueue { key, turn_key, mark, name, elapsed, patience, turn, entry, others_seen },
            )
        }
        ([_], [mark]) if is(script, &scripts::LIST_WAITERS) => Ok(store.list_waiters(now, mark).into()),
        ([key, turn_key], [name, mark]) if is(script, &scripts::LEAVE_QUEUE) => {
            Ok(store.leave_queue(now, [key, turn_key, mark], name).into())
        }
        ([_], [intents, name, patience]) if is(script, &scripts::INTEND) => {
            Ok(store.intend(now, intents, name, millis(patience).unwrap_or_default()).into())
        }
        ([key], [intents, name]) if is(script, &scripts::DESIST) => store.desist(now, key, intents, name),
        _ => return None,
    })
}

/// Executes a script that compares the settings of clients; `None` for any other.
fn notes(
    store: &mut Store,
    (now, wall): (Moment, Duration),
    script: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Option<Resp> {
    let ([note], [ours, kept]) = (keys, arguments) else { return None };
    let time = |digits| millis(digits).unwrap_or_default();
    let told = if is(script, &scripts::MAX_TTL) {
        store.max_ttl(now, note, time(ours), time(kept)).map(Resp::Number)
    } else if is(script, &scripts::NODE_LISTS) {
        store.node_lists((now, wall), note, ours, time(kept)).map(|lists| answer_lists(&lists))
    } else {
        return None;
    };
    Some(told.unwrap_or_else(|failure| Resp::Error(failure.to_string())))
}

/// Executes a script about several locks, all of which have the same order of arguments; `None` for any
/// other.
fn several<'a>(
    store: &mut Store,
    now: Moment,
    script: &[u8],
    keys: &[&'a [u8]],
    arguments: &[&'a [u8]],
) -> Option<Result<ScriptResult, Failure>> {
    let known = [
        &scripts::ACQUIRE_SEVERAL,
        &scripts::RENEW_SEVERAL,
        &scripts::WRITE_BACK_SEVERAL,
        &scripts::RELEASE_SEVERAL,
        &scripts::CANCEL_SEVERAL,
    ];
    let which = known.iter().position(|known| is(script, known))?;
    let [token, time, fence, lead, beside @ ..] = arguments else { return None };
    let (beside, []) = beside.as_chunks::<3>() else { return None };
    let place = |(key, beside): (&&'a [u8], &[&'a [u8]; 3])| {
        let [tombstone, mark, counter] = *beside;
        Place { key, tombstone, mark, counter }
    };
    let locks: Vec<_> = keys.iter().zip(beside).map(place).collect();
    let (claim, time) = (Several { locks: &locks, token }, millis(time)?);
    let micros = |digits| number(digits).map_or(Duration::ZERO, Duration::from_micros);
    let fence = Some(*fence).filter(|digits| !digits.is_empty());
    let drawn = fence.map(|digits| number(digits).and_then(FencingToken::new).unwrap_or(FencingToken::ZERO));
    Some(match which {
        0 => {
            let fence_hint = fence.map(|hint| FenceHint::at(micros(hint), None, micros(lead)));
            store.acquire_several(now, &claim, time, fence_hint)
        }
        1 => store.renew_several(now, &claim, time, drawn),
        2 => store.write_back_several(now, &claim, drawn.unwrap_or(FencingToken::ZERO)),
        3 => Ok(store.release_several(now, &claim)),
        _ => Ok(store.cancel_several(now, &claim, time)),
    })
}

pub(super) fn is(script: &[u8], known: &Script) -> bool {
    script == known.text().as_bytes()
}

fn answer(ScriptResult { vote, fencing_token }: &ScriptResult, keys: &[&[u8]]) -> Resp {
    let mut parts = match vote {
        Vote::Granted => vec![Resp::text("granted")],
        Vote::ReleasedContended => vec![Resp::text("wanted")],
        Vote::Restored => vec![Resp::text("restored")],
        Vote::NotYourTurn => vec![Resp::text("behind")],
        Vote::FenceAhead => vec![Resp::text("ahead")],
        Vote::Free => vec![Resp::text("free")],
        Vote::Held(holding) => {
            let expiry: Expiry = holding.expiry;
            let ttl = Resp::Number(pttl(Some(expiry)));
            vec![Resp::text("held"), Resp::text(holding.token.as_bytes()), ttl]
        }
        Vote::Notified => vec![Resp::text("told")],
        Vote::Queued(queued) => {
            let mut parts = vec![Resp::text("queued"), Resp::Number(queued.ahead.into())];
            if let Some(holding) = &queued.holding {
                parts
                    .extend([Resp::text(holding.token.as_bytes()), Resp::Number(pttl(Some(holding.expiry)))]);
            }
            parts
        }
        Vote::Waiters(listing) => {
            let mut parts = vec![Resp::text("waiters"), Resp::Number(listing.has_more.into())];
            for waiter in &listing.waiters {
                let entry = queue_entry(None, &waiter.context);
                let waited = i64::try_from(waiter.waited.as_micros()).unwrap_or(i64::MAX);
                parts.extend([Resp::text(waiter.id.to_string()), Resp::Number(waited), Resp::text(entry)]);
            }
            parts
        }
        other => return Resp::Error(format!("ERR a vote that the built-in server does not know: {other:?}")),
    };
    let number = fencing_token.and_then(|number| i64::try_from(number.get()).ok());
    parts.extend(number.map(Resp::Number));
    if let Vote::Held(holding) = vote
        && let Some(key) = &holding.key
    {
        parts.extend(number.is_none().then_some(Resp::Number(0)));
        let place = keys.iter().position(|known| *known == key.as_bytes()).unwrap_or_default() + 1;
        parts.push(Resp::Number(i64::try_from(place).unwrap_or(i64::MAX)));
    }
    if let Vote::Held(holding) = vote
        && !holding.readers.is_empty()
    {
        // They follow the counter, whether there is one or not.
        parts.extend(number.is_none().then_some(Resp::Number(0)));
        parts.extend(holding.readers.iter().map(|token| Resp::text(token.as_bytes())));
    }
    Resp::List(parts)
}

fn answer_lists(lists: &[(Vec<u8>, i64)]) -> Resp {
    Resp::List(lists.iter().flat_map(|(list, since)| [Resp::text(list), Resp::Number(*since)]).collect())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
