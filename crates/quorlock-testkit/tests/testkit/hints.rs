//! The hints of an in-memory node, under paused time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt;
use quorlock::runtime::Mutex;
use quorlock::{
    node::{Hint, HintListener, Node, NodeError, Request, Vote, ask},
    runtime::Clock,
};
use quorlock_testkit::{MemoryNode, TokioClock};

use crate::memory::{KEY, TTL, acquire, claim, fence_hint};

/// Hints in the order in which they came, as text.
#[derive(Debug, Default)]
struct HintRecorder(Mutex<Vec<String>>);

impl HintRecorder {
    /// Returns the hints since the last call.
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl HintListener for HintRecorder {
    fn on_hint(&self, hint: Hint<'_>) {
        self.0.lock().push(match hint {
            Hint::Invalidated(key) => String::from_utf8_lossy(key).into_owned(),
            Hint::Subscribed | Hint::Flushed | Hint::Unsubscribed => format!("{hint:?}"),
        });
    }
}

struct Scene {
    node: MemoryNode,
    clock: Arc<dyn Clock>,
    ear: Arc<HintRecorder>,
}

impl Scene {
    /// Creates a node with a listener.
    fn new() -> Scene {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let (node, ear) = (MemoryNode::on("eu-1", Arc::clone(&clock)), Arc::new(HintRecorder::default()));
        node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
        assert_eq!(ear.heard(), ["Subscribed"], "it is connected");
        Scene { node, clock, ear }
    }

    async fn vote(&self, request: Request) -> Result<Vote, NodeError> {
        Ok(ask(&self.node, request).await?.vote)
    }

    /// Makes one claim hold the key, and another one be refused.
    async fn held(&self) -> Result<(), NodeError> {
        assert_eq!(self.vote(acquire(1)).await?, Vote::Granted);
        assert!(matches!(self.vote(acquire(2)).await?, Vote::Held(_)));
        assert!(self.ear.heard().is_empty(), "nothing has changed yet");
        Ok(())
    }
}

fn release(number: u128) -> Request {
    Request::Release { claim: claim(number) }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_notified_once() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene.vote(release(1)).await?;
    assert_eq!(scene.ear.heard(), [KEY]);
    scene.vote(acquire(3)).await?;
    scene.vote(release(3)).await?;
    assert!(scene.ear.heard().is_empty(), "no client was refused since");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_transfer_is_notified() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene
        .vote(Request::Transfer { from: claim(1), to: claim(3), ttl: TTL, fence_hint: Some(fence_hint()) })
        .await?;
    assert_eq!(scene.ear.heard(), [KEY]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_notified_without_a_key() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene.node.flush();
    assert_eq!(scene.ear.heard(), ["Flushed"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_change_is_notified_after_the_earlier_answer() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.vote(acquire(1)).await?;
    scene.node.lose_replies(true);
    let mut refused = ask(&scene.node, acquire(2)).boxed();
    assert!(refused.as_mut().now_or_never().is_none());
    scene.node.remove(KEY);
    assert!(scene.ear.heard().is_empty(), "the refused client does not know it yet");
    scene.node.resume();
    assert!(matches!(refused.await?.vote, Vote::Held(_)));
    assert_eq!(scene.ear.heard(), [KEY]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hints_take_the_time_of_an_answer() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene.node.delay(Duration::ZERO, Duration::from_millis(20));
    let removed = scene.clock.now();
    scene.node.remove(KEY);
    scene.clock.sleep_until(removed + Duration::from_millis(15)).await;
    assert!(scene.ear.heard().is_empty());
    scene.clock.sleep_until(removed + Duration::from_millis(25)).await;
    assert_eq!(scene.ear.heard(), [KEY]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_hung_node_sends_hints_once_resumed() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene.node.hang();
    scene.clock.sleep_until(scene.clock.now() + TTL * 2).await;
    assert!(scene.ear.heard().is_empty());
    scene.node.resume();
    assert_eq!(scene.ear.heard(), [KEY]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_ends_hints_and_forgets_watched_keys() -> Result<(), NodeError> {
    let scene = Scene::new();
    scene.held().await?;
    scene.node.disconnect();
    assert_eq!(scene.ear.heard(), ["Unsubscribed"]);
    scene.node.connect();
    assert_eq!(scene.ear.heard(), ["Subscribed"]);
    scene.node.remove(KEY);
    assert!(scene.ear.heard().is_empty(), "no client was refused over this connection");
    scene.held().await?;
    scene.node.restart_with_data();
    assert_eq!(scene.ear.heard(), ["Unsubscribed", "Subscribed"]);
    Ok(())
}
