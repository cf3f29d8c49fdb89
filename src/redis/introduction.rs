//! The requests of the handshake, sent together, each of whose replies is read by name.

use redis::{Cmd, Pipeline, Value, cmd};

use super::connection::{Connection, ConnectionError};

/// The requests.
pub(super) struct Introduction {
    requests: Pipeline,
    subscription: Option<ReplyTo>,
}

/// Which request a reply belongs to.
#[derive(Clone, Copy)]
pub(super) struct ReplyTo(usize);

/// The replies that have not been read.
pub(super) struct Replies {
    replies: Vec<Option<Value>>,
    /// Whether the subscription succeeded.
    pub(super) subscribed: bool,
}

impl Introduction {
    pub(super) fn new() -> Introduction {
        Introduction { requests: Pipeline::with_capacity(16), subscription: None }
    }

    /// Adds a request.
    pub(super) fn add(&mut self, request: &Cmd) -> ReplyTo {
        self.requests.add_command(request.clone());
        ReplyTo(self.requests.len() - 1)
    }

    /// Adds the request that subscribes to channels, of which there is one.
    pub(super) fn subscribe(&mut self, channels: &[String]) -> ReplyTo {
        let place = self.add(cmd("SUBSCRIBE").arg(channels));
        self.subscription = Some(place);
        place
    }

    /// Writes the requests behind what the connection sends next.
    pub(super) fn write(&self, connection: &mut Connection) {
        connection.outbox().extend(self.requests.get_packed_pipeline());
    }

    /// Sends the requests, which were written, and receives the replies.
    pub(super) async fn replies(&self, connection: &mut Connection) -> Result<Replies, ConnectionError> {
        let replies = connection.replies(self.requests.len(), self.subscription.is_some());
        let (replies, subscribed) = replies.await?;
        let mut replies: Vec<Option<Value>> = replies.into_iter().map(Some).collect();
        if let Some(ReplyTo(place)) = self.subscription.filter(|_| subscribed) {
            // Its channels were pushed.
            replies.insert(place.min(replies.len()), None);
        }
        debug_assert_eq!(
            replies.len(),
            self.requests.len(),
            "a reply would be taken for that to another request"
        );
        Ok(Replies { replies, subscribed })
    }
}

impl Replies {
    /// Takes the reply to this request.
    pub(super) fn take(&mut self, ReplyTo(place): ReplyTo) -> Option<Value> {
        self.replies.get_mut(place)?.take()
    }
}
