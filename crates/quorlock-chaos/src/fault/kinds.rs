//! Every kind of fault by its name in scenarios.

use std::time::Duration;

use super::{Direction, Fault, FaultRuleText, Hit, Made, Make, Need, Restart, Target, immediately, lost};
use crate::environment::{Environment, Memory, Primary};

pub(super) const KINDS: &[(&str, Make)] = &[
    // SIGKILL for a master, which restarts with or without its keys.
    ("kill", |text| Ok(kill(text.restart.unwrap_or(Restart::Either)))),
    // SIGSTOP for a master: the kernel accepts connections and data meanwhile, and the master processes everything
    // after SIGCONT.
    ("freeze", |_| {
        Ok(Fault::node("stopped", |on, hit| on.masters.freeze(hit.target))
            .healed_by(|on, hit| on.masters.thaw(hit.target))
            .needs(Need::Processes))
    }),
    // Every connection of a node is reset; clients can reconnect immediately.
    ("cut", |_| Ok(Fault::node("connections reset", |on, hit| immediately(|| on.proxies.cut(hit.target))))),
    // A node resets every connection, including new ones.
    ("refuse", |_| {
        Ok(Fault::node("connections refused", |on, hit| immediately(|| on.proxies.refuse(hit.target, true)))
            .healed_by(|on, hit| immediately(|| on.proxies.refuse(hit.target, false))))
    }),
    ("slow", slow),
    ("silence", |text| Ok(silence(Target::Node, text))),
    // `FLUSHALL`: a node loses all keys and keeps running. Clients that are connected notice.
    ("flush", |_| {
        Ok(Fault::node("flushed", |on, hit| Box::pin(on.flush(hit.target))).needs(Need::Redis).quarantined())
    }),
    // All keys of a node are deleted one by one, as by eviction. No client notices.
    ("delete-keys", |_| {
        Ok(Fault::node("all keys deleted", |on, hit| Box::pin(on.delete_keys(hit.target)))
            .needs(Need::Redis)
            .quarantined())
    }),
    // A node has reached its client limit and refuses new clients.
    ("crowd", |_| {
        Ok(Fault::node("too many clients", |on, hit| Box::pin(on.crowd(hit.target)))
            .healed_by(|on, hit| Box::pin(on.uncrowd(hit.target)))
            .needs(Need::RealServer))
    }),
    // A node is out of memory and refuses every write.
    ("memory", |_| {
        Ok(Fault::node("out of memory", |on, hit| Box::pin(on.starve(hit.target)))
            .healed_by(|on, hit| Box::pin(on.feed(hit.target)))
            .needs(Need::RealServer))
    }),
    // A node's clock jumps, and jumps back when the fault heals. Servers expire keys by this clock.
    ("clock-step", |text| {
        let seconds = text.seconds.ok_or("set `seconds`: how far the clock jumps, backwards if negative")?;
        Ok(Fault::node(&format!("clock {seconds:+} s"), move |on, hit| {
            Box::pin(async move { on.step_clock(hit.target, seconds) })
        })
        .healed_by(move |on, hit| Box::pin(async move { on.step_clock(hit.target, -seconds) }))
        .needs(Need::BentClock)
        .quarantined())
    }),
    // A node's clock runs faster or slower, and at the normal rate again when the fault heals, without a jump.
    ("clock-rate", |text| {
        let rate = text.rate.ok_or("set `rate`: how many seconds the clock counts per second")?;
        if rate.is_nan() || rate <= 0.0 {
            return Err(format!("`rate` must be positive, not {rate}"));
        }
        Ok(Fault::node(&format!("clock at {rate} times the rate"), move |on, hit| {
            Box::pin(async move { on.clock_rate(hit.target, rate) })
        })
        .healed_by(|on, hit| Box::pin(async move { on.clock_rate(hit.target, 1.0) }))
        .needs(Need::BentClock)
        .quarantined())
    }),
    // SIGSTOP for the backend processes that serve the clients of a node: the server accepts new connections, and the
    // backends execute their pending requests after SIGCONT.
    ("stop-backends", |_| {
        Ok(Fault::node("backends stopped", |on, hit| on.masters.stop_backends(hit.target))
            .healed_by(|on, hit| on.masters.continue_backends(hit.target))
            .needs(Need::Backends))
    }),
    ("promote", |text| Ok(promote(text))),
    // The disk of a node is full: the server can store nothing and may exit.
    ("disk-full", |_| {
        Ok(Fault::node("disk full", |on, hit| on.masters.fill_disk(hit.target))
            .healed_by(|on, hit| on.masters.free_disk(hit.target))
            .needs(Need::SmallDisk))
    }),
    // A member of a cluster is cut off from the others, while clients still reach it.
    ("cut-off", |_| {
        Ok(Fault::node("cut off from the other members", |on, hit| {
            Box::pin(async move { on.masters.cut_off(hit.target, true) })
        })
        .healed_by(|on, hit| Box::pin(async move { on.masters.cut_off(hit.target, false) }))
        .needs(Need::Peers))
    }),
    // The disk of a master hangs: each write to it takes many seconds.
    ("hang-disk", |_| {
        Ok(Fault::node("disk hangs", |on, hit| on.masters.hang_disk(hit.target))
            .healed_by(|on, hit| on.masters.free_disk(hit.target))
            .needs(Need::HangingDisk))
    }),
    ("isolate-worker", |text| Ok(silence(Target::Worker, text))),
    // SIGSTOP for a worker: its leases may have expired by the time it continues.
    ("stop-worker", |_| {
        Ok(Fault::worker("stopped", |on, hit| Box::pin(on.workers.stop(hit.target)))
            .healed_by(|on, hit| Box::pin(on.workers.go_on(hit.target))))
    }),
    // SIGKILL for a worker, which is replaced by a new one.
    ("kill-worker", |_| {
        Ok(Fault::worker("killed", |on, hit| Box::pin(on.workers.kill(hit.target)))
            .healed_by(|on, hit| Box::pin(on.workers.start(hit.target))))
    }),
];

