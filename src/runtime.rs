//! Time, randomness and tasks, used in place of the async runtime's own.

pub(crate) mod clock;
pub(crate) mod detached;
pub(crate) mod entropy;
pub(crate) mod tasks;
pub(crate) mod timer;

pub use clock::{Clock, Sleep, SystemClock};
pub use entropy::{Entropy, SystemEntropy};
