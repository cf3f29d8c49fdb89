//! Contains panics, so that one callback does not end the work of all.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quorlock_protocol::{InboxId, InboxMessage};
use tracing::error;

use super::{ConnectionState, Hint, HintListener, Identity, StatusListener};

/// A listener of a node whose panics are logged, and do not end the node's work.
#[derive(Debug)]
pub(crate) struct Contained<T>(pub(crate) T);

impl<T: HintListener> HintListener for Contained<T> {
    fn on_hint(&self, hint: Hint<'_>) {
        catch_panic("a listener", || self.0.on_hint(hint));
    }

    fn inbox(&self) -> Option<InboxId> {
        self.0.inbox()
    }

    fn inbox_open(&self) {
        catch_panic("a listener", || self.0.inbox_open());
    }

    fn receive(&self, message: InboxMessage<'_>, from: &Arc<Identity>) {
        catch_panic("a listener", || self.0.receive(message, from));
    }
}

impl<T: Deref<Target: StatusListener> + fmt::Debug + Send + Sync> StatusListener for Contained<T> {
    fn on_status(&self, state: ConnectionState) {
        catch_panic("a status listener", || self.0.on_status(state));
    }
}

/// Runs the work of a node's thread until it returns. A panic, in it or in what it calls, is logged, and it runs again.
pub(super) fn run_again(node: &str, mut work: impl FnMut()) {
    while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
        error!(node, panic = words(&*panic), "the thread of the node panicked; reconnecting");
    }
}

/// Calls code of a round among many, or a listener. A panic is logged, and the connection continues.
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
