//! The faults of an in-memory node, under paused time.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use quorlock::protocol::{Claim, FenceHint, Moment, Token};
use quorlock::{
    node::{Access, Expiry, Node, NodeError, NodeErrorKind, Request, Response, Vote, ask},
    runtime::Clock,
};
use quorlock_testkit::{MemoryNode, SkewedClock, TokioClock, UnreadRequests};

pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const KEY: &str = "orders/42";

fn node() -> (MemoryNode, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    (MemoryNode::on("eu-1", Arc::clone(&clock)), clock)
}

pub(crate) fn claim(number: u128) -> Arc<Claim> {
    Arc::new(Claim::new(KEY.into(), Token::new(number, "db-7:4121")))
}

pub(crate) fn acquire(number: u128) -> Request {
    Request::Acquire { claim: claim(number), ttl: TTL, fence_hint: Some(fence_hint()) }
}

pub(crate) fn fence_hint() -> FenceHint {
    FenceHint::at(Duration::MAX, None, TTL)
}

fn cancel(number: u128) -> Request {
    Request::Cancel { claim: claim(number), linger: TTL }
}

type Asked<'a> = BoxFuture<'a, Result<Response, NodeError>>;

/// Sends a request without waiting for the response.
fn send(node: &MemoryNode, request: Request) -> Asked<'_> {
    let mut asked = ask(node, request).boxed();
    if let Some(answer) = asked.as_mut().now_or_never() {
        return std::future::ready(answer).boxed();
    }
    asked
}

async fn is_pending(asked: &mut Asked<'_>) -> bool {
    futures::poll!(asked).is_pending()
}

#[expect(clippy::expect_used, reason = "an unanswered request fails the test")]
fn voted(answer: Result<Response, NodeError>) -> Vote {
    answer.expect("the node answers").vote
}

