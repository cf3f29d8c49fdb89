//! Contains panics, so that one callback does not end the work of all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// Calls code of a listener, or of one round among many. A panic is logged, and the connection continues.
pub(super) fn catch_panic(what: &'static str, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        error!(what, panic = words(&*panic), "code that a node called has panicked");
    }
}

/// Returns the message of a panic.
pub(super) fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words,
        (None, None) => "no message",
    }
}
