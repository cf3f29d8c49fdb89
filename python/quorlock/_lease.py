"""A held lock, for threads."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable

from quorlock import _events, _quorlock
from quorlock._functions import refuse_uncallable
from quorlock._habits import Habits
from quorlock._settings import Duration, needed, seconds, unicode
from quorlock.errors import ConfigError, Lost, Unconfirmed

_LOG = logging.getLogger("quorlock")


class BaseLostEvent:
    """What the events of threads and of event loops have in common."""

    __slots__ = ("_lease",)

    def __init__(self, lease: _quorlock.Lease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lease is over, for any reason including its release."""
        return self._lease.loss is not None

    @property
    def reason(self) -> str | None:
        """Why the lease is over: see `Lost.reason`. `None` while it lasts."""
        return self._lease.loss


class LostEvent(BaseLostEvent):
    """Whether a lease is over, with the methods of `threading.Event`. Its holder cannot clear it."""

    __slots__ = ()

    def wait(self, timeout: Duration | None = None) -> bool:
        """Waits until the lease is over, for at most `timeout`. Returns whether it is."""
        return self._lease.loss is not None or self._lease.wait_lost(seconds(timeout, "timeout")) is not None


class BaseLease(Habits):
    """What leases of threads and of event loops have in common."""

    __slots__ = ()

    _lease: _quorlock.Lease
    _value: str | None

    @property
    def resource(self) -> str:
        """The name of the lock."""
        return self._lease.resource

    @property
    def fencing_token(self) -> int | None:
        """A number that is larger than that of each earlier holder, for the resource to check: it refuses smaller
        ones. `None` with `fencing=False`."""
        return self._lease.fencing_token

    @property
    def store_revision(self) -> int | None:
        """The number by which the store itself orders the holders, such as the create revision of the key in etcd;
        `None` for stores that have none, and unless one node is the whole deployment."""
        return self._lease.store_revision

    @property
    def token(self) -> bytes:
        """The random value that the nodes store. It orders nothing."""
        return self._lease.token

    @property
    def permit(self) -> int | None:
        """The number of the permit, if this is one of a semaphore."""
        return self._lease.permit

    @property
    def value(self) -> str | None:
        """What the leader announced, if this is the leadership of an election."""
        return self._value

    @property
    def remaining(self) -> float:
        """For how many more seconds it is valid, if it is not renewed. 0 once it is over."""
        return self._lease.remaining

    @property
    def unconfirmed_release(self) -> str | None:
        """What the nodes said to a release that no quorum has confirmed: others may have to wait until the TTL ends.
        `None` if one has, and before the release."""
        return self._lease.unconfirmed_release

    @property
    def shared(self) -> bool:
        """Whether other readers may hold the lock as well."""
        return self._lease.shared

    def check(self) -> None:
        """Raises `Lost` if the lease is over. It reads the clock and asks no node: call it right before each side
        effect."""
        self._lease.check()

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Calls `callback` with the reason when the lease is over, for any reason including its release. All callbacks
        run on one thread, so they must be short."""
        refuse_uncallable("callback", callback, "the reason, which is a word")
        _events.on_lost(self._lease, callback)

    def exit_on_lost(self, code: int) -> None:
        """Ends the process with this exit code, 0 to 255, as soon as the lease is lost, whatever it does then, and
        without cleaning up, as `os._exit`. Its release, and the end of the coordinator, are no loss. The loss is logged
        first; if that takes longer than a quarter of a second, or another callback still runs, the process ends without
        it, by the `exit` of C. If that takes as long again because of what C libraries have registered for it, or the
        system grants no thread, SIGKILL ends the process."""
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 255:
            raise ConfigError(f"code={code!r}: give an exit code, a whole number from 0 to 255")
        _events.on_lost(self._lease, functools.partial(_exit, self.resource, code), code)

    def __repr__(self) -> str:
        state = self._lease.loss or f"{self.remaining:.1f} s left"
        return f"<{type(self).__name__} of {self.resource!r}: {state}>"


class Lease(BaseLease, _quorlock.LeaseContext):
    """A held lock. It is renewed in the background until it is released or lost. Keep it in a variable: losing the last
    reference to it releases it, too, with a warning.

    As a context manager it raises `Lost` if it is over already, and releases the lock at the end, with the `on_lost` of
    the lock that it is of. It can be in one `with` only.
    """

    __slots__ = ()

    @property
    def lost(self) -> LostEvent:
        """Whether it is over: `lease.lost.wait(5)`."""
        return LostEvent(self._lease)

    def renew(self) -> None:
        """Starts a new TTL now. Needed only with `renew=False`.

        Raises `Lost` if the lease was over, and `Unconfirmed` if no quorum confirmed.
        """
        self._lease.renew(None)

    def extend(self, ttl: Duration) -> None:
        """As `renew`, for this TTL instead of the lock's, also from then on. A shorter one leaves the TTL as it is.

        Raises `ConfigError` for more than `max_ttl`; the lease goes on then.
        """
        self._lease.renew(needed(ttl, "ttl"))

    def release(self) -> None:
        """Gives the lock back, and waits until a quorum has confirmed, at most for the node timeout: then
        `unconfirmed_release` says so. Raises `Lost` if the lease was over before."""
        self._lease.release()

    def downgrade(self) -> None:
        """Lets other readers share the lock from now on."""
        self._lease.downgrade()

    def retain(self, time: Duration, note: str = "") -> None:
        """Ends the lease, and keeps the lock taken for `time`, held by no process: for jobs that must not run again too
        soon: 0 releases it. `note` is what others see."""
        self._lease.retain(needed(time, "time"), unicode("the note", note))


def _exit(resource: str, code: int, reason: str) -> None:
    if reason not in {"released", "closed"}:
        try:
            _LOG.error("`%s` is lost (%s): this process ends with %d", _quorlock.printable(resource), reason, code)
        finally:
            # Whatever a handler of logging does.
            os._exit(code)


def report_unconfirmed(error: Unconfirmed) -> None:
    """Logs that a lock may not stay taken after a function of `once`."""
    _LOG.warning("`%s` may run again too soon: %s", _quorlock.printable(error.resource), error)


def report(lost: Lost, in_time: bool = False) -> None:
    """Logs a loss that is not raised. `in_time` is whether the work ended before it."""
    _LOG.warning(
        "%s; %s", lost, "the work ended before" if in_time else "some of the work may have run without the lock"
    )
