//! A process that forks: tested here, since the library forbids unsafe code.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use quorlock::{
    Coordinator, Fencing,
    runtime::{Entropy as _, SystemEntropy},
};
use quorlock_testkit::memory_nodes;

/// Returns random bits, the token of a lock, and the process id.
fn drawn(coordinator: &Coordinator) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bits = format!("{:032x}", SystemEntropy::default().next_u128());
    let lease = runtime.block_on(coordinator.lock("r").fencing(Fencing::Off).acquire()).unwrap();
    let token = String::from_utf8(lease.token().as_bytes().to_vec()).unwrap();
    vec![bits, token, std::process::id().to_string()]
}

/// Rule I-4: otherwise the clean-up of one would release the other's lock.
#[test]
fn i42_parent_and_child_draw_different_tokens_and_each_names_its_own_process() {
    let coordinator = Coordinator::builder().custom_nodes(memory_nodes(3)).build().unwrap();
    // So that everything initialised once exists before the fork.
    drop(drawn(&Coordinator::builder().custom_nodes(memory_nodes(3)).build().unwrap()));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    #[expect(unsafe_code, reason = "the child uses nothing that another thread may have locked")]
    // SAFETY: allocation works in the child, and nothing else here is shared between threads.
    let forked = unsafe { fork() }.unwrap();
    let child = match forked {
        ForkResult::Child => {
            let written = writer.write_all(drawn(&coordinator).join("\n").as_bytes());
            // The harness must not continue in the child.
            std::process::exit(i32::from(written.is_err()))
        }
        ForkResult::Parent { child } => child,
    };
    drop(writer);
    let mut theirs = String::new();
    reader.read_to_string(&mut theirs).unwrap();
    waitpid(child, None).unwrap();
    let (ours, theirs) = (drawn(&coordinator), theirs.lines().map(str::to_owned).collect::<Vec<_>>());
    assert_ne!(ours[0], theirs[0], "the same random numbers");
    assert_ne!(ours[1][..32], theirs[1][..32], "the same token");
    for [_, token, process] in [ours.try_into().unwrap(), theirs.try_into().unwrap()] as [[String; 3]; 2] {
        assert!(token.ends_with(&format!(":{process}")), "{token} in process {process}");
    }
}
