//! The faults without a setting: one act on a node or worker, and mostly another one that undoes it.

use std::io;

use futures::future::BoxFuture;

use super::{Aftermath, Fault, Hit, Need, Target};
use crate::environment::{Environment, Memory};

/// What is done to a node or worker, which is counted from 0.
type Act = for<'a> fn(&'a Environment, usize) -> BoxFuture<'a, io::Result<()>>;

#[derive(Debug)]
pub(super) struct Plain {
    target: Target,
    describe: &'static str,
    aftermath: Aftermath,
    needs: Need,
    begin: Act,
    heal: Act,
}

/// SIGSTOP for a master: the kernel accepts connections and data meanwhile, and the master processes
/// everything after SIGCONT.
pub(super) const FREEZE: Plain = Plain::node("stopped", Need::Processes, |on, node| on.masters.freeze(node))
    .healed_by(|on, node| on.masters.thaw(node));

/// Every connection of a node is reset; clients can reconnect immediately.
pub(super) const CUT: Plain =
    Plain::node("connections reset", Need::Nothing, |on, node| immediately(|| on.proxies.cut(node)));

/// A node resets every connection, including new ones.
pub(super) const REFUSE: Plain = Plain::node("connections refused", Need::Nothing, |on, node| {
    immediately(|| on.proxies.refuse(node, true))
})
.healed_by(|on, node| immediately(|| on.proxies.refuse(node, false)));

/// `FLUSHALL`: a node loses all keys and keeps running. Clients that are connected notice.
pub(super) const FLUSH: Plain = Plain {
    aftermath: Aftermath::Quarantine,
    ..Plain::node("flushed", Need::Redis, |on, node| Box::pin(on.flush(node)))
};

/// All keys of a node are deleted one by one, as by eviction. No client notices.
pub(super) const DELETE: Plain = Plain {
    aftermath: Aftermath::Quarantine,
    ..Plain::node("all keys deleted", Need::Redis, |on, node| Box::pin(on.delete_keys(node)))
};

/// A node has reached its client limit and refuses new clients.
pub(super) const CROWD: Plain =
    Plain::node("too many clients", Need::RealServer, |on, node| Box::pin(on.crowd(node)))
        .healed_by(|on, node| Box::pin(on.uncrowd(node)));

/// A node is out of memory and refuses every write.
pub(super) const MEMORY: Plain =
    Plain::node("out of memory", Need::RealServer, |on, node| Box::pin(on.starve(node)))
        .healed_by(|on, node| Box::pin(on.feed(node)));

/// SIGSTOP for the backend processes that serve the clients of a node: the server accepts new connections,
/// and the backends execute their pending requests after SIGCONT.
pub(super) const STOP_BACKENDS: Plain =
    Plain::node("backends stopped", Need::Backends, |on, node| on.masters.stop_backends(node))
        .healed_by(|on, node| on.masters.continue_backends(node));

/// The disk of a node is full: the server can store nothing and may exit.
pub(super) const DISK_FULL: Plain =
    Plain::node("disk full", Need::SmallDisk, |on, node| on.masters.fill_disk(node))
        .healed_by(|on, node| on.masters.free_disk(node));

/// A member of a cluster is cut off from the others, while clients still reach it.
pub(super) const CUT_OFF: Plain = Plain::node("cut off from the other members", Need::Peers, |on, node| {
    Box::pin(async move { on.masters.cut_off(node, true) })
})
.healed_by(|on, node| Box::pin(async move { on.masters.cut_off(node, false) }));

/// The disk of a master hangs: each write to it takes many seconds.
pub(super) const HANG_DISK: Plain =
    Plain::node("disk hangs", Need::HangingDisk, |on, node| on.masters.hang_disk(node))
        .healed_by(|on, node| on.masters.free_disk(node));

/// SIGSTOP for a worker: its leases may have expired by the time it continues.
pub(super) const STOP_WORKER: Plain =
    Plain::worker("stopped", |on, worker| Box::pin(on.workers.stop(worker)))
        .healed_by(|on, worker| Box::pin(on.workers.go_on(worker)));

/// SIGKILL for a worker, which is replaced by a new one.
pub(super) const KILL_WORKER: Plain = Plain::worker("killed", |on, worker| Box::pin(on.workers.kill(worker)))
    .healed_by(|on, worker| Box::pin(on.workers.start(worker)));

impl Plain {
    /// A fault of a node that nothing has to undo.
    const fn node(describe: &'static str, needs: Need, begin: Act) -> Plain {
        let heal: Act = |_, _| immediately(|| ());
        Plain { target: Target::Node, describe, aftermath: Aftermath::None, needs, begin, heal }
    }

    /// The same of a worker.
    const fn worker(describe: &'static str, begin: Act) -> Plain {
        Plain { target: Target::Worker, ..Plain::node(describe, Need::Nothing, begin) }
    }

    const fn healed_by(self, heal: Act) -> Plain {
        Plain { heal, ..self }
    }
}

impl Fault for Plain {
    fn target(&self) -> Target {
        self.target
    }

    fn describe(&self, _random: u64, _servers: Memory) -> String {
        self.describe.to_owned()
    }

    fn aftermath(&self, _random: u64) -> Aftermath {
        self.aftermath
    }

    fn needs(&self) -> Need {
        self.needs
    }

    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        (self.begin)(environment, hit.target)
    }

    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        (self.heal)(environment, hit.target)
    }
}

/// An act that needs no waiting and cannot fail.
fn immediately<'a>(act: impl FnOnce()) -> BoxFuture<'a, io::Result<()>> {
    act();
    Box::pin(async { Ok(()) })
}
