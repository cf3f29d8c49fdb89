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
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, overload

# Before the extension module.
from quorlock import _interpreter as _interpreter

# isort: split
from quorlock import _decorated, _habits, _quorlock, _settings
from quorlock._base import BaseCoordinator, BaseElection, BaseLock
from quorlock._decorated import NeedsAio
from quorlock._lease import Lease, LostEvent
from quorlock._quorlock import Owner
from quorlock._settings import ConnectSettings, Duration, OnceOptions, seconds, unicode
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
from quorlock.votes import (
    Finding,
    Holder,
    HoldLog,
    Leader,
    LoggedHold,
    Names,
    NodeHealth,
    Observed,
    Vote,
    VoteReport,
    Waiter,
    Waiters,
    Waiting,
)

__all__ = [
    "AcquireError",
    "Closed",
    "ConfigError",
    "Coordinator",
    "Election",
    "Finding",
    "Full",
    "Held",
    "HoldLog",
    "Holder",
    "Leader",
    "Lease",
    "Lock",
    "LoggedHold",
    "Lost",
    "LostEvent",
    "Misconfigured",
    "Names",
    "NoQuorum",
    "NodeHealth",
    "Observed",
    "Observer",
    "OtherPermits",
    "Owner",
    "QuorlockError",
    "Semaphore",
    "Unconfirmed",
    "Vote",
    "VoteReport",
    "Waiter",
    "Waiters",
    "Waiting",
    "connect",
]

__version__: str = _quorlock.__version__

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

    from typing_extensions import Unpack

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


def connect(nodes: str | Iterable[str] | None = None, **settings: Unpack[ConnectSettings]) -> Coordinator:
    """Makes a coordinator of locks on these nodes. It contacts no one yet, and raises `ConfigError` for settings that
    cannot work.

    `nodes` are addresses, in a list or with commas between them: `redis://`, `rediss://`, `redis+sentinel://`,
    `redis+cluster://`, `postgres://`, `mysql://`, `etcd://`, `zookeeper://`, `sqlite://`, `exec:`. One node is a lock
    of one server, without a quorum.

    Without them the settings are those of the command `quorlock`: the variables `QUORLOCK_NODES` and so on, and beneath
    these the file `config`, or the one that `QUORLOCK_CONFIG` names, or the first of `./quorlock.toml`,
    `~/.config/quorlock/quorlock.toml` and `/etc/quorlock.toml` that other users cannot write. Keywords override both.

    `ttl` (30 s) is how long others wait after a crash of this process, `max_ttl` (30 s) the longest TTL of any client;
    all clients must agree on it, and restarted nodes do not vote for so long. `restart_guard=False` is for servers that
    were just started for the first time. `username` and `password` are for all addresses without them; `password_file`
    has the password in its first line, and is read again for each connection, since it may change. `tls_ca` is a file
    of authorities, `tls_cert` and `tls_key` the client's certificate, and `tls_server_name` the name in those of the
    servers. `key_prefix` is put before each name, and `label` is what others see of this client. `log` is how many
    holds of each lock the nodes keep, for `Lock.log` and the command `quorlock log`: 0 unless set, at most 200.
    `quorum`, `node_timeout`, `connect_timeout` and `drift` are explained at `Builder` in the documentation of the
    library.
    """
    return Coordinator(_settings.connect(nodes, settings))


class _Wanted(BaseLock, _quorlock.LockContext):
    """What locks and semaphores have in common. `with` is in the extension module, where no handler of a signal runs
    between an acquisition and the body, nor between the body and the release."""

    __slots__ = ("__weakref__", "_on_wait")

    def acquire(self, *others: NoReturn, keep: bool = False, **keywords: NoReturn) -> Lease:
        """Waits until it is acquired. Ctrl-C ends the wait.

        Keep the lease in a variable: losing the last reference to it releases it, with a warning. `keep=True` holds it
        until `release()`, `q.close()` or the exit of the process, even if no variable does.

        Raises `Held` if other clients still hold it after `wait`, and `NoQuorum` if too few nodes answered to know. A
        semaphore raises `Full` instead of `Held`, and `OtherPermits` if others use it with another number of permits.
        """
        _habits.refuse_all("acquire", others, keywords)
        return self._acquire(keep)

    def try_acquire(self, *others: NoReturn, keep: bool = False, **keywords: NoReturn) -> Lease | None:
        """Asks once, and returns `None` if other clients hold it. Raises `NoQuorum` if too few nodes answered to know.
        `keep` is as for `acquire`."""
        _habits.refuse_all("try_acquire", others, keywords)
        return self._try_acquire(keep)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        function: Callable[
            _P,
            Awaitable[Any]
            | Generator[Any, Any, Any]
            | AsyncIterator[Any]
            | map[Any]
            | filter[Any]
            | zip[Any]
            | _GeneratorContextManager[Any]
            | _AsyncGeneratorContextManager[Any],
        ],
    ) -> NeedsAio: ...

    @overload
    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]: ...

    def __call__(self, function: Callable[_P, Any]) -> Callable[_P, Any] | NeedsAio:
        """As a decorator: each call of the function acquires it first.

        It refuses `async def` and functions that return a generator, `map` and the like, or what
        `contextlib.contextmanager` makes, since what those do runs after the call: `quorlock.aio` has a decorator for
        coroutines.
        """
        return _decorated.of_threads(self, function)


