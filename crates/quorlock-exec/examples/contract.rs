//! Runs the contract suite on the program of an `exec:` URL.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use quorlock::node::{Expiry, Node as _, Seams};
use quorlock::runtime::{BoxFuture, SystemClock};
use quorlock_exec::ExecNode;
use quorlock_testkit::contract::{ByRequests, Plant, check_contract};
use quorlock_testkit::{Value, eventually, scaled};

/// Changes the data by requests, and kills the program to see what the next one remembers.
struct Program(ByRequests<ExecNode>);

impl Plant for Program {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        self.0.plant(key, value, expiry)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        self.0.remove(key)
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        self.0.expiry(key)
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        self.0.0.restart();
        Box::pin(std::future::ready(Ok(())))
    }
}

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
    // The suite reports one that says nothing.
    drop(
        eventually("its first line", scaled(Duration::from_secs(5)), async || node.ready().await.is_ok())
            .await,
    );
    match check_contract(&node, &Program(ByRequests(node.clone())), &SystemClock::default()).await {
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
