//! Time, randomness and tasks: what the rest of the library has instead of the async runtime's own.

pub(crate) mod clock;
pub(crate) mod detached;
pub(crate) mod entropy;
pub(crate) mod tasks;
pub(crate) mod timer;

pub use clock::{Clock, Sleep, SystemClock};
pub use entropy::{Entropy, SystemEntropy};
