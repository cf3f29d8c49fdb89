//! The order of those who wait in fair order.

/// A place in the line of those who wait for a lock in fair order: first come, first served, by
/// the waiters' own wall clocks.
///
/// Tickets are totally ordered, and the same at every node, so all nodes that know two waiters
/// agree on who is first. Clocks that show different times make the order unfair by
/// as much, and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    wall_micros: u64,
    id: u64,
}

impl Ticket {
    /// The place of somebody who came at this wall-clock time, in microseconds since 1970, told
    /// from others of the same microsecond by a random `id`. The time is cut to 2^53, which Redis'
    /// scores can hold.
    #[must_use]
    pub fn new(wall_micros: u64, id: u64) -> Ticket {
        Ticket { wall_micros: wall_micros.min(1 << 53), id }
    }

    /// When its owner came.
    #[must_use]
    pub fn wall_micros(self) -> u64 {
        self.wall_micros
    }

    /// What its owner is called in the line.
    #[must_use]
    pub fn name(self) -> String {
        format!("{:016x}", self.id)
    }
}