#[tokio::test(start_paused = true)]
async fn delays_take_their_time_on_both_ways_and_keep_the_order() {
    let (node, clock) = node();
    node.delay(Duration::from_millis(30), Duration::from_millis(20));
    let asked = clock.now();
    let (first, second) = (send(&node, acquire(1)), send(&node, cancel(1)));
    assert!(node.keys().is_empty(), "the request is still in flight");
    assert_eq!(voted(first.await), Vote::Granted);
    assert_eq!(clock.now().since(asked), Duration::from_millis(50));
    assert_eq!(voted(second.await), Vote::Granted, "the cancellation came second and found the token");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_overtakes_nothing() {
    let (node, _) = node();
    node.delay(Duration::from_millis(500), Duration::ZERO);
    let slow = send(&node, acquire(1));
    node.delay(Duration::ZERO, Duration::ZERO);
    let quick = send(&node, acquire(2));
    let (slow, quick) = futures::join!(slow, quick);
    assert_eq!(voted(slow), Vote::Granted);
    assert!(matches!(voted(quick), Vote::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_hung_node_executes_everything_in_order_once_resumed() {
    let (node, _) = node();
    node.hang();
    let mut first = send(&node, acquire(1));
    let second = send(&node, Request::Release { claim: claim(1) });
    assert!(is_pending(&mut first).await);
    node.resume();
    assert_eq!(voted(first.await), Vote::Granted);
    assert_eq!(voted(second.await), Vote::Granted);
    assert_eq!(node.holder(KEY), None);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_of_a_lost_connection_follows_a_newer_one() {
    let (node, _) = node();
    node.hang();
    let cut = send(&node, acquire(1));
    node.disconnect();
    assert!(matches!(cut.await, Err(NodeError::Disconnected { .. })));
    node.connect();
    let cancelled = send(&node, cancel(1));
    node.resume();
    assert_eq!(voted(cancelled.await), Vote::Free, "the acquisition has not come yet");
    assert_eq!(node.holder(KEY), None, "the tombstone stopped the late acquisition");

    node.hang();
    let cut = send(&node, acquire(2));
    node.disconnect();
    drop(cut);
    node.connect();
    let released = send(&node, Request::Release { claim: claim(2) });
    node.resume();
    assert_eq!(voted(released.await), Vote::Free);
    assert_eq!(
        node.holder(KEY).as_ref(),
        Some(claim(2).token()),
        "a release without a tombstone came too early: an orphan"
    );
}

#[tokio::test(start_paused = true)]
async fn unread_requests_can_be_lost_instead() {
    let (node, _) = node();
    node.unread_requests(UnreadRequests::Lost);
    node.hang();
    drop(send(&node, acquire(1)));
    node.disconnect();
    node.connect();
    node.resume();
    assert_eq!(node.holder(KEY), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_the_key_behind() {
    let (node, _) = node();
    node.lose_replies(true);
    let mut asked = send(&node, acquire(1));
    assert!(is_pending(&mut asked).await);
    assert!(node.holder(KEY).is_some(), "it was carried out");
    node.disconnect();
    let error = asked.await.expect_err("the connection ended first");
    assert!(error.may_have_acted());
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_arrives_late_or_never() {
    let (node, _) = node();
    node.lose_requests(true);
    let mut late = send(&node, acquire(1));
    assert!(is_pending(&mut late).await);
    assert!(node.holder(KEY).is_none());
    node.resume();
    assert_eq!(voted(late.await), Vote::Granted);

    node.lose_requests(true);
    let never = send(&node, cancel(1));
    node.disconnect();
    assert!(never.await.is_err());
    node.connect();
    node.resume();
    assert!(node.holder(KEY).is_some(), "the cancellation is gone");
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_node_fails_immediately_and_a_connecting_one_waits() {
    let (node, _) = node();
    node.disconnect();
    let error = send(&node, acquire(1)).await.expect_err("it is disconnected");
    assert!(!error.may_have_acted(), "{error}");
    assert!(node.ready().now_or_never().is_some(), "the first contact has failed");

    node.connecting();
    let mut ready = node.ready();
    let mut asked = send(&node, acquire(1));
    assert!(is_pending(&mut asked).await);
    assert_eq!(futures::poll!(&mut ready), Poll::Pending);
    node.connect();
    ready.await.expect("it is connected");
    assert_eq!(voted(asked.await), Vote::Granted);
    assert_eq!(node.requests().acquire, 1, "what was not sent is not counted");
}

#[tokio::test(start_paused = true)]
async fn a_failing_node_reports_why_and_does_nothing() {
    let (node, _) = node();
    node.fail(NodeErrorKind::OutOfSpace, "OOM command not allowed when used memory > 'maxmemory'.");
    let error = ask(&node, acquire(1)).await.expect_err("it fails");
    assert_eq!((error.kind(), error.is_permanent()), (NodeErrorKind::OutOfSpace, false), "{error:?}");
    node.fail(NodeErrorKind::PermissionDenied(Access::Operation), "NOPERM this user has no permissions");
    assert!(ask(&node, acquire(1)).await.is_err_and(|error| error.is_permanent()));
    node.recover();
    assert_eq!(voted(ask(&node, acquire(1)).await), Vote::Granted);
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_a_new_process_of_age_zero_with_or_without_the_keys() {
    let (node, clock) = node();
    let before = ask(&node, acquire(1)).await.expect("it answers").identity;
    assert!(before.age_at(clock.now()) >= Duration::from_secs(86_400), "old enough for any quarantine");
    node.restart_with_data();
    assert!(node.holder(KEY).is_some());
    tokio::time::advance(Duration::from_secs(5)).await;
    let after = ask(&node, acquire(1)).await.expect("it answers").identity;
    assert_ne!(before.id, after.id);
    assert_eq!(after.age_at(clock.now()), Duration::from_secs(5));
    node.hang();
    let lost = send(&node, acquire(2));
    node.restart_empty();
    assert!(lost.await.is_err(), "the process that had the request is gone");
    assert!(node.keys().is_empty());
    assert_eq!(voted(ask(&node, acquire(2)).await), Vote::Granted, "the new process does not hang");
}

#[tokio::test(start_paused = true)]
async fn keys_expire_by_the_clock_of_the_server() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let fast = Arc::new(SkewedClock::new(Arc::clone(&clock), 2.0));
    let node = MemoryNode::with_own_clock("fast", clock, Arc::clone(&fast) as Arc<dyn Clock>);
    assert_eq!(voted(ask(&node, acquire(1)).await), Vote::Granted);
    tokio::time::advance(TTL / 4).await;
    assert_eq!(node.expiry(KEY), Some(Expiry::In(TTL / 2)));
    fast.jump_forward(TTL);
    assert_eq!(node.holder(KEY), None, "its clock was put forward");
}

#[tokio::test(start_paused = true)]
async fn a_skewed_clock_wakes_at_its_own_moment() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let slow = SkewedClock::new(Arc::clone(&clock), 0.5);
    let begun = clock.now();
    slow.sleep_until(slow.now() + Duration::from_secs(10)).await;
    assert_eq!(clock.now().since(begun), Duration::from_secs(20));
    let before = slow.now();
    slow.jump_back(Duration::from_secs(3));
    assert_eq!(before.since(slow.now()), Duration::from_secs(3));
    assert!(slow.now() > Moment::ORIGIN);
}

#[tokio::test(start_paused = true)]
async fn a_paused_calendar_follows_its_clock_and_begins_in_2026() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let new_year = Duration::from_secs(56 * 365 * 86_400 + 14 * 86_400);
    assert_eq!(clock.wall(), new_year);
    let fast = SkewedClock::new(Arc::clone(&clock), 1.5);
    fast.jump_back(Duration::from_secs(20));
    fast.calendar_forward(Duration::from_secs(5));
    let before = fast.now();
    clock.sleep_until(clock.now() + Duration::from_secs(100)).await;
    assert_eq!(clock.wall(), new_year + Duration::from_secs(100));
    assert_eq!(fast.wall(), new_year + Duration::from_secs(150 - 20 + 5));
    assert_eq!(fast.now().since(before), Duration::from_secs(150), "the calendar alone was wrong");
}
