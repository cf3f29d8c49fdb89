//! Cases in which a library and ours do not exclude each other.

use quorlock::AcquireError;

use crate::library::{pottery, redisson, rslock};
use crate::meeting::{Meeting, NAME, QUORUM, TTL, client};

/// A warning to users: it holds because pottery's key is a different one.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_prefix_pottery_and_ours_hold_together() {
    let Some(mut meeting) = Meeting::with(pottery()).await else { return };
    let blind = client(&meeting.servers.urls(), |builder| builder);
    let lease = blind.lock(NAME).acquire().await.unwrap();
    meeting.theirs.acquire(NAME, TTL).await.token();
    lease.check().unwrap();
    assert!(meeting.lock().try_acquire().await.unwrap().is_none(), "with the prefix, ours sees them");
}

#[tokio::test(flavor = "multi_thread")]
async fn non_text_tokens_are_compared_as_bytes() {
    let Some(mut meeting) = Meeting::with(rslock()).await else { return };
    // One in millions is valid UTF-8 by chance.
    let mut token = meeting.theirs.acquire(NAME, TTL).await.token();
    while std::str::from_utf8(&token).is_ok() {
        meeting.theirs.release(NAME).await;
        token = meeting.theirs.acquire(NAME, TTL).await.token();
    }
    let (holder, message) = meeting.refusal().await;
    assert_eq!(holder.token.as_bytes(), token);
    let first = u32::from_be_bytes(token[..4].try_into().unwrap());
    assert!(message.contains(&format!("another program ({first:#010x}…)")), "{message:?}");
}

/// Its lock is a hash under the same key, so each finds a value that it cannot read: neither gets the
/// lock, neither changes the key, and our error names the fix.
#[tokio::test(flavor = "multi_thread")]
async fn redisson_and_ours_refuse_each_others_keys() {
    let Some(mut meeting) = Meeting::with(redisson()).await else { return };
    meeting.theirs.acquire(NAME, TTL).await.token();
    let error = meeting.lock().acquire().await.unwrap_err();
    println!("{error}");
    assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("is not a lock"), "{error}");
    for server in meeting.servers.iter() {
        let kind = server.command(&["TYPE", NAME]).await.unwrap().to_string();
        assert_eq!(kind, "hash", "the key is unchanged");
    }
    meeting.theirs.release(NAME).await;

    let lease = meeting.lock().acquire().await.unwrap();
    let refused = meeting.theirs.acquire(NAME, TTL).await.refused();
    println!("{refused}");
    assert!(meeting.holding(lease.token().as_bytes()).await >= QUORUM, "the key is unchanged");
    lease.release().await.unwrap();
}
