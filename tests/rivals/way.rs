//! A network that fails for one client only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quorlock::{
    Builder, Coordinator,
    node::{Capabilities, Node, Responder, SharedRequest},
};
use quorlock_testkit::MemoryNode;

use crate::common::{Bench, another};

/// One client's way to its nodes. The faults of the kit are those of a node, and so of all its
/// clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    cut: Arc<AtomicBool>,
    /// What was asked since: nobody is told that it is not answered.
    lost: Arc<Mutex<Vec<Responder>>>,
}

#[derive(Debug)]
struct Far {
    node: MemoryNode,
    way: Way,
}

impl Way {
    /// One more client of the bench's nodes, over this way.
    pub(crate) fn client(&self, bench: &Bench, set: impl FnOnce(Builder) -> Builder) -> Coordinator {
        let far = bench.nodes.iter().map(|node| Far { node: node.clone(), way: self.clone() });
        another(&bench.clock, &[], |builder| set(builder.custom_nodes(far.collect::<Vec<_>>())))
    }

    /// From now on nothing arrives, and nothing says so.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

impl Node for Far {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        if self.way.cut.load(Ordering::SeqCst) {
            self.way.lost.lock().unwrap().push(reply);
        } else {
            self.node.ask(request, reply);
        }
    }
}
