//! A node that is a program of its own: `exec:target/debug/examples/serve_memory`.

use std::time::Duration;

use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock_testkit::MemoryNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // Each process has a history of its own, which begins with it: what one before has granted is forgotten.
    let node = MemoryNode::new(format!("memory-{:016x}", SystemEntropy::default().next_u64()));
    node.age(Duration::ZERO);
    quorlock_exec::serve(node).await
}
