//! Contains panics, so that one callback does not end the work of all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// Runs the work of a node's thread until it returns. A panic, in it or in what it calls, is logged, and it runs again.
pub(super) fn run_again(node: &str, mut work: impl FnMut()) {
    while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
        error!(node, panic = words(&*panic), "the thread of the node panicked; reconnecting");
    }
}

/// Calls code of a listener, or of one round among many. A panic is logged, and the connection continues.
pub(crate) fn catch_panic(what: &'static str, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        error!(what, panic = words(&*panic), "code that a node called has panicked");
    }
}

/// Returns the message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words,
        (None, None) => "no message",
    }
}
