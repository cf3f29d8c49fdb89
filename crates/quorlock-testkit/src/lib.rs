//! Lock servers for tests: in memory, built in, and real ones; their faults, and the time.
//!
//! For the tests of `quorlock` and of programs that use it, for demonstrations and for benches.

mod clock;
mod entropy;
mod memory;
mod store;
mod wait;

pub use {
    clock::{SkewedClock, TokioClock},
    entropy::SeededEntropy,
    memory::{InSocket, MemoryNode, Questions, memory_nodes, memory_nodes_on},
    store::{SetLife, SetOptions, SetWhen, Store, Value, WrongType},
    wait::{eventually, find_eventually},
};
