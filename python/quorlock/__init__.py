"""Distributed locks held by a quorum of independent Redis or Valkey masters, or databases.

    import quorlock

    with quorlock.connect("redis://a,redis://b,redis://c") as q:
        with q.lock("orders/42", ttl=30, wait=10) as lease:  # raises Held or NoQuorum
            store(order, fence=lease.fencing_token)
            lease.check()  # raises Lost

`quorlock.aio` has the same for asyncio. Durations are seconds, or `timedelta`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from quorlock import _decorated, _events, _quorlock, _settings
from quorlock._decorated import NeedsAio
from quorlock._lease import Lease, LostEvent
from quorlock._settings import DEFAULT, Default, Duration, OnLost, seconds
from quorlock.errors import (
    AcquireError,
    Closed,
    ConfigError,
    Full,
    Held,
    Lost,
    Misconfigured,
    NoQuorum,
    OtherPermits,
    QuorlockError,
    Unconfirmed,
)
from quorlock.votes import Holder, Leader, NodeHealth, Observed, Vote, VoteReport, Waiter, Waiters

__all__ = [
    "AcquireError",
    "Closed",
    "ConfigError",
    "Coordinator",
    "Election",
    "Full",
    "Held",
    "Holder",
    "Leader",
    "Lease",
    "Lock",
    "Lost",
    "LostEvent",
    "Misconfigured",
    "NoQuorum",
    "NodeHealth",
    "Observed",
    "Observer",
    "OtherPermits",
    "QuorlockError",
    "Semaphore",
    "Unconfirmed",
    "Vote",
    "VoteReport",
    "Waiter",
    "Waiters",
    "connect",
]

__version__: str = _quorlock.__version__

if TYPE_CHECKING:
    from quorlock import aio as aio
    from quorlock import metrics as metrics
    from quorlock import testing as testing
else:

    def __getattr__(name: str) -> object:
        """Imports `quorlock.aio`, with asyncio, when it is first used, and likewise the others."""
        if name in {"aio", "metrics", "testing"}:
            return importlib.import_module(f"quorlock.{name}")
        raise AttributeError(f"module 'quorlock' has no attribute {name!r}")


_P = ParamSpec("_P")
_T = TypeVar("_T")


def connect(
    nodes: str | Iterable[str] | None = None,
    *,
    ttl: Duration | None = None,
    max_ttl: Duration | None = None,
    key_prefix: str | None = None,
    label: str | None = None,
    username: str | None = None,
    password: str | None = None,
    password_file: str | os.PathLike[str] | None = None,
    quorum: int | None = None,
    node_timeout: Duration | None = None,
    connect_timeout: Duration | None = None,
    drift: float | None = None,
    restart_guard: bool = True,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    tls_server_name: str | None = None,
) -> Coordinator:
    """Makes a coordinator of locks on these nodes. It contacts no one yet, and raises `ConfigError` for settings that
    cannot work.

    `nodes` are addresses, in a list or with commas between them: `redis://`, `rediss://`, `redis+sentinel://`,
    `redis+cluster://`, `postgres://`, `mysql://`, `etcd://`, `zookeeper://`, `sqlite://`, `exec:`. Without them,
    `QUORLOCK_NODES` of the environment. One node is a lock of one server, without a quorum.

    `ttl` (30 s) is how long others wait after a crash of this process, `max_ttl` (30 s) the longest TTL of any client;
    all clients must agree on it, and restarted nodes do not vote for so long. `restart_guard=False` is for servers that
    were just started for the first time. `password_file` has the password in its first line, and is read again for each
    connection, since it may change. Every setting is explained at `Builder` in the documentation of the library.
    """
    connection = _settings.connect(
        nodes,
        ttl=ttl,
        max_ttl=max_ttl,
        key_prefix=key_prefix,
        label=label,
        username=username,
        password=password,
        password_file=password_file,
        quorum=quorum,
        node_timeout=node_timeout,
        connect_timeout=connect_timeout,
        drift=drift,
        restart_guard=restart_guard,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_server_name=tls_server_name,
    )
    return Coordinator(connection)


class Coordinator:
    """Coordinates locks over several nodes. Made by `connect()`; any number of threads may use it.

    After a fork the child may use it as well: it connects by itself then. Leases are void in the child.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: _quorlock.Connection) -> None:
        self._connection = connection
        _events.register(connection)

    def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        ttl: Duration | None = None,
        wait: Duration | Default | None = DEFAULT,
        renew: bool | Duration = True,
        max_hold: Duration | None = None,
        label: str | None = None,
        fencing: bool = True,
        metrics_class: str | None = None,
        on_lost: OnLost = "raise",
    ) -> Lock:
        """A lock, which is not acquired yet: `with q.lock("orders/42") as lease:`.

        `wait` is how long to wait while another client holds it: 35 s by default, 0 asks once, `None` waits for ever.
        `shared=True` is for readers. `renew=False` leaves the renewal to `lease.renew()`; a duration sets how
        often, at most every 10 ms. `max_hold` ends the lease after that time. `fencing=False` draws no fencing token.
        `label` is what others see of this client. `on_lost` is for `with`: a loss while the body ran raises `Lost` at
        its end, or is only logged.
        """
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        made = self._connection.lock([name], shared=shared, metrics_class=metrics_class, **options)
        return Lock(made, _settings.raises(on_lost))

    def lock_all(
        self,
        names: Iterable[str],
        *,
        ttl: Duration | None = None,
        wait: Duration | Default | None = DEFAULT,
        renew: bool | Duration = True,
        max_hold: Duration | None = None,
        label: str | None = None,
        fencing: bool = True,
        on_lost: OnLost = "raise",
    ) -> Lock:
        """A lock of several names, acquired together or not at all. The order of the names does not matter."""
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        made = self._connection.lock(_settings.several(names), together=True, **options)
        return Lock(made, _settings.raises(on_lost))

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        ttl: Duration | None = None,
        wait: Duration | Default | None = DEFAULT,
        renew: bool | Duration = True,
        max_hold: Duration | None = None,
        label: str | None = None,
        fencing: bool = True,
        on_lost: OnLost = "raise",
    ) -> Semaphore:
        """A semaphore of so many permits: `with q.semaphore("exports", 3) as permit:`."""
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        made = self._connection.semaphore(name, _settings.permits(permits), **options)
        return Semaphore(made, _settings.raises(on_lost))

    def election(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        max_hold: Duration | None = None,
    ) -> Election:
        """An election, of which one candidate is the leader. A candidate waits for ever unless `wait` is set."""
        made = self._connection.election(
            name, ttl=seconds(ttl, "ttl"), wait=_settings.waiting(wait), max_hold=seconds(max_hold, "max_hold")
        )
        return Election(made)

    def health(self) -> list[NodeHealth]:
        """The state of each node, as its connection last saw it. It asks no node."""
        return self._connection.health()

    def close(self, timeout: Duration = 5.0) -> None:
        """Ends and releases all leases, refuses new ones, and waits until the nodes have confirmed, for at most
        `timeout`. At exit this happens by itself, for all coordinators together and within a second."""
        self._connection.close(seconds(timeout, "timeout") or 0.0)

    def __repr__(self) -> str:
        return f"<quorlock.Coordinator of {self._connection.text}>"

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Wanted(_quorlock.LockContext):
    """What locks and semaphores have in common. `with` is in the extension module, where no handler of a signal runs
    between an acquisition and the body, nor between the body and the release."""

    __slots__ = ()

    def acquire(self, *, keep: bool = False) -> Lease:
        """Waits until it is acquired. Ctrl-C ends the wait.

        Keep the lease in a variable: losing the last reference to it releases it, with a warning. `keep=True` holds it
        until `release()`, `q.close()` or the exit of the process, even if no variable does.

        Raises `Held` if other clients still hold it after `wait`, and `NoQuorum` if too few nodes answered to know. A
        semaphore raises `Full` instead of `Held`, and `OtherPermits` if others use it with another number of permits.
        """
        return self._acquire(keep)

    def try_acquire(self, *, keep: bool = False) -> Lease | None:
        """Asks once, and returns `None` if other clients hold it. Raises `NoQuorum` if no quorum could tell. `keep` is
        as for `acquire`."""
        return self._try_acquire(keep)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        function: Callable[_P, Awaitable[Any]]
        | Callable[_P, Iterator[Any]]
        | Callable[_P, AsyncIterator[Any]]
        | Callable[_P, AbstractContextManager[Any]]
        | Callable[_P, AbstractAsyncContextManager[Any]],
    ) -> NeedsAio: ...

    @overload
    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]: ...

    def __call__(self, function: Callable[_P, Any]) -> Callable[_P, Any] | NeedsAio:
        """As a decorator: each call of the function acquires it first.

        It refuses `async def` and functions that return an iterator or a context manager, since what those do runs
        after the call: `quorlock.aio` has a decorator for coroutines.
        """
        return _decorated.of_threads(self, function)

    def __repr__(self) -> str:
        return f"<quorlock.{type(self).__name__} {self._lock.text}>"


