//! The listeners of a node, and the pushes of its server.

use std::sync::Arc;

use super::resp::decode::{RespReader, RespValue};
use crate::node::{Hint, HintListener, Identity};
use crate::runtime::Mutex;
use quorlock_protocol::{InboxId, InboxMessage, proven};

/// The listeners of a node, shared by its handle and its task.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// Listeners are called while it is locked, so that each hears what happens in order. They do not block.
    audience: Mutex<Audience>,
}

/// The listeners of a server or of a cluster.
#[derive(Debug, Default)]
pub(super) struct Audience {
    listeners: Vec<Arc<dyn HintListener>>,
    hearing: bool,
    /// The secret of the server (rule O-11).
    secret: Option<Box<[u8]>>,
}

impl Audience {
    pub(super) fn add(&mut self, listener: Arc<dyn HintListener>) {
        if self.hearing {
            listener.on_hint(Hint::Subscribed);
        }
        self.listeners.push(listener);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Returns whether changes are notified.
    pub(super) fn is_hearing(&self) -> bool {
        self.hearing
    }

    /// Records whether changes are notified from now on.
    pub(super) fn set_hearing(&mut self, hearing: bool) {
        self.hearing = hearing;
        self.notify(if hearing { Hint::Subscribed } else { Hint::Unsubscribed });
    }

    pub(super) fn notify(&self, hint: Hint<'_>) {
        for listener in &self.listeners {
            listener.on_hint(hint);
        }
    }
}

impl Listeners {
    pub(crate) fn add(&self, listener: Arc<dyn HintListener>) {
        self.audience.lock().add(listener);
    }

    /// Returns whether there is a listener.
    pub(crate) fn any(&self) -> bool {
        !self.audience.lock().is_empty()
    }

    /// A connection with change notifications has started.
    pub(crate) fn hearing(&self) {
        let mut audience = self.audience.lock();
        debug_assert!(
            !audience.is_hearing(),
            "a node has one connection, whose end is reported before the next"
        );
        audience.set_hearing(true);
    }

    /// The connection has ended.
    pub(crate) fn deaf(&self) {
        let mut audience = self.audience.lock();
        if audience.is_hearing() {
            audience.set_hearing(false);
        }
    }

    /// Returns the inboxes of the listeners.
    pub(crate) fn inboxes(&self) -> Vec<InboxId> {
        self.audience.lock().listeners.iter().filter_map(|listener| listener.inbox()).collect()
    }

    /// A connection has started on which messages to the inboxes arrive, proven by this `secret` (rule O-11).
    pub(crate) fn inbox_open(&self, secret: Box<[u8]>) {
        let mut audience = self.audience.lock();
        audience.secret = Some(secret);
        for listener in &audience.listeners {
            listener.inbox_open();
        }
    }

    /// Handles a push of the server with this history of its data.
    pub(crate) fn pushed(&self, push: &[u8], from: &Arc<Identity>) {
        let mut parts = RespReader::of(push);
        match (parts.next(), parts.next()) {
            (Some(RespValue::List(_)), Some(RespValue::Text(b"invalidate"))) => {
                self.audience.lock().invalidated(parts);
            }
            (Some(RespValue::List(_)), Some(RespValue::Text(b"message"))) => {
                if let (Some(RespValue::Text(_)), Some(RespValue::Text(payload))) =
                    (parts.next(), parts.next())
                {
                    self.audience.lock().received(payload, from);
                }
            }
            _ => {}
        }
    }
}

impl Audience {
    /// Delivers a message to an inbox.
    fn received(&self, payload: &[u8], from: &Arc<Identity>) {
        let proven = self.secret.as_ref().and_then(|secret| proven(secret, payload));
        for message in proven.into_iter().flat_map(InboxMessage::parse) {
            for listener in &self.listeners {
                listener.receive(message.clone(), from);
            }
        }
    }

