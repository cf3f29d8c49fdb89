//! Drives rslock.

mod line;

use std::time::Duration;

use line::{Answer, Library};
use rslock::{Lock, LockManager};
use tokio::runtime::{Builder, Runtime};

struct Driver {
    runtime: Runtime,
    manager: LockManager,
}

impl Library for Driver {
    type Lock = Lock;

    fn acquire(&mut self, resource: &[u8], ttl_ms: u32) -> Answer<Lock> {
        let ttl = Duration::from_millis(ttl_ms.into());
        self.runtime.block_on(self.manager.lock(resource, ttl)).map_err(|error| error.to_string())
    }

    fn token(&self, lock: &Lock) -> Vec<u8> {
        lock.val.clone()
    }

    fn extend(&mut self, lock: &Lock, ttl_ms: u32) -> Answer<()> {
        let ttl = Duration::from_millis(ttl_ms.into());
        let extended = self.runtime.block_on(self.manager.extend(lock, ttl));
        extended.map(drop).map_err(|error| error.to_string())
    }

    fn release(&mut self, lock: &Lock) {
        self.runtime.block_on(self.manager.unlock(lock));
    }
}

fn main() {
    line::serve("rslock 0.10.0", |nodes| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let mut manager = LockManager::new(nodes);
        // A delay of zero would panic.
        manager.set_retry(1, Duration::from_millis(1));
        Driver { runtime, manager }
    });
}