class Lock(_Wanted):
    """A name and options, which any number of threads may acquire. Made by `Coordinator.lock` and `lock_all`.

    As a context manager it acquires the lock, and releases it at the end. The body never runs without the lock. A
    thread that holds the lock and asks for it again waits for itself, unless both have the same `owner`.
    """

    __slots__ = ()

    def inspect(self) -> VoteReport:
        """Asks all nodes who holds the lock, and acquires nothing. `unknown` is whether too few answered to know."""
        report = self._lock.inspect()
        assert isinstance(report, VoteReport)
        return report

    def waiters(self) -> Waiters:
        """Lists the clients that wait for the lock, the first in the queue first; `has_more` if there may be others."""
        return self._lock.waiters()

    def until_free(self) -> None:
        """Waits until no client holds the lock, and acquires nothing. Raises as `acquire`."""
        self._lock.until_free()

    def log(self) -> HoldLog:
        """Reads who held the lock before, from when and for how long, and how that ended: the latest last. Waits for
        each node at most its timeout.

        Only clients whose setting `log` says so have logged a hold, and only Redis and Valkey servers and clusters keep
        it, for a week after the last. That of an election is of the lock of its name, and a semaphore has one for
        each permit: `q.lock("exports#0").log()`. Raises `ConfigError` if no node keeps a log, and for `lock_all`; nodes
        that do not answer are in its `report`.
        """
        return self._lock.log()

    def revoke(self, token: bytes) -> VoteReport:
        """Takes the lock away from the holder with this token, which `inspect().holder.token` has. `unknown` is whether
        too few nodes answered to know that it has none any more."""
        return self._lock.revoke(_settings.token(token))


class Semaphore(_Wanted):
    """Permits, of which several clients may hold one each. Made by `Coordinator.semaphore`.

    As a context manager it acquires a permit, and releases it at the end.
    """

    __slots__ = ()

    def inspect(self) -> list[VoteReport]:
        """Asks all nodes who holds each permit, by number."""
        reports = self._lock.inspect()
        assert isinstance(reports, list)
        return reports


class Election(BaseElection):
    """Candidates, of which one is the leader. Made by `Coordinator.election`."""

    __slots__ = ()

    def campaign(self, value: str) -> Lease:
        """Waits until elected, and announces `value` to observers. The leadership is a lease: `release()` resigns."""
        return Lease(self._election.campaign(unicode("the value", value)), value)

    def leader(self) -> Observed:
        """Asks all nodes who leads."""
        return self._election.leader()

    def observe(self) -> Observer:
        """Follows the leader, without being a candidate."""
        return Observer(self._election.observe())


class Observer:
    """Follows the leader of an election."""

    __slots__ = ("_observer",)

    def __init__(self, observer: _quorlock.Observer) -> None:
        self._observer = observer

    def changed(self, timeout: Duration | None = None) -> Observed:
        """Waits until the leader is another than last time; the first call returns the current one. Raises
        `TimeoutError` if nothing has changed after `timeout`; call again."""
        return self._observer.changed(seconds(timeout, "timeout"))


class Coordinator(BaseCoordinator[Lock, Semaphore, Election]):
    """Coordinates locks over several nodes. Made by `connect()`; any number of threads may use it.

    After a fork the child may use it as well: it connects by itself then. Leases are void in the child.
    """

    __slots__ = ()
    _lock, _semaphore, _election = Lock, Semaphore, Election

    def once(
        self, name: str, *, every: Duration, **options: Unpack[OnceOptions]
    ) -> Callable[[Callable[_P, _T]], Callable[_P, _T | None]]:
        """A decorator for a job that several processes start: `@q.once("import", every=timedelta(hours=20))`.

        The first call runs the function under the lock of this name, which then stays taken until `every` has passed
        since the call began, held by no process; with whatever the function returns or raises. All other calls until
        then return `None` without waiting, in any process. So `every` is shorter than the interval between the starts,
        and longer than the time by which they can differ. After a crash halfway the next call runs it again.

        The options are `ttl`, `max_hold` and `label`, as of `lock`. Raises `NoQuorum` if too few nodes answer, and
        `Lost` if the lock was lost meanwhile: the function may run elsewhere then. `once` itself raises `ConfigError`
        if the lock could not stay taken: for longer than ten years, or on nodes where it ends with its process.
        """
        lock, period = self._once(name, every, options)
        return lambda function: _decorated.once_of_threads(lock, period, function)

    def doctor(self) -> list[Finding]:
        """Examines all nodes, as `quorlock doctor`, for what makes locks on them unsafe, slow or impossible. It takes
        some forty round trips, at most a minute, and acquires and releases a lock of its own at each node."""
        return self._connection.doctor()

    def names(self, prefix: str = "") -> Names:
        """Lists the names of locks that begin with `prefix`, held or with waiters, without slowing others down: a Redis
        server takes 45 s for a million keys. `q.lock(name).inspect()` has the holder."""
        return self._connection.names(unicode("the prefix", prefix))

    def close(self, timeout: Duration | None = 5.0) -> None:
        """Ends and releases all leases, refuses new ones, and waits until the nodes have confirmed, for at most
        `timeout`, or with `None` until each has answered or was given up. At exit this happens by itself, for all
        coordinators together and within a second."""
        self._connection.close(seconds(timeout, "timeout"))

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
