//! What can go wrong, and what it aims at.

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes between a client and nodes are kept back, in one direction or both, and arrive later.
    Hold,
    /// Connections are cut and none can be made.
    Cut,
    /// Bytes are lost in one direction, until the connection is reset.
    Loss,
    /// Nodes are far away for a while, for everybody.
    Slow,
    /// Nodes are far away for one client.
    Spike,
    /// Connections are reset. What was on its way is lost, or arrives much later.
    Reset,
    /// New connections are refused or get no answer.
    Connect,
    /// The server process is stopped and goes on (`SIGSTOP`).
    Pause,
    /// The server restarts with all its keys.
    Restart,
    /// The server restarts without them.
    Amnesia,
    /// The server answers scripts with errors.
    Fail,
    /// The client's machine is suspended: its clock counts on, its timers stand still.
    Suspend,
    /// The client's process is stopped and goes on.
    Stop,
    /// The client dies, and another takes its place.
    Crash,
    /// A middlebox repeats requests to the node on a connection of its own.
    Replay,
    /// The node's clock is put forward. Out of promise.
    Step,
    /// Somebody deletes all keys of a node. Out of promise.
    Flush,
}

impl Kind {
    /// All that the library promises to survive.
    pub const PROMISED: [Kind; 15] = [
        Kind::Hold,
        Kind::Cut,
        Kind::Loss,
        Kind::Slow,
        Kind::Spike,
        Kind::Reset,
        Kind::Connect,
        Kind::Pause,
        Kind::Restart,
        Kind::Amnesia,
        Kind::Fail,
        Kind::Suspend,
        Kind::Stop,
        Kind::Crash,
        Kind::Replay,
    ];

    /// All, by the names that the command line knows.
    pub const ALL: [(&'static str, Kind); 17] = [
        ("hold", Kind::Hold),
        ("cut", Kind::Cut),
        ("loss", Kind::Loss),
        ("slow", Kind::Slow),
        ("spike", Kind::Spike),
        ("reset", Kind::Reset),
        ("connect", Kind::Connect),
        ("pause", Kind::Pause),
        ("restart", Kind::Restart),
        ("amnesia", Kind::Amnesia),
        ("fail", Kind::Fail),
        ("suspend", Kind::Suspend),
        ("stop", Kind::Stop),
        ("crash", Kind::Crash),
        ("replay", Kind::Replay),
        ("step", Kind::Step),
        ("flush", Kind::Flush),
    ];

    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("?", |(name, _)| name)
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// When a fault strikes. One that aims at nothing is weak: of a hundred runs in which nodes forgot
/// their keys at random moments, three noticed; of fifty in which they did so while somebody held
/// the lock, all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// At its time.
    Nothing,
    /// After the next client has asked for a lock: in the midst of a round.
    Asking,
    /// After the next client has got one: it strikes whoever holds it.
    Granted,
    /// When the next client gives one back.
    Ending,
}
