//! Keeps the requests for one key in order, for nodes that do not.
//!
//! A clean-up relies on order: a release must reach the store after the acquisition that it takes back, or
//! the key stays. A Redis connection keeps order by itself. A store that is asked over a pool, or over HTTP,
//! does not, and declares `Order::Unordered`; `in_order` then wraps it. The wrapper sends a request
//! when every earlier one for its keys has its response.
//!
//! ```text
//!   ask ─► join ─► queues:   orders/42 │ 7 │ 9 │         7 is with the node
//!                            orders/43 │ 8 │ 9 │         9 has both keys and waits for 7 and 8
//!                               │ first for all its keys
//!                               ▼
//!                    send ─► ready ─► Node::ask ─► Asked::answer ─► leave ─► responder
//!                      ▲                                              │ the next is ready
//!                      └──────────────────────────────────────────────┘
//! ```
//!
//! # States of a request
//!
//! *Waiting* behind another one for some key; *ready*, the first for all of its keys, and in `ready`; *sent*
//! to the node, and no longer in `waiting`; answered, and in no queue. A sent request keeps its places until
//! its response, so nothing for its keys passes it.
//!
//! # Events
//!
//! | event | what it does |
//! |---|---|
//! | `ask` | the request joins the queue of each key; a full queue refuses it, and nothing was sent |
//! | a request is ready | it is sent, unless its attempt has ended and it would store a key |
//! | a response | the request leaves its queues, and those behind it may be ready. Then the caller gets the response |
//! | an unknown outcome | as above, and all requests that wait for its keys *follow an unknown one* |
//!
//! # Invariants
//!
//! - One request for a key is with the node at a time, and it is the first of the key's queue (I-5).
//! - A request that takes another back without a tombstone, and follows an unknown one, is not sent. It fails
//!   as unknown too, so the clean-up cancels with a tombstone, which stops a request that arrives late (I-5).
//! - A request of several keys joins all its queues in one step, with one number that grows. So queues agree
//!   on the order, and no two requests wait for each other.
//! - One caller sends at a time (`sending`). A node may answer before `ask` returns; that response only adds
//!   to `ready`, and the caller that is sending takes it from there. So the stack does not grow.
//! - The node is called, and responders are answered, without the mutex.
//!
//! No task belongs to this, and nothing here waits: there is no future to drop. A node that never answers
//! keeps the queue of that key, so a node must bound its own time. A second response to a request has no
//! responder left, and is ignored.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::node::{
    Capabilities, Collect, Node, NodeError, Order, ReceivedAt, Request, Responder, Response, SharedRequest,
};
use crate::runtime::Mutex;

/// Returns the node, wrapped to keep requests in order unless it already does.
pub(super) fn in_order(node: Arc<dyn Node>) -> Arc<dyn Node> {
    match node.capabilities().order {
        Order::PerKey => node,
        Order::Unordered | _ => Arc::new(Ordered { queues: Arc::new(Queues::of(node.clone())), node }),
    }
}

/// The most requests that wait for one key. A node that answers needs far fewer.
const MOST_WAITING: usize = 1_000;

/// Asks the node for a key only after all earlier requests for it were answered.
struct Ordered {
    node: Arc<dyn Node>,
    queues: Arc<Queues>,
}

impl Node for Ordered {
    crate::node::forward_node!(self => &self.node; name ready round_trip limits grant_age listen facts examine list_keys observe);

    fn ask(&self, request: SharedRequest, responder: Responder) {
        // By itself, so that the mutex is free when the caller is answered, which may ask again.
        let joined = self.queues.state.lock().join(request, responder);
        if let Err((responder, waiting)) = joined {
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        self.queues.send();
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities().in_order(Order::PerKey)
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ordered").field(&self.node).finish()
    }
}

/// Requests by number, in the order in which they were asked.
struct Queues {
    node: Arc<dyn Node>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// The requests for each key. The first of each queue has been sent to the node, or waits to
    /// become the first for its other keys.
    queues: HashMap<Arc<str>, VecDeque<u64>>,
    waiting: HashMap<u64, Waiting>,
    /// Requests that are first for all their keys.
    ready: VecDeque<u64>,
    /// Whether a caller is sending. A node may answer before `ask` returns; that caller then sends
    /// the next request as well.
    sending: bool,
}

struct Waiting {
    request: SharedRequest,
    responder: Responder,
    keys: Keys,
    /// Whether an earlier request for the same key may still be executed.
    follows_unknown: bool,
}

type Keys = SmallVec<[Arc<str>; 1]>;

impl Queues {
    fn of(node: Arc<dyn Node>) -> Queues {
        Queues { node, state: Mutex::default() }
    }

