//! The cases that must hold for every library.

use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quorlock::protocol::{Token, fence_counter};
use quorlock::{Fencing, Handoff, Renewal, Wait};
use quorlock_testkit::{find_eventually, patience, until};

use crate::alarms::NoAlarms;
use crate::driver::Answer;
use crate::library::Quirk;
use crate::meeting::{Meeting, NAME, NODES, QUORUM, SHORT, TTL, client, left_of, now, pass};
use crate::ours::Holder;

/// The fencing counter, stored next to the lock, does not affect other libraries.
pub(crate) async fn our_lock_keeps_theirs_out(mut meeting: Meeting) {
    for fencing in [Fencing::On, Fencing::Off, Fencing::On] {
        let lease = meeting.lock().fencing(fencing).acquire().await.unwrap();
        let refused = meeting.theirs.acquire(NAME, TTL).await.refused();
        println!("{fencing:?}: {refused}");
        lease.check().unwrap();
        assert!(meeting.holding(lease.token().as_bytes()).await >= QUORUM, "their attempt left ours alone");
        lease.release().await.unwrap();
        meeting.theirs.acquire(NAME, TTL).await.token();
        assert_eq!(meeting.theirs.release(NAME).await, Answer::Released);
    }
    let counter = fence_counter(meeting.library.prefix, &meeting.key());
    let kept = meeting.servers[0].command(&["EXISTS", &counter]).await.unwrap();
    assert_eq!(kept.to_string(), "1", "the counter outlives what they do with the lock");
}

pub(crate) async fn their_lock_keeps_ours_out_and_is_named(mut meeting: Meeting) {
    for fencing in [Fencing::On, Fencing::Off] {
        let token = meeting.theirs.acquire(NAME, TTL).await.token();
        let (holder, notice) = meeting.refusal().await;
        println!("{fencing:?}: {notice}");
        assert_eq!(holder.token.as_bytes(), token, "the bytes that they stored");
        assert!(holder.nodes >= QUORUM, "at {} nodes", holder.nodes);
        assert!(left_of(&holder) > TTL / 2 && left_of(&holder) <= TTL, "for {:?} more", left_of(&holder));
        // The full token would release their lock.
        let shown = Token::found(&token).to_string();
        assert!(notice.contains(&shown), "{notice} names {shown}");
        assert!(!str::from_utf8(&token).is_ok_and(|token| notice.contains(token)), "{notice} keeps a secret");
        assert_eq!(meeting.theirs.release(NAME).await, Answer::Released);
        let lease = meeting.lock().fencing(fencing).try_acquire().await.unwrap();
        lease.expect("the lock is free immediately").release().await.unwrap();
    }
}

/// Each side tries repeatedly, and checks that the other is outside when it enters.
pub(crate) async fn holders_take_turns_and_never_meet(mut meeting: Meeting) {
    const TURNS: u32 = 25;
    const WORK: Duration = Duration::from_millis(2);
    let inside = Arc::new(AtomicBool::new(false));
    let our_turns = Arc::new(AtomicU32::new(0));
    // Each release must reach the nodes, so that the other side gets a turn.
    let lock = meeting.lock().handoff(Handoff::times(0));
    let ours = tokio::spawn({
        let (inside, our_turns) = (inside.clone(), our_turns.clone());
        async move {
            loop {
                let lease = lock.acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "they were inside when we came in");
                pass(WORK).await;
                assert!(inside.swap(false, Ordering::SeqCst), "they went out while we were inside");
                our_turns.fetch_add(1, Ordering::SeqCst);
                lease.release().await.unwrap();
                pass(WORK).await;
            }
        }
    });
    let (mut their_turns, end) = (0, now() + patience());
    while their_turns < TURNS || our_turns.load(Ordering::SeqCst) < TURNS {
        assert!(!ours.is_finished(), "ours failed: {:?}", ours.await);
        assert!(
            now() < end,
            "{} turns of ours and {their_turns} of theirs",
            our_turns.load(Ordering::SeqCst)
        );
        if let Answer::Acquired { .. } = meeting.theirs.acquire(NAME, TTL).await {
            assert!(!inside.swap(true, Ordering::SeqCst), "we were inside when they came in");
            pass(WORK).await;
            assert!(inside.swap(false, Ordering::SeqCst), "we went out while they were inside");
            their_turns += 1;
            meeting.theirs.release(NAME).await;
        }
        pass(WORK).await;
    }
    ours.abort();
}

