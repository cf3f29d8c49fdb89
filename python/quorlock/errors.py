"""The exceptions. All are of the class `QuorlockError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorlock.votes import Holder, VoteReport

__all__ = [
    "AcquireError",
    "Closed",
    "ConfigError",
    "Full",
    "Held",
    "Lost",
    "Misconfigured",
    "NoQuorum",
    "OtherPermits",
    "QuorlockError",
    "Unconfirmed",
]


class QuorlockError(Exception):
    """The base of all exceptions of this package."""


class ConfigError(QuorlockError, ValueError):
    """A setting that cannot work. The message names one that would."""


class Closed(QuorlockError):
    """The coordinator was closed."""


class AcquireError(QuorlockError):
    """Nothing was acquired."""

    #: The name that was asked for.
    resource: str
    #: What each node said.
    report: VoteReport | None
    #: For how many seconds the call waited.
    waited: float

    def __init__(
        self, message: str, *, resource: str = "", report: VoteReport | None = None, waited: float = 0.0
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.report = report
        self.waited = waited


class Held(AcquireError):
    """Another client holds the lock, and `wait` has passed."""

    @property
    def holder(self) -> Holder | None:
        """Who holds it, as far as the nodes know."""
        return None if self.report is None else self.report.holder

    @property
    def remaining(self) -> float | None:
        """For how many more seconds it is held if no holder renews or releases it. A holder at work renews."""
        return None if self.holder is None else self.holder.remaining


class Full(Held):
    """All permits of the semaphore are taken, and `wait` has passed."""

    #: Who holds each permit, by number; `None` where that is unknown.
    holders: Sequence[Holder | None]

    def __init__(
        self, message: str, *, resource: str = "", holders: Sequence[Holder | None] = (), waited: float = 0.0
    ) -> None:
        super().__init__(message, resource=resource, waited=waited)
        self.holders = holders

    @property
    def holder(self) -> Holder | None:
        """The first holder that is known."""
        return next((holder for holder in self.holders if holder is not None), None)

    @property
    def remaining(self) -> float | None:
        """For how many more seconds all permits are held if no holder renews or releases one."""
        return min((holder.remaining for holder in self.holders if holder is not None), default=None)


class NoQuorum(AcquireError):
    """Too few nodes answered to know whether the lock is free."""


class Misconfigured(NoQuorum):
    """Nodes refuse to vote for a reason that waiting does not cure, such as a wrong password."""


class OtherPermits(AcquireError):
    """Other clients use this semaphore with another number of permits."""


class Lost(QuorlockError):
    """The lease is over, and what ran since may not have been protected."""

    #: The name of the lock.
    resource: str
    #: `expired`, `quorum_lost`, `max_hold`, `released`, `closed`, or `forked` in a child of the holder. Of a body that
    #: asyncio has cancelled before the end, `expired` also for the end of `max_hold`.
    reason: str

    def __init__(self, message: str, *, resource: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        self.reason = reason


class Unconfirmed(QuorlockError):
    """No quorum confirmed a renewal. The lease lasts until its validity ends."""

    #: The name of the lock.
    resource: str
    #: What each node said.
    report: VoteReport | None

    # All have a default, so that the exception survives `pickle`, which calls with the message alone.
    def __init__(self, message: str, *, resource: str = "", report: VoteReport | None = None) -> None:
        super().__init__(message)
        self.resource = resource
        self.report = report
