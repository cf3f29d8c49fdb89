//! A seed determines the run, in any process, and whatever ran before in it.

use std::process::Command;
use std::time::Duration;

use quorlock_sim::{Options, run};

/// For the child process: the seed to run.
const SEED: &str = "QUORLOCK_SIM_SEED";

fn hash_of(seed: u64) -> u64 {
    let mut options = Options::default();
    options.span = Duration::from_secs(20);
    run(seed, &options).trace
}

#[test]
fn a_seed_gives_the_same_trace_again_and_in_another_process() {
    if let Ok(seed) = std::env::var(SEED) {
        println!("trace {:016x}", hash_of(seed.parse().unwrap()));
        return;
    }
    let mut hashes = Vec::new();
    for seed in 0..4 {
        let (first, again) = (hash_of(seed), hash_of(seed));
        assert_eq!(first, again, "seed {seed} must run the same twice");
        hashes.push(first);
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "determinism::a_seed_gives_the_same_trace_again_and_in_another_process",
                "--nocapture",
            ])
            .env(SEED, seed.to_string())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(
            output.contains(&format!("trace {first:016x}")),
            "seed {seed} ran differently in a child process: {output}"
        );
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 4, "different seeds must run differently");
}