fn kill(restart: Restart) -> Fault {
    let memory = move |random: u64| {
        let gone = match restart {
            Restart::Empty => true,
            Restart::WithData => false,
            Restart::Either => random.is_multiple_of(2),
        };
        if gone { Memory::Gone } else { Memory::Kept }
    };
    Fault::node("killed", |on, hit| on.masters.kill(hit.target))
        .described_by(move |random, servers| match (memory(random), servers) {
            (Memory::Gone, _) | (_, Memory::Gone) => "killed, restarted empty".to_owned(),
            (Memory::Kept, Memory::Kept) => "killed, restarted with its data".to_owned(),
        })
        .healed_by(move |on, hit| Box::pin(on.restart(hit.target, memory(hit.random))))
        .quarantined()
}

/// A network with a higher latency and jitter in front of a node.
fn slow(text: &FaultRuleText) -> Made {
    let delay = text.delay.ok_or("set `delay`: the additional latency in each direction")?;
    let jitter = text.jitter;
    Ok(Fault::node("slower", move |on, hit| {
        immediately(|| on.proxies.slow(hit.target, delay.chosen(hit.random), jitter))
    })
    .described_by(move |random, _| {
        let slower = format!("{:?} slower in each direction", delay.chosen(random));
        if jitter.is_zero() { slower } else { format!("{slower}, with a jitter of up to {jitter:?}") }
    })
    .healed_by(|on, hit| immediately(|| on.proxies.slow(hit.target, Duration::ZERO, Duration::ZERO))))
}

/// Traffic to a node or a worker, from it, or both is held back: the connections stay open, and what was sent arrives
/// when the fault heals. A node is cut off from all workers, or a worker from all nodes.
fn silence(target: Target, text: &FaultRuleText) -> Fault {
    let way = text.way.unwrap_or(Direction::Both);
    let set = move |on: &Environment, hit: Hit, silent: bool| match target {
        Target::Node => on.proxies.silence_node(hit.target, way.way(hit.random), silent),
        Target::Worker => on.proxies.silence_worker(hit.target, way.way(hit.random), silent),
    };
    let fault = Fault::node("silent", move |on, hit| immediately(|| set(on, hit, true)))
        .described_by(move |random, _| lost(way.way(random)).to_owned())
        .healed_by(move |on, hit| immediately(|| set(on, hit, false)));
    Fault { target, cuts_off: target == Target::Worker, ..fault }
}

/// A failover: the asynchronous standby of a node takes over role and address of its primary, without the grants that
/// it has not received. Replication is stopped for the delay before the promotion.
fn promote(text: &FaultRuleText) -> Fault {
    let lag = text.delay.unwrap_or_default();
    let primary = |random: u64| if random.is_multiple_of(2) { Primary::Killed } else { Primary::CutOff };
    Fault::node("promoted", move |on, hit| {
        Box::pin(on.promote(hit.target, lag.chosen(hit.random), primary(hit.random)))
    })
    .described_by(move |random, _| {
        let primary = if primary(random) == Primary::Killed { "killed" } else { "cut off" };
        format!("{primary}, standby promoted with a lag of {:?}", lag.chosen(random))
    })
    .healed_by(|on, hit| on.masters.follow(hit.target))
    .needs(Need::Standby)
    .quarantined()
}
