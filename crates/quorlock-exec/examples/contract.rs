//! Runs the contract suite on the program of an `exec:` URL.

use std::process::ExitCode;

use quorlock::node::Seams;
use quorlock::runtime::SystemClock;
use quorlock_exec::ExecNode;
use quorlock_testkit::contract::{ByRequests, check_contract};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("name the program: exec:/path/to/program?arg=…");
        return ExitCode::from(64);
    };
    let node = match ExecNode::new(&url, &Seams::default()) {
        Ok(node) => node,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    match check_contract(&node, &ByRequests(node.clone()), &SystemClock::default()).await {
        Ok(()) => {
            println!("{url} keeps the contract");
            ExitCode::SUCCESS
        }
        Err(breach) => {
            println!("{breach}");
            ExitCode::FAILURE
        }
    }
}
