/// Whether a node may hold the key of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: all that may be known of a key")]
pub enum Standing {
    /// It does not, and no request that would change that is on its way.
    Without,
    /// It does.
    Holds,
    /// A request is on its way, over a connection that was there a moment ago: a release that is
    /// asked now queues up behind it, or fails with it.
    InFlight,
    /// It may, now or later.
    Unknown,
}

impl Standing {
    /// How a node stands after a later request. A renewal that was refused or not sent leaves the
    /// key as it was known before; one that is still on its way says nothing about what came
    /// before it.
    #[must_use]
    pub fn then(self, later: Standing) -> Standing {
        match (self, later) {
            (Standing::Unknown | Standing::InFlight, _) | (_, Standing::Unknown) => Standing::Unknown,
            (_, Standing::InFlight) => Standing::InFlight,
            (Standing::Holds, _) | (_, Standing::Holds) => Standing::Holds,
            (Standing::Without, Standing::Without) => Standing::Without,
        }
    }

    /// Where the key may still be stored, or may yet come, after the node was to replace it by the next
    /// claim's, to which it stands so now. A request of which nothing is known may arrive when the next key
    /// has gone as well: only a tombstone stops it (rule I-40).
    #[must_use]
    pub fn left_behind(self, replaced: Standing) -> Standing {
        match replaced {
            Standing::Holds if self == Standing::Unknown => Standing::Unknown,
            Standing::Holds => Standing::Without,
            Standing::Without => self,
            Standing::InFlight | Standing::Unknown if self == Standing::Without => Standing::Without,
            Standing::InFlight | Standing::Unknown => Standing::Unknown,
        }
    }
}
