//! chaos
fn main() {}