/// Our waiter has no timers, so only a push can wake it; and it sends no requests in between.
pub(crate) async fn their_release_wakes_our_waiter_by_a_push(mut meeting: Meeting) {
    let ours = client(&meeting.servers.urls(), |builder| {
        builder.key_prefix(meeting.library.prefix).clock(NoAlarms::default())
    });
    let token = meeting.theirs.acquire(NAME, TTL).await.token();
    let (notice, waits) = tokio::sync::oneshot::channel();
    let notice = std::sync::Mutex::new(Some(notice));
    let lock = ours.lock(NAME).wait(Wait::Forever).on_wait(move |waiting| {
        if let Some(notice) = notice.lock().unwrap().take() {
            drop(notice.send(waiting.clone()));
        }
    });
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    println!("{:?}", waits.await.unwrap());
    until("a second in which ours asks nothing", async || {
        let (asked, since) = (meeting.requests().await, meeting.server_time().await);
        let second = async || meeting.server_time().await >= since + Duration::from_secs(1);
        until("the second to pass", second).await;
        meeting.requests().await == asked
    })
    .await;
    assert!(!waiting.is_finished(), "it waits");
    assert!(meeting.holding(&token).await >= QUORUM, "for them");
    meeting.theirs.release(NAME).await;
    let mut waiting = waiting;
    let clock = quorlock::runtime::SystemClock::default();
    let lease = tokio::select! {
        lease = &mut waiting => lease.unwrap(),
        () = quorlock::runtime::Clock::sleep_until(&clock, now() + patience()) => panic!("our waiter was not woken"),
    };
    lease.release().await.unwrap();
}

pub(crate) async fn their_lock_expires_when_its_process_is_killed(mut meeting: Meeting) {
    let asked = now();
    let token = meeting.theirs.acquire(NAME, SHORT).await.token();
    meeting.theirs.kill();
    assert!(meeting.holding(&token).await >= QUORUM || now().since(asked) >= SHORT, "it stays until then");
    let lease = meeting.lock().acquire().await.unwrap();
    assert!(now().since(asked) >= SHORT, "ours came in {:?} after they did", now().since(asked));
    lease.release().await.unwrap();
}

pub(crate) async fn our_lock_expires_when_its_process_is_killed(mut meeting: Meeting) {
    let mut holder = Holder::start(&meeting.servers.urls(), meeting.library.prefix);
    let held = async || meeting.lock().inspect().await.unwrap().holder().is_some_and(|h| h.nodes == NODES);
    until("a holder in another process", held).await;
    holder.kill();
    // Of three, the second node to lose the key frees the lock.
    let (since, mut left) = (now(), Vec::new());
    for server in meeting.servers.iter() {
        let millis = server.command(&["PTTL", &meeting.key()]).await.unwrap().to_string();
        left.push(Duration::from_millis(millis.parse().expect("the lock has a TTL")));
    }
    left.sort();
    find_eventually("theirs gets it", patience(), async || {
        matches!(meeting.theirs.acquire(NAME, TTL).await, Answer::Acquired { .. }).then_some(())
    })
    .await
    .unwrap();
    let waited = now().since(since);
    assert!(waited + Duration::from_millis(1) >= left[1], "they acquired it after {waited:?}, of {left:?}");
}

pub(crate) async fn their_extension_is_seen_by_ours(mut meeting: Meeting) {
    const FIRST: Duration = Duration::from_secs(60);
    let token = meeting.theirs.acquire(NAME, FIRST).await.token();
    let (holder, _) = meeting.refusal().await;
    assert!(left_of(&holder) <= FIRST, "{:?}", left_of(&holder));
    let extended = meeting.theirs.extend(NAME, TTL).await;
    if meeting.library.has(Quirk::CannotExtend) {
        println!("{}", extended.refused());
        return;
    }
    assert_eq!(extended, Answer::Extended);
    let (holder, notice) = meeting.refusal().await;
    println!("{notice}");
    assert!(left_of(&holder) > FIRST && left_of(&holder) <= TTL, "{:?}", left_of(&holder));
    assert_eq!(holder.token.as_bytes(), token, "an extension keeps its token");
}

