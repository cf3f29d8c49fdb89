//! Time, randomness, tasks and the mutex, used in place of the async runtime's and the standard library's own.

pub(crate) mod clock;
pub(crate) mod entropy;
mod mutex;
pub(crate) mod tasks;
pub(crate) mod timer;

pub use clock::{BoxFuture, Clock, Sleep, SystemClock, within};
pub use entropy::{Entropy, SystemEntropy};
pub use mutex::Mutex;
