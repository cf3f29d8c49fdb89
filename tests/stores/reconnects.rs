//! A server that ends each connection right after its login, as a proxy in front of it may: the tests of all stores that are
//! servers include this file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::node::{ConnectionState, Node, Request, StatusListener, ask};
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Proxy, Way, until};

/// For how long the node is watched.
const WATCHED: Duration = Duration::from_secs(4);

/// Ends each connection that may vote before anything is answered over it.
#[derive(Debug)]
struct Cutting {
    proxy: Proxy,
    logins: AtomicUsize,
}

impl StatusListener for Cutting {
    fn on_status(&self, state: ConnectionState) {
        if matches!(state, ConnectionState::Connected(_)) {
            self.logins.fetch_add(1, Ordering::SeqCst);
            self.proxy.hold(Way::ToClient);
            self.proxy.cut();
        } else {
            self.proxy.release(Way::ToClient);
        }
    }
}

/// The node, which reaches its server over this proxy, logs in with growing pauses, however often it is asked: at `most` so many
/// times. From 50 ms to a second, that is about 8; where each pause is a random part of that, twice as many are rare.
pub(crate) async fn pause_longer_each_time(node: &dyn Node, proxy: Proxy, most: usize) {
    let (clock, logins) = (SystemClock::default(), AtomicUsize::new(0));
    let cutting = Arc::new(Cutting { proxy, logins });
    node.observe(Arc::clone(&cutting) as Arc<dyn StatusListener>);
    until("the first login", async || {
        drop(ask(node, Request::inspect("a")).await);
        cutting.logins.load(Ordering::SeqCst) > 0
    })
    .await;
    let end = clock.now() + WATCHED;
    while clock.now() < end {
        assert!(
            ask(node, Request::inspect("a")).await.is_err(),
            "it was answered over a connection that was cut"
        );
        clock.sleep_until(clock.now() + Duration::from_millis(5)).await;
    }
    let logins = cutting.logins.load(Ordering::SeqCst);
    assert!(logins <= most, "{logins} logins in {WATCHED:?}");
}
