//! The kinds of faults, and what triggers them.

use clap::ValueEnum;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes between a client and nodes are delayed, in one direction or both.
    Hold,
    /// Connections are cut and none can be opened.
    Cut,
    /// Bytes are lost in one direction, until the connection is reset.
    Loss,
    /// Nodes have a high latency for all clients.
    Slow,
    /// Nodes have a high latency for one client.
    Spike,
    /// Connections are reset. Data in flight is lost, or arrives much later.
    Reset,
    /// New connections are refused or get no answer.
    Connect,
    /// The server process is stopped and resumed (`SIGSTOP`).
    Pause,
    /// The server restarts with all its keys.
    Restart,
    /// The server restarts without its keys.
    Amnesia,
    /// The server answers scripts with errors.
    Fail,
    /// The client's machine is suspended: its clock advances, its timers do not.
    Suspend,
    /// The client's process is stopped and resumed.
    Stop,
    /// The client crashes, and another replaces it.
    Crash,
    /// A middlebox repeats requests to the node on a separate connection.
    Replay,
    /// The node's clock steps forwards. Not tolerated by design.
    Step,
    /// All keys of a node are deleted in one step (`FLUSHALL`). Tolerated while the clients stay: one that comes before they
    /// have noticed does not know.
    Flush,
    /// All keys of a node are deleted one by one. Not tolerated by design.
    Delete,
}

impl Kind {
    /// The faults that the library is designed to tolerate.
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
}

/// What triggers a fault. Faults at random times are weak: of a hundred runs in which nodes lost their keys
/// at random, three failed; of fifty in which they did so while the lock was held, all failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// At its scheduled time.
    Nothing,
    /// After the next client has requested a lock: in the middle of a round.
    Asking,
    /// After the next client has acquired one: it hits the holder.
    Granted,
    /// When the next client releases one.
    Ending,
}