pub(crate) async fn our_renewal_is_seen_by_theirs(mut meeting: Meeting) {
    let asked = now();
    let lease = meeting.lock().ttl(SHORT).acquire().await.unwrap();
    while now().since(asked) < SHORT * 3 / 2 {
        meeting.theirs.acquire(NAME, TTL).await.refused();
        lease.check().unwrap();
        pass(Duration::from_millis(50)).await;
    }
    lease.release().await.unwrap();
    meeting.theirs.acquire(NAME, TTL).await.token();
}

/// Their hold has ended, and the guarded data may have changed since.
pub(crate) async fn their_extension_follows_a_hold_of_ours(mut meeting: Meeting) {
    meeting.theirs.acquire(NAME, TTL).await.token();
    meeting.forget().await;
    meeting.lock().acquire().await.unwrap().release().await.unwrap();
    let extended = meeting.theirs.extend(NAME, TTL).await;
    println!("{extended:?}");
    assert_eq!(extended == Answer::Extended, meeting.library.has(Quirk::Revives));
}

/// Their key expired while they were paused, and ours has replaced it.
pub(crate) async fn their_late_release_and_extension_leave_our_lock_alone(mut meeting: Meeting) {
    meeting.theirs.acquire(NAME, TTL).await.token();
    meeting.forget().await;
    let lease = meeting.lock().ttl(TTL / 2).renewal(Renewal::Manual).acquire().await.unwrap();
    let refused = meeting.theirs.extend(NAME, TTL).await.refused();
    println!("{refused}");
    println!("{:?}", meeting.theirs.release(NAME).await);
    assert!(meeting.holding(lease.token().as_bytes()).await >= QUORUM, "our token");
    assert!(meeting.remaining().await <= TTL / 2, "with our own TTL");
    lease.release().await.unwrap();
}

/// The reverse case.
pub(crate) async fn our_late_release_and_renewal_leave_their_lock_alone(mut meeting: Meeting) {
    for renew in [true, false] {
        let lease = meeting.lock().renewal(Renewal::Manual).acquire().await.unwrap();
        meeting.forget().await;
        let token = meeting.theirs.acquire(NAME, TTL / 2).await.token();
        if renew {
            println!("{}", lease.renew().await.unwrap_err());
        }
        println!("{:?}", lease.release().await);
        assert!(meeting.holding(&token).await >= QUORUM, "their token");
        assert!(meeting.remaining().await <= TTL / 2, "with their own TTL");
        meeting.theirs.release(NAME).await;
        meeting.forget().await;
    }
}

pub(crate) async fn a_minority_of_nodes_is_down(mut meeting: Meeting) {
    meeting.servers[1].kill();
    let lease = meeting.lock().acquire().await.unwrap();
    meeting.theirs.acquire(NAME, TTL).await.refused();
    assert_eq!(meeting.holding(lease.token().as_bytes()).await, QUORUM, "all that remain");
    lease.release().await.unwrap();
    // The lock is free when most nodes have deleted the key; with one down, that needs all that remain.
    until("no key left", async || meeting.remaining().await.is_zero()).await;
    let theirs = meeting.theirs.acquire(NAME, TTL).await;
    if meeting.library.has(Quirk::NeedsAllNodes) {
        println!("{}", theirs.refused());
        let blocked = meeting.lock().try_acquire().await;
        assert!(!matches!(blocked, Ok(Some(_))), "they leave the keys that they have set, for their TTL");
        return;
    }
    let token = theirs.token();
    let (holder, notice) = meeting.refusal().await;
    println!("{notice}");
    assert_eq!(holder.token.as_bytes(), token);
    println!("{:?}", meeting.theirs.release(NAME).await);
    meeting.lock().acquire().await.unwrap().release().await.unwrap();
}
