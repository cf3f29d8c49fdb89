//! Keeps the panic of one from ending the work for all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// Calls what others have written, or what belongs to a round that is one of many: should it panic, that
/// is logged, and the connection goes on.
pub(super) fn contained(what: &'static str, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        error!(what, panic = words(&*panic), "what a node has called has panicked");
    }
}

/// What a panic says.
pub(super) fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words,
        (None, None) => "it did not say why",
    }
}
