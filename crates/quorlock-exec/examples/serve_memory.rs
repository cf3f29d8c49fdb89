//! A node that is a program of its own: `exec:target/debug/examples/serve_memory`.

use quorlock_testkit::MemoryNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    quorlock_exec::serve(MemoryNode::new("memory")).await
}
