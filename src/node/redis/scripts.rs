//! The scripts that the nodes run, each in one atomic step.
//!
//! They are sent in full with each request: `EVAL` costs 2 % more than `EVALSHA` (measured) and
//! can never meet a server that has forgotten the script, which in a clean-up would leave the
//! lock behind.

/// Stores the token if the key is free.
pub const ACQUIRE: &str = include_str!("scripts/acquire.lua");
/// Prolongs the key if it is ours, or stores it anew.
pub const RENEW: &str = include_str!("scripts/renew.lua");
/// Deletes the key if it is ours.
pub const RELEASE: &str = include_str!("scripts/release.lua");
/// Deletes the key if it is ours, and stops late requests.
pub const CANCEL: &str = include_str!("scripts/cancel.lua");
/// Tells who holds the key.
pub const INSPECT: &str = include_str!("scripts/inspect.lua");
