//! Drives redlock, also known as redlock-rs.

mod line;

use line::{Answer, Library};
use redlock::{Lock, RedLock};

struct Driver(&'static RedLock);

impl Library for Driver {
    type Lock = Lock<'static>;

    fn acquire(&mut self, resource: &[u8], ttl_ms: u32) -> Answer<Self::Lock> {
        let ttl = usize::try_from(ttl_ms).map_err(|error| error.to_string())?;
        let lock = self.0.lock(resource, ttl).map_err(|error| error.to_string())?;
        lock.ok_or_else(|| "held by another client".to_owned())
    }

    fn token(&self, lock: &Self::Lock) -> Vec<u8> {
        lock.val.clone()
    }

    fn extend(&mut self, _: &Self::Lock, _: u32) -> Answer<()> {
        Err("redlock cannot extend a lock".to_owned())
    }

    fn release(&mut self, lock: &Self::Lock) {
        self.0.unlock(lock);
    }
}

fn main() {
    line::serve("redlock 2.0.0", |nodes| {
        let mut manager = RedLock::new(nodes);
        // A delay of zero would panic.
        manager.set_retry(1, 1);
        // Its locks borrow the manager.
        Driver(Box::leak(Box::new(manager)))
    });
}
