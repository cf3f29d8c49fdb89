//! The configuration file: read, or refused by its name and without its passwords.
#![no_main]

#[path = "../../crates/quorlock-cli/src/args.rs"]
#[allow(dead_code, unreachable_pub)]
mod args;
#[path = "../../crates/quorlock-cli/src/exit.rs"]
#[allow(dead_code)]
mod exit;
#[path = "../../crates/quorlock-cli/src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../../crates/quorlock-cli/src/config/layer.rs"]
#[allow(dead_code)]
mod layer;

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(failure) = layer::Layer::parse(text, Path::new("/etc/quorlock.toml")) {
        let said = failure.full();
        assert!(said.starts_with("/etc/quorlock.toml: "), "{said}");
    }
});
