//! Clauses about keys and tokens: a server accepts any bytes.

use quorlock::node::{Capability, Expiry, Vote};
use quorlock::protocol::{Resource, WaiterId};

use super::bench::{Bench, Finding, LONG, held_by, held_forever, is};
use super::queue::in_place_of;
use crate::value::Value;

pub(super) async fn tokens_are_reported_byte_for_byte(bench: &Bench<'_>) -> Finding {
    for bytes in [&b"\xff\xfe\x00 no text"[..], b"\r\n$5\r\n", b"42", b""] {
        let key = bench.key();
        bench.plant(&key, Value::Text(bytes.to_vec()), Expiry::Never).await?;
        let found = held_forever(bytes);
        is(&bench.acquire(&bench.claim(&key), LONG).await?, &found)?;
        is(&bench.renew(&bench.claim(&key), LONG).await?, &found)?;
        is(&bench.inspect(&key).await?, &found)?;
    }
    Ok(())
}

pub(super) async fn any_key_can_be_locked_and_cancelled(bench: &Bench<'_>) -> Finding {
    let tails = [
        "{tag}/42",
        "}{",
        "{}",
        "a b\tc",
        "line\r\nbreak",
        "*?[x]",
        "Schlüssel 錠 🔒",
        "\0",
        "x{1}:quorlock:tomb:1",
    ];
    let mut keys: Vec<String> = tails.iter().map(|tail| format!("{}{tail}", bench.key())).collect();
    let mut longest = bench.key();
    longest.extend(std::iter::repeat_n('k', Resource::MAX_LEN - longest.len()));
    keys.push(longest);
    for key in keys {
        let waiter = WaiterId::new(1);
        let (first, second) = (bench.claim(&key), in_place_of(bench, &key, waiter));
        let checked = async {
            is(&bench.acquire(&first, LONG).await?, &Vote::Granted)?;
            held_by(&bench.acquire(&second, LONG).await?, first.token(), LONG)?;
            is(&bench.cancel(&first, LONG).await?, &Vote::Granted)?;
            is(&bench.contend(&first).await?, &Vote::Free)?;
            if bench.node.capabilities().has(Capability::Queue) {
                is(&bench.enqueue(&key, waiter, LONG, LONG).await?, &Vote::Free)?;
            }
            is(&bench.acquire(&second, LONG).await?, &Vote::Granted)
        };
        let found = checked.await;
        // By a cluster, since nothing beside it can be in its slot.
        let is_refused = |finding: &String| key.ends_with("{}") && finding.contains("before any hash tag");
        if !found.as_ref().is_err_and(is_refused) {
            found.map_err(|finding| format!("key {key:?}: {finding}"))?;
        }
    }
    Ok(())
}

pub(super) async fn keys_that_look_alike_are_different_keys(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    for alike in [key.clone(), format!("{key} "), format!("{{{key}}}"), key.to_uppercase()] {
        let vote = bench.acquire(&bench.claim(&alike), LONG).await?;
        is(&vote, &Vote::Granted).map_err(|finding| format!("key {alike:?}: {finding}"))?;
    }
    Ok(())
}
