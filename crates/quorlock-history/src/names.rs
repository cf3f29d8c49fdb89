use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Names differ in what they name, and in nothing else.
macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        ///
        /// Cheap to clone: the text is shared.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $Name {
            name: Arc<str>,
        }

        impl $Name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.name
            }
        }

        impl<Text: Into<Arc<str>>> From<Text> for $Name {
            fn from(name: Text) -> $Name {
                $Name { name: name.into() }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.name)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.name, f)
            }
        }
    };
}

name! {
    /// Who asks for locks. It does one thing after the other or several at once, and crashes as
    /// one: a process, or whatever a simulation kills at a stroke.
    Client
}
name! {
    /// What is protected.
    Resource
}
name! {
    /// Names one attempt, and the lease that came of it, in all of the history.
    ///
    /// The value of a key at a node has to tell to which attempt it belongs. So this is the random
    /// token, or something shorter that the recorder can read from a key: the label in the
    /// holder's context is known before the attempt begins. An `acquire` that draws several random
    /// tokens is one attempt here, and so is a lease that its owner acquires again and again.
    Token
}
name! {
    /// One independent server.
    Node
}
name! {
    /// A disturbance, by a name that says what was done, such as `kill eu-1`. The same one may
    /// begin again after it has healed.
    Fault
}
