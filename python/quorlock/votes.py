"""What nodes said, in exceptions and in what `inspect` and `health` return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

__all__ = [
    "Finding",
    "HoldLog",
    "Holder",
    "Leader",
    "LoggedHold",
    "Names",
    "NodeHealth",
    "Observed",
    "Vote",
    "VoteReport",
    "Waiter",
    "Waiters",
    "Waiting",
]

Outcome = Literal[
    "granted",
    "restored",
    "held",
    "not_your_turn",
    "fence_ahead",
    "free",
    "quarantined",
    "duplicate",
    "pending",
    "failed",
    "skipped",
    "unknown",
]
Ended = Literal["released", "passed_on", "retained", "expired", "quorum_lost", "max_hold", "closed"]
Severity = Literal["unsafe", "warning", "unknown", "note"]
Status = Literal["unknown", "connected", "quarantined", "refusing", "partial", "stalled", "unreachable", "other"]


@dataclass(frozen=True)
class Vote:
    """The response of one node."""

    #: Its address, without the password.
    node: str
    outcome: Outcome
    #: The outcome in words, with the reason of a failure.
    detail: str
    #: The seconds until it responded.
    took: float
    #: Its counter for fencing tokens.
    fencing_token: int | None


@dataclass(frozen=True)
class Holder:
    """The client that holds a lock."""

    #: The random value that the nodes store.
    token: bytes = field(repr=False)
    #: `host:pid`, and the label of the client.
    context: str | None
    fencing_token: int | None
    #: How many nodes store it.
    nodes: int
    #: For how many more seconds they store it, if it is not renewed; `math.inf` if it never expires.
    remaining: float
    #: How many readers share the lock; 0 if it is not shared.
    readers: int
    #: All this in words.
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class VoteReport:
    """All votes of one round."""

    votes: list[Vote]
    #: How many votes are a quorum.
    needed: int
    granted: int
    holder: Holder | None
    #: Whether too few nodes answered to know who holds the lock: then it may be held even if `holder` is `None`.
    unknown: bool
    #: All this in words.
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class NodeHealth:
    """The state of one node, as its connection last saw it."""

    node: str
    status: Status
    #: The status in words, with the reason.
    detail: str
    #: For how many seconds it has had this status; a quarantine that has ended counts as connected.
    lasted: float
    #: How often it was seen to have restarted.
    restarts: int
    #: The last round trip in seconds.
    round_trip: float | None

    def __str__(self) -> str:
        return f"{self.node}: {self.detail}"


@dataclass(frozen=True)
class Finding:
    """Something that makes a deployment unsafe, slow or impossible, or may."""

    severity: Severity
    #: The node; `None` for the deployment as a whole.
    node: str | None
    #: Its name in the list of checks of `quorlock doctor`, which does not change.
    check: str
    evidence: str
    #: What to do.
    cure: str
    #: All this in words.
    text: str

    def __str__(self) -> str:
        return self.text


class Names(list[str]):
    """The names of locks, in alphabetical order."""

    #: The nodes that could not list them, each with the reason. If these are a quorum, there may be other names.
    failed: dict[str, str]

    def __init__(self, names: Iterable[str] = (), failed: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self.failed = dict(failed or {})


@dataclass(frozen=True)
class Leader:
    """The leader of an election."""

    #: What it announced when it campaigned.
    value: str
    fencing_token: int | None
    #: For how many more seconds it leads, if it does not renew; `math.inf` if that never expires.
    remaining: float


@dataclass(frozen=True)
class Observed:
    """Who leads an election, as far as the nodes know."""

    #: The leader; `None` if there is none, or if too few nodes answered to know.
    leader: Leader | None
    #: The votes, if too few nodes answered to know who leads.
    unknown: VoteReport | None = None

    def __str__(self) -> str:
        if self.unknown is not None:
            return f"unknown: {self.unknown}"
        return self.leader.value if self.leader is not None else "no leader"


@dataclass(frozen=True)
class Waiter:
    """A client in the queue for a lock."""

    id: str
    #: For how many seconds it has waited.
    waited: float
    #: `host:pid`, and the label of the client.
    context: str


class Waiters(list[Waiter]):
    """The clients in the queue for a lock, the first in it first."""

    #: Whether there may be more than these. So it is if no node with a queue has answered: an empty list does not
    #: mean then that no client waits. It is false when the node with the queue has just died, though those in it are
    #: missing until they have joined the queue of another node, a moment later.
    has_more: bool

    def __init__(self, waiters: Iterable[Waiter] = (), has_more: bool = False) -> None:
        super().__init__(waiters)
        self.has_more = has_more


@dataclass(frozen=True)
class LoggedHold:
    """A hold of a lock that has ended, as its holder has logged it."""

    #: `host:pid`, and the label of the holder.
    context: str
    #: When the lock was acquired, in UTC, by the clock of the holder's host.
    acquired: datetime
    #: For how many seconds it was held: to the end of its validity at most, however late the holder noticed that.
    held_for: float
    #: How that ended: as `Lost.reason`, or `passed_on` to the next caller of the same process, or `retained`.
    ended: Ended
    #: `None` with `fencing=False`.
    fencing_token: int | None
    #: Whether other readers could hold the lock as well.
    shared: bool
    #: The first random digits of the lease's `token`. It releases nothing. Leases that were passed on may share it.
    id: str
    #: How many nodes have the entry. Fewer than a quorum is no alarm: the holder does not wait for them.
    nodes: int
    #: All this in words.
    text: str

    def __str__(self) -> str:
        return self.text


class HoldLog(list[LoggedHold]):
    """The holds of a lock that have ended, in the order in which they did by the clocks of their holders: the latest
    last. It is a help for people, and no proof: a client that was killed, or cut off from the nodes, has left no entry,
    and neither has one that does not log."""

    #: Which nodes answered: those that are `granted`. One that keeps no log is `skipped`. Entries may be missing if
    #: `report.granted` is less than `report.needed`.
    report: VoteReport

    def __init__(self, holds: Iterable[LoggedHold], report: VoteReport) -> None:
        super().__init__(holds)
        self.report = report


@dataclass(frozen=True)
class Waiting:
    """The progress of a wait, for `on_wait`."""

    #: The client that holds the lock; `None` while several contend for it and none has it yet.
    holder: Holder | None
    #: How many callers in this process wait before this one.
    ahead: int
    #: How many other processes wait before this one, where 8 is 8 or more; `None` if no node keeps a queue, for
    #: readers, and for several locks.
    processes: int | None
    #: For how many seconds it has waited.
    waited: float
    #: Who holds it, in words.
    text: str

    def __str__(self) -> str:
        return self.text
