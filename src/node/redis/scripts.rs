//! The scripts that the nodes run, each in one atomic step.
//!
//! They are sent in full with each request: `EVAL` costs 2 % more than `EVALSHA` (measured) and
//! can never meet a server that has forgotten the script, which in a clean-up would leave the
//! lock behind.

use std::sync::LazyLock;

/// Stores the token if the key is free.
pub static ACQUIRE: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/acquire.lua")));
/// Stores the token if the key is free and nobody earlier waits for it; else joins the line.
pub static ACQUIRE_IN_TURN: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/acquire_in_turn.lua")));
/// Leaves the line of those who wait.
pub static LEAVE_LINE: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/leave_line.lua")));
/// Passes the key on from one token to the next.
pub static TRANSFER: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/transfer.lua")));
/// Prolongs the key if it is ours, or stores it anew.
pub static RENEW: LazyLock<String> = LazyLock::new(|| without_comments(include_str!("scripts/renew.lua")));
/// Deletes the key if it is ours.
pub static RELEASE: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/release.lua")));
/// Deletes the key if it is ours, and stops late requests.
pub static CANCEL: LazyLock<String> = LazyLock::new(|| without_comments(include_str!("scripts/cancel.lua")));
/// Tells who holds the key.
pub static INSPECT: LazyLock<String> =
    LazyLock::new(|| without_comments(include_str!("scripts/inspect.lua")));

/// Comments are for us: the server would read them with every request.
fn without_comments(script: &str) -> String {
    let code = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    code.collect::<Vec<_>>().join("\n")
}
