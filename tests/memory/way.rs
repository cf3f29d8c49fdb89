//! A network that fails for one client only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quorlock::{Builder, Coordinator, node::Responder};
use quorlock_testkit::WrappedNode;

use crate::common::{Bench, another};

/// One client's network path to its nodes. The faults of the test kit affect a node, and so all of its
/// clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    cut: Arc<AtomicBool>,
    /// The requests since the cut: their callers get no answer.
    lost: Arc<Mutex<Vec<Responder>>>,
}

impl Way {
    /// Another client of the bench's nodes, over this path.
    pub(crate) fn client(&self, bench: &Bench, set: impl FnOnce(Builder) -> Builder) -> Coordinator {
        let far = bench.nodes.iter().map(|node| {
            let way = self.clone();
            WrappedNode::new(node.clone()).on_request(move |request, responder, inner| {
                if way.cut.load(Ordering::SeqCst) {
                    way.lost.lock().unwrap().push(responder);
                } else {
                    inner.ask(request, responder);
                }
            })
        });
        another(&bench.clock, &[], |builder| set(builder.custom_nodes(far.collect::<Vec<_>>())))
    }

    /// From now on no request arrives, without an error.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}
