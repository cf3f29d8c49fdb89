use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Defines one name type; they differ only in what they name.
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
    /// A client: it acquires locks one after the other or in parallel, and crashes as a unit. A
    /// process, or whatever a simulation kills in one step.
    Client
}
name! {
    /// A locked resource.
    Resource
}
name! {
    /// An attempt and the lease it returned; unique within a history.
    ///
    /// The value of a key on a node must identify its attempt. So this is the random token, or
    /// something shorter that the recorder can read from a key: the label in the holder's context
    /// is known before the attempt begins. An `acquire` that draws several random tokens is one
    /// attempt here, and so is a lease that its owner reacquires.
    Token
}
name! {
    /// An independent server.
    Node
}
name! {
    /// A fault, named after what was done, such as `kill eu-1`. The same one may begin again after
    /// it has healed.
    Fault
}
