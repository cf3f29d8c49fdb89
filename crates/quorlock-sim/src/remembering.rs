//! A node kind that keeps its data across restarts, and declares so.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    node::{
        AddressError, Capabilities, Identity, Node, NodeAddress, NodeKind, Reason, Responder, Seams,
        SharedRequest,
    },
    redis::Address,
};

/// `remembering://HOST`: a server of the simulation whose data survives whatever happens to its process.
#[derive(Debug)]
pub(crate) struct Remembering;

impl NodeKind for Remembering {
    fn schemes(&self) -> &[&str] {
        &["remembering"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        let host = url.split_once("://").map_or(url, |(_, host)| host);
        Ok(Box::new(RememberingAddress(Address::parse(host)?)))
    }
}

#[derive(Debug)]
struct RememberingAddress(Address);

impl fmt::Display for RememberingAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "remembering://{}", self.0)
    }
}

impl NodeAddress for RememberingAddress {
    fn servers(&self) -> Vec<String> {
        NodeAddress::servers(&self.0)
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        let history = Arc::new(Identity::new(self.to_string(), Moment::ORIGIN, Duration::MAX));
        Ok(Arc::new(RememberingNode { server: self.0.node(seams)?, history }))
    }
}

#[derive(Debug)]
struct RememberingNode {
    server: Arc<dyn Node>,
    history: Arc<Identity>,
}

impl Node for RememberingNode {
    quorlock::node::forward_node!(self => &self.server; name ready round_trip limits listen observe);

    fn capabilities(&self) -> Capabilities {
        self.server.capabilities().durable()
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let history = Arc::clone(&self.history);
        let responder = responder.map(|answer| {
            answer.map(|mut answer| {
                answer.identity = history;
                answer
            })
        });
        self.server.ask(request, responder);
    }
}
