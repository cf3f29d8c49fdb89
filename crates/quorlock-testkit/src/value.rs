//! What other programs store.

/// A value that another program stores at a server, for tests of what a node makes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a lock meets a string, a number, or something else")]
pub enum Value {
    /// A string, which is what locks are.
    Text(Vec<u8>),
    /// A list, representing every type that locks do not use.
    List(Vec<Vec<u8>>),
    /// A fencing counter.
    Number(u64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}
