//! Dropping a future at any point leaves no key on real servers, once hung servers have resumed.

use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};

use crate::world::World;

/// Each cut at another time, from the first write to long after the answers.
const CUTS: u32 = 250;
const STEP: Duration = Duration::from_micros(20);

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_cut_at_any_point_leaves_no_key() {
    let world = World::start(5).await;
    world.warm_up().await;
    world.servers[0].freeze().unwrap();
    world.servers[1].freeze().unwrap();
    let clock = SystemClock::default();
    for cut in 0..CUTS {
        let lock = world.lock();
        tokio::select! {
            biased;
            lease = lock.acquire() => drop(lease),
            () = clock.sleep_until(clock.now() + STEP * cut) => {}
        }
    }
    world.servers[0].thaw().unwrap();
    world.servers[1].thaw().unwrap();
    world.wait_for_keys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_cut_at_any_point_leaves_no_key() {
    let world = World::start(5).await;
    let clock = SystemClock::default();
    for cut in 0..CUTS {
        // One server dies and one hangs, at different points each time.
        if cut == 50 {
            world.servers[2].freeze().unwrap();
        }
        if cut == 150 {
            world.servers[3].kill();
        }
        let lease = world.lock().acquire().await.unwrap();
        tokio::select! {
            biased;
            _ = lease.release() => {}
            () = clock.sleep_until(clock.now() + STEP * cut) => {}
        }
    }
    world.servers[2].thaw().unwrap();
    world.wait_for_keys(0).await;
}
