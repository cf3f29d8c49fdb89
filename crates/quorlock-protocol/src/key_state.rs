/// Whether a node may hold the key of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: all that may be known of a key")]
pub enum KeyState {
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

impl KeyState {
    /// Returns the state after a later request. A renewal that was refused or not sent leaves the
    /// key as it was; one in flight says nothing about earlier requests.
    #[must_use]
    pub fn then(self, later: KeyState) -> KeyState {
        let both = match (self, later) {
            (KeyState::Unknown | KeyState::InFlight, _) | (_, KeyState::Unknown) => KeyState::Unknown,
            (_, KeyState::InFlight) => KeyState::InFlight,
            (KeyState::Holds, _) | (_, KeyState::Holds) => KeyState::Holds,
            (KeyState::Without, KeyState::Without) => KeyState::Without,
        };
        debug_assert!(
            self != KeyState::Unknown || both == KeyState::Unknown,
            "an unknown state was forgotten"
        );
        both
    }

    /// Returns where the old key may still be stored, or may yet arrive, after the node was asked
    /// to replace it by the next claim's, whose state is `replaced`. A request with an unknown
    /// outcome may arrive when the next key is gone as well: only a tombstone stops it (rule I-40).
    #[must_use]
    pub fn left_behind(self, replaced: KeyState) -> KeyState {
        let left = match replaced {
            KeyState::Holds if self == KeyState::Unknown => KeyState::Unknown,
            KeyState::Holds => KeyState::Without,
            KeyState::Without => self,
            KeyState::InFlight | KeyState::Unknown if self == KeyState::Without => KeyState::Without,
            KeyState::InFlight | KeyState::Unknown => KeyState::Unknown,
        };
        debug_assert!(
            self != KeyState::Unknown || left == KeyState::Unknown,
            "an unknown state was forgotten"
        );
        left
    }
}
