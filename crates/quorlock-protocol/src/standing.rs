/// Whether a node may hold the key of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: all that may be known of a key")]
pub enum Standing {
    /// It does not, and no request that would change that is in flight.
    Without,
    /// It does.
    Holds,
    /// A request is in flight, over a connection that was recently alive: a release sent now is
    /// queued behind it, or fails with it.
    InFlight,
    /// It may, now or later.
    Unknown,
}

impl Standing {
    /// Returns the state after a later request. A renewal that was refused or not sent leaves the
    /// key as it was; one in flight says nothing about earlier requests.
    #[must_use]
    pub fn then(self, later: Standing) -> Standing {
        match (self, later) {
            (Standing::Unknown | Standing::InFlight, _) | (_, Standing::Unknown) => Standing::Unknown,
            (_, Standing::InFlight) => Standing::InFlight,
            (Standing::Holds, _) | (_, Standing::Holds) => Standing::Holds,
            (Standing::Without, Standing::Without) => Standing::Without,
        }
    }

    /// Returns where the old key may still be stored, or may yet arrive, after the node was asked
    /// to replace it by the next claim's, whose state is `replaced`. A request with an unknown
    /// outcome may arrive when the next key is gone as well: only a tombstone stops it (rule I-40).
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