class Lock(_Wanted):
    """A name and options, which any number of threads may acquire. Made by `Coordinator.lock` and `lock_all`.

    As a context manager it acquires the lock, and releases it at the end. The body never runs without the lock. A
    thread that holds the lock and asks for it again waits for itself: the lock is not reentrant.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name; those of `lock_all` with commas between them."""
        return ",".join(self._lock.names)

    def inspect(self) -> VoteReport:
        """Asks all nodes who holds the lock, and acquires nothing."""
        report = self._lock.inspect()
        assert isinstance(report, VoteReport)
        return report

    def waiters(self) -> Waiters:
        """Lists the clients that wait for the lock, the first in the queue first; `has_more` if there may be others."""
        return self._lock.waiters()

    def until_free(self) -> None:
        """Waits until no client holds the lock, and acquires nothing. Raises as `acquire`."""
        self._lock.until_free()

    def revoke(self, token: bytes) -> VoteReport:
        """Takes the lock away from the holder with this token, which `inspect().holder.token` has."""
        return self._lock.revoke(token)


class Semaphore(_Wanted):
    """Permits, of which several clients may hold one each. Made by `Coordinator.semaphore`.

    As a context manager it acquires a permit, and releases it at the end.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name."""
        return self._lock.names[0]

    def inspect(self) -> list[VoteReport]:
        """Asks all nodes who holds each permit, by number."""
        reports = self._lock.inspect()
        assert isinstance(reports, list)
        return reports


class Election:
    """Candidates, of which one is the leader. Made by `Coordinator.election`."""

    __slots__ = ("_election",)

    def __init__(self, election: _quorlock.Election) -> None:
        self._election = election

    def campaign(self, value: str) -> Lease:
        """Waits until elected, and announces `value` to observers. The leadership is a lease: `release()` resigns."""
        return Lease(self._election.campaign(value), value)

    def leader(self) -> Observed:
        """Asks all nodes who leads."""
        return self._election.leader()

    def observe(self) -> Observer:
        """Follows the leader, without being a candidate."""
        return Observer(self._election.observe())

    @property
    def name(self) -> str:
        """The name."""
        return self._election.name

    def __repr__(self) -> str:
        return f"<quorlock.Election {self._election.text}>"


class Observer:
    """Follows the leader of an election."""

    __slots__ = ("_observer",)

    def __init__(self, observer: _quorlock.Observer) -> None:
        self._observer = observer

    def changed(self, timeout: Duration | None = None) -> Observed:
        """Waits until the leader is another than last time; the first call returns the current one. Raises
        `TimeoutError` if nothing has changed after `timeout`; call again."""
        return self._observer.changed(seconds(timeout, "timeout"))