    /// Sends all requests that are ready, one after the other.
    fn send(self: &Arc<Queues>) {
        if std::mem::replace(&mut self.state.lock().sending, true) {
            return;
        }
        let sending = Sending(self);
        while let Some((number, Waiting { request, responder, keys, follows_unknown })) = sending.next() {
            let refused = if request.may_create() && !responder.wanted() {
                Some(NodeError::NotAsked)
            } else if follows_unknown && request.relies_on_order() {
                let reason = "the outcome of the request before it is unknown".into();
                Some(NodeError::Disconnected { reason })
            } else {
                None
            };
            let asked = Asked { queues: self.clone(), number, keys, responder: Mutex::new(Some(responder)) };
            match refused {
                Some(error) => asked.answered(Err(error), Responder::send),
                None => self.node.ask(request, Responder::new(Arc::new(asked), 0)),
            }
        }
    }
}

/// Clears `sending` if the node panics.
struct Sending<'a>(&'a Queues);

impl Sending<'_> {
    fn next(&self) -> Option<(u64, Waiting)> {
        let mut state = self.0.state.lock();
        let next = state.ready.pop_front().and_then(|number| Some((number, state.waiting.remove(&number)?)));
        state.sending = next.is_some();
        debug_assert!(
            next.as_ref().is_none_or(|(number, waiting)| waiting
                .keys
                .iter()
                .all(|key| { state.queues.get(key).and_then(VecDeque::front) == Some(number) })),
            "a request is sent before an earlier one for its key has its response (rule I-5)"
        );
        next
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().sending = false;
        }
    }
}

impl State {
    /// Enqueues a request. If the queue is full, returns the responder and the queue's length.
    fn join(&mut self, request: SharedRequest, responder: Responder) -> Result<(), (Responder, usize)> {
        let keys = keys(&request);
        let longest = keys.iter().filter_map(|key| self.queues.get(key)).map(VecDeque::len).max();
        if let Some(waiting) = longest.filter(|length| *length >= MOST_WAITING) {
            return Err((responder, waiting));
        }
        self.last += 1;
        for key in &keys {
            self.queues.entry(key.clone()).or_default().push_back(self.last);
        }
        self.waiting.insert(self.last, Waiting { request, responder, keys, follows_unknown: false });
        self.note_ready(self.last);
        Ok(())
    }

    /// Removes an answered request, which may still be executed if `is_unknown`.
    fn leave(&mut self, number: u64, keys: &Keys, is_unknown: bool) {
        debug_assert!(!self.waiting.contains_key(&number), "a request has a response before it was sent");
        for key in keys {
            let Some(queue) = self.queues.get_mut(key) else { continue };
            debug_assert_eq!(queue.front(), Some(&number), "a request was answered out of order");
            queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(key);
                continue;
            }
            for next in queue.iter().filter(|_| is_unknown) {
                if let Some(waiting) = self.waiting.get_mut(next) {
                    waiting.follows_unknown = true;
                }
            }
            if let Some(next) = queue.front().copied() {
                self.note_ready(next);
            }
        }
    }

    fn note_ready(&mut self, number: u64) {
        let Some(Waiting { keys, .. }) = self.waiting.get(&number) else { return };
        let is_first = |key: &Arc<str>| self.queues.get(key).and_then(VecDeque::front) == Some(&number);
        if keys.iter().all(is_first) {
            self.ready.push_back(number);
        }
    }
}

/// Returns the distinct keys of a request.
fn keys(request: &Request) -> Keys {
    let mut keys: Keys = request.keys().cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// A request that was sent to the node.
struct Asked {
    queues: Arc<Queues>,
    number: u64,
    keys: Keys,
    responder: Mutex<Option<Responder>>,
}

impl Asked {
    fn answered(
        &self,
        answer: Result<Response, NodeError>,
        send: impl FnOnce(Responder, Result<Response, NodeError>),
    ) {
        let Some(responder) = self.responder.lock().take() else { return };
        let is_unknown = answer.as_ref().is_err_and(NodeError::may_have_acted);
        self.queues.state.lock().leave(self.number, &self.keys, is_unknown);
        send(responder, answer);
        self.queues.send();
    }
}

impl Collect for Asked {
    fn answer(&self, _: usize, answer: Result<Response, NodeError>) {
        self.answered(answer, Responder::send);
    }

    fn answer_received(&self, _: usize, answer: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        self.answered(answer, |responder, answer| responder.send_received(answer, came));
    }

    fn wanted(&self) -> bool {
        self.responder.lock().as_ref().is_some_and(Responder::wanted)
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
