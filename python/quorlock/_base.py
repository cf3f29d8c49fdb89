"""What coordinators, locks and elections of threads and of event loops have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quorlock import _events, _habits, _quorlock, _settings
from quorlock._habits import Habits
from quorlock._settings import (
    Duration,
    ElectionOptions,
    LockOptions,
    OnceOptions,
    OneLockOptions,
    SemaphoreOptions,
    SeveralLockOptions,
    seconds,
)
from quorlock.errors import ConfigError
from quorlock.votes import Finding, NodeHealth, Waiting

if TYPE_CHECKING:
    from typing_extensions import Unpack

_L = TypeVar("_L")
_S = TypeVar("_S")
_E = TypeVar("_E")
_T = TypeVar("_T")


class BaseCoordinator(Habits, Generic[_L, _S, _E]):
    """Coordinates locks over several nodes. Made by `connect()`; any number of threads and event loops may use it.

    After a fork the child may use it as well: it connects by itself then. Leases are void in the child.
    """

    __slots__ = ("_connection",)

    #: What makes a lock, a semaphore and an election.
    _lock: Callable[..., _L]
    _semaphore: Callable[..., _S]
    _election: Callable[..., _E]
    #: Options that only one kind of coordinator has.
    _own_options: frozenset[str] = frozenset()

    def __init__(self, connection: _quorlock.Connection) -> None:
        if not isinstance(connection, _quorlock.Connection):
            module = type(self).__module__
            raise TypeError(f'{module}.connect() makes coordinators: {module}.connect("redis://a,redis://b,redis://c")')
        self._connection = connection
        _events.register(connection)

    def lock(self, name: str, **options: Unpack[OneLockOptions]) -> _L:
        """A lock, which is not acquired yet: `with q.lock("orders/42") as lease:`, or `async with`.

        `ttl` is how long others wait after a crash of this process: that of the coordinator by default. `wait` is how
        long to wait while another client holds it: 35 s by default, 0 asks once, `None` waits for ever. `shared=True`
        is for readers. `renew=False` leaves the renewal to `lease.renew()`; a duration sets how often, at most every
        10 ms. `max_hold` ends the lease after that time. `fencing=False` draws no fencing token. `label` is what others
        see of this client, and `metrics_class` names a group of locks in the metrics. `on_lost` is for `with`, of the
        lock or of a lease of it: with "raise", the default, a loss while the body ran raises `Lost` at its end, and
        with "warn" it is only logged; with either, a body that `quorlock.aio` has cancelled raises `Lost`, unless it
        suppresses the cancellation.

        `on_wait` is called with a `Waiting` when this client, while it waits, learns which client of another
        coordinator holds the lock: on the thread of `lease.on_lost`, so it must be short. `owner` may acquire the lock
        again while it holds it: see `Owner`. `handoff` is how often in a row the lock may pass from one caller of
        this process to the next before other processes get a chance, 64 by default, and `handoff_within` for how long,
        one TTL by default; either may be 0, for never.

        Of `quorlock.aio` alone: `async with` cancels its body `notice` before the validity ends, a tenth of the TTL by
        default and at most a second, and never more than a third of it.
        """
        context = self._context("lock", options, OneLockOptions.__optional_keys__)
        shared = _settings.flag("shared", options.get("shared", False))
        group = _settings.text("metrics_class", options.get("metrics_class"))
        raw = _settings.options(options)
        made = self._connection.lock(
            [_settings.unicode("the name", name)],
            shared=shared,
            metrics_class=group,
            owner=_settings.owner(options.get("owner")),
            **_settings.handing_on(options),
            **raw,
        )
        return _follow(self._lock(made, *context), raw["on_wait"], options.get("on_wait"))

    def lock_all(self, names: Iterable[str], **options: Unpack[SeveralLockOptions]) -> _L:
        """A lock of several names, acquired together or not at all. The order of the names does not matter. The options
        are those of `lock`, without `shared`, `metrics_class`, `handoff` and `handoff_within`."""
        context = self._context("lock_all", options, SeveralLockOptions.__optional_keys__)
        raw = _settings.options(options)
        made = self._connection.lock(
            _settings.several(names), together=True, owner=_settings.owner(options.get("owner")), **raw
        )
        return _follow(self._lock(made, *context), raw["on_wait"], options.get("on_wait"))

    def semaphore(self, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> _S:
        """A semaphore with this number of permits: `with q.semaphore("exports", 3) as permit:`. The options are those
        of `lock`, without `shared`, `metrics_class` and `owner`."""
        context = self._context("semaphore", options, SemaphoreOptions.__optional_keys__)
        raw = _settings.options(options)
        handoff = _settings.handing_on(options)
        made = self._connection.semaphore(
            _settings.unicode("the name", name), _settings.permits(permits), **handoff, **raw
        )
        return _follow(self._semaphore(made, *context), raw["on_wait"], options.get("on_wait"))

    def _once(self, name: str, every: Duration, options: OnceOptions) -> tuple[_L, float]:
        """The lock of `once`, and the seconds of its period."""
        _habits.refuse("once", options.keys() - OnceOptions.__optional_keys__)
        if not (period := seconds(every, "every")):
            raise ConfigError(f"every={every!r}: give the time in which the function is called once")
        lock: Any = self.lock(name, **options)
        lock._lock.validate_retention(period)
        return lock, period

    def election(self, name: str, **options: Unpack[ElectionOptions]) -> _E:
        """An election, of which one candidate is the leader. The options are `ttl`, `max_hold`, `wait` and `on_wait`,
        as of `lock`, but a candidate waits for ever unless `wait` is set. What it announces is what others see of it,
        in place of a `label`."""
        _habits.refuse("election", options.keys() - ElectionOptions.__optional_keys__)
        wait, ttl, longest = options.get("wait"), options.get("ttl"), options.get("max_hold")
        number = _settings.following(options.get("on_wait"))
        made = self._connection.election(
            _settings.unicode("the name", name),
            ttl=seconds(ttl, "ttl"),
            wait=_settings.waiting(wait),
            max_hold=seconds(longest, "max_hold"),
            on_wait=number,
        )
        return _follow(self._election(made), number, options.get("on_wait"))

    def health(self) -> list[NodeHealth]:
        """The state of each node, as its connection last saw it. It asks no node."""
        return self._connection.health()

    def warnings(self) -> list[Finding]:
        """What is wrong with the nodes, by what they have said of themselves. It asks no node, and `doctor()` finds
        more."""
        return self._connection.warnings()

    def _context(self, call: str, options: LockOptions, known: frozenset[str]) -> list[Any]:
        """What a context manager has to know: whether it raises a loss, and what only one kind of it has."""
        _habits.refuse(call, options.keys() - known - self._own_options)
        raises = _settings.raises(options.get("on_lost", "raise"))
        return [raises, *(options.get(name) for name in self._own_options)]

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._connection.text}>"


def _follow(made: _T, number: int | None, on_wait: Callable[[Waiting], object] | None) -> _T:
    """Calls `on_wait` for as long as what was made lasts."""
    if number is not None:
        following: Any = made
        following._on_wait = on_wait
        _events.on_wait(number, following)
    return made


class BaseLock(Habits):
    """What locks and semaphores have in common."""

    __slots__ = ()

    _lock: _quorlock.Lock

    @property
    def name(self) -> str:
        """The name; those of `lock_all` with commas between them."""
        return ",".join(self._lock.names)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._lock.text}>"


class BaseElection(Habits):
    """Candidates, of which one is the leader. Made by `Coordinator.election`."""

    __slots__ = ("__weakref__", "_election", "_on_wait")

    def __init__(self, election: _quorlock.Election) -> None:
        self._election = election

    @property
    def name(self) -> str:
        """The name."""
        return self._election.name

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._election.text}>"