    /// Notifies the listeners of changed keys.
    fn invalidated(&self, mut reply: RespReader<'_>) {
        // Nil instead of a list means all keys. Anything else is unknown, and another request is never wrong.
        let Some(RespValue::List(keys)) = reply.next() else { return self.notify(Hint::Flushed) };
        for _ in 0..keys {
            let Some(RespValue::Text(key)) = reply.next() else { return self.notify(Hint::Flushed) };
            self.notify(Hint::Invalidated(key));
        }
    }
}

/// Returns whether the push says that all keys may have changed: the server was emptied, or its data replaced.
pub(super) fn is_of_everything(push: &[u8]) -> bool {
    let mut parts = RespReader::of(push);
    matches!(
        [(); 3].map(|()| parts.next()),
        [Some(RespValue::List(2)), Some(RespValue::Text(b"invalidate")), Some(RespValue::Nothing)]
    )
}

/// Returns whether the push says that this key has changed, and no other.
pub(super) fn is_change_of(push: &[u8], key: &[u8]) -> bool {
    let mut parts = RespReader::of(push);
    matches!(
        [(); 4].map(|()| parts.next()),
        [Some(RespValue::List(2)), Some(RespValue::Text(b"invalidate")), Some(RespValue::List(1)), Some(RespValue::Text(hinted))]
            if hinted == key
    )
}

/// Returns whether the push says that this key may have changed.
pub(super) fn may_change(push: &[u8], key: &[u8]) -> bool {
    let mut parts = RespReader::of(push);
    let is_change = matches!(
        (parts.next(), parts.next()),
        (Some(RespValue::List(_)), Some(RespValue::Text(b"invalidate")))
    );
    let named = |mut parts: RespReader<'_>| match parts.next() {
        Some(RespValue::List(keys)) => {
            // Anything but a text is unknown.
            (0..keys).any(|_| !matches!(parts.next(), Some(RespValue::Text(hinted)) if hinted != key))
        }
        // Nil means all keys.
        _ => true,
    };
    is_change && named(parts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::redis::tests::HintLog;
    use quorlock_protocol::Moment;

    fn heard(push: &[u8]) -> Vec<String> {
        let (listeners, hints) = (Listeners::default(), Arc::new(HintLog::default()));
        listeners.add(Arc::clone(&hints) as Arc<dyn HintListener>);
        let from = Identity::new("abc", Moment::ORIGIN, Duration::ZERO).into();
        listeners.pushed(push, &from);
        hints.heard()
    }

    #[test]
    fn each_changed_key_is_notified() {
        assert_eq!(heard(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"), ["a", "b"]);
    }

    #[test]
    fn nil_or_an_unknown_value_means_all_keys() {
        for reply in ["_\r\n", "*-1\r\n", "$3\r\nkey\r\n", "*1\r\n:5\r\n", "*1\r\n%0\r\n"] {
            let push = format!(">2\r\n+invalidate\r\n{reply}");
            assert_eq!(heard(push.as_bytes()), ["Flushed"], "{reply:?}");
        }
    }

    #[test]
    fn only_nil_is_everything() {
        for (reply, everything) in [
            ("_\r\n", true),
            ("*-1\r\n", true),
            ("*1\r\n$1\r\na\r\n", false),
            ("*0\r\n", false),
            ("$0\r\n\r\n", false),
        ] {
            let push = format!(">2\r\n$10\r\ninvalidate\r\n{reply}");
            assert_eq!(is_of_everything(push.as_bytes()), everything, "{reply:?}");
        }
        assert!(!is_of_everything(b">2\r\n$7\r\nmessage\r\n_\r\n"));
        assert!(!is_of_everything(b">3\r\n$10\r\ninvalidate\r\n_\r\n_\r\n"));
    }

    #[test]
    fn a_change_of_one_key_is_distinguished() {
        let of_a = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
        assert!(is_change_of(of_a, b"a") && !is_change_of(of_a, b"b"));
        assert!(!is_change_of(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"a"));
        assert!(!is_change_of(b">2\r\n$10\r\ninvalidate\r\n_\r\n", b"a"), "all of them");
        assert!(!is_change_of(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\na\r\n", b"a"));
    }

    #[test]
    fn a_change_of_one_key_among_others_is_found() {
        let of_both = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert!(may_change(of_both, b"a") && may_change(of_both, b"b") && !may_change(of_both, b"c"));
        for reply in ["_\r\n", "*-1\r\n", "$3\r\nkey\r\n", "*1\r\n:5\r\n", "*1\r\n"] {
            let push = format!(">2\r\n+invalidate\r\n{reply}");
            assert!(may_change(push.as_bytes(), b"a"), "{reply:?} may be any key");
        }
        assert!(!may_change(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\na\r\n", b"a"));
    }

    #[test]
    fn other_pushes_are_ignored() {
        for push in [">0\r\n", ">-1\r\n", ">3\r\n+subscribe\r\n+a\r\n:1\r\n", ">1\r\n%0\r\n"] {
            assert!(heard(push.as_bytes()).is_empty(), "{push:?}");
        }
    }

    #[test]
    fn a_late_listener_learns_of_the_subscription() {
        let (listeners, early) = (Listeners::default(), Arc::new(HintLog::default()));
        listeners.add(Arc::clone(&early) as Arc<dyn HintListener>);
        listeners.deaf();
        listeners.hearing();
        let late = Arc::new(HintLog::default());
        listeners.add(Arc::clone(&late) as Arc<dyn HintListener>);
        listeners.deaf();
        assert_eq!(early.heard(), ["Subscribed", "Unsubscribed"]);
        assert_eq!(late.heard(), ["Subscribed", "Unsubscribed"]);
    }
}
