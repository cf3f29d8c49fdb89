//! The name of a waiter.

use std::fmt;

/// The name of a waiter in the queues of the nodes: a random number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(u64);

impl WaiterId {
    /// Creates the waiter of this random number.
    #[must_use]
    pub const fn new(random: u64) -> WaiterId {
        WaiterId(random)
    }

    /// Parses the digits of a waiter.
    #[must_use]
    pub fn parse(digits: &[u8]) -> Option<WaiterId> {
        hex(digits).map(WaiterId)
    }
}

/// Parses sixteen hexadecimal digits.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    let is_hex = digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
}

/// Sixteen hexadecimal digits.
impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
