"""The same locks for asyncio.

    async with quorlock.aio.connect(nodes) as q:
        async with q.lock("orders/42") as lease:  # the body is cancelled on a loss
            ...

Cancelling a call cleans up after itself: a lock that a node has granted meanwhile is given back.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

from quorlock import _events, _quorlock, _settings
from quorlock._lease import BaseLease, BaseLostEvent, Contexts, report
from quorlock._settings import DEFAULT, Default, Duration, OnLost, seconds
from quorlock.errors import Lost
from quorlock.votes import Leader, NodeHealth, UnknownLeader, VoteReport, Waiters

__all__ = ["Coordinator", "Election", "Lease", "Lock", "LostEvent", "Observer", "Semaphore", "connect"]


_Add = Callable[[_quorlock.Reactor], int]


class _Waits(Protocol):
    """What is told an outcome: a future, or a guard."""

    def done(self) -> bool: ...
    def set_result(self, value: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class _Reactor:
    """Delivers the results for one event loop, which watches a descriptor. No other thread calls into the loop."""

    __slots__ = ("__weakref__", "_futures", "_reactor", "_starts", "generation")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reactor = _quorlock.Reactor()
        self._futures: dict[int, _Waits] = {}
        self._starts = False
        self.generation = _quorlock.generation()
        loop.add_reader(self._reactor.fileno(), self._take)

    def call(self, add: _Add, told: _Waits, urgent: bool = True) -> int:
        """Starts work, of which `told` is told the outcome. Returns its number.

        It starts together with what other tasks start in this turn of the loop. Alone and `urgent` it starts now.
        """
        number = add(self._reactor)
        if urgent and not self._futures:
            self._reactor.start()
        elif not self._starts:
            self._starts = True
            asyncio.get_running_loop().call_soon(self._start)
        self._futures[number] = told
        return number

    def give_up(self, number: int) -> None:
        """Drops work."""
        if self._futures.pop(number, None) is not None:
            self._reactor.cancel(number)

    def forget(self, number: int) -> None:
        """As `give_up`, for work that is about to end."""
        if self._futures.pop(number, None) is not None:
            self._reactor.forget(number)

    def _start(self) -> None:
        self._starts = False
        self._reactor.start()

    def close(self) -> None:
        """Gives up all work."""
        self._reactor.close()
        self._futures.clear()

    def _take(self) -> None:
        for number, value, error in self._reactor.take():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                # Cancelled: an acquired lease is released when it is dropped here.
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


_reactors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Reactor] = weakref.WeakKeyDictionary()


def _reactor() -> _Reactor:
    """The reactor of the running loop."""
    loop = asyncio.get_running_loop()
    reactor = _reactors.get(loop)
    if reactor is None or reactor.generation != _quorlock.generation():
        _close_those_of_closed_loops()
        reactor = _reactors[loop] = _Reactor(loop)
        _events.call_now_and_then(_close_those_of_closed_loops)
    return reactor


def _close_those_of_closed_loops() -> None:
    """Gives up what tasks of closed loops waited for: no one would take it."""
    for loop, reactor in list(_reactors.items()):
        if loop.is_closed():
            _reactors.pop(loop, None)
            reactor.close()


async def _run(add: _Add, abandon: bool = True) -> Any:
    """Does work. If the wait is cancelled, so is the work with `abandon`."""
    reactor = _reactor()
    future = asyncio.get_running_loop().create_future()
    number = reactor.call(add, future)
    try:
        return await future
    except asyncio.CancelledError:
        if abandon:
            reactor.give_up(number)
        raise


def connect(
    nodes: str | Iterable[str] | None = None,
    *,
    ttl: Duration | None = None,
    max_ttl: Duration | None = None,
    key_prefix: str | None = None,
    label: str | None = None,
    username: str | None = None,
    password: str | None = None,
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
    """As `quorlock.connect`. Several event loops may use the coordinator."""
    connection = _settings.connect(
        nodes,
        ttl=ttl,
        max_ttl=max_ttl,
        key_prefix=key_prefix,
        label=label,
        username=username,
        password=password,
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


class LostEvent(BaseLostEvent):
    """Whether a lease is over, with the methods of `asyncio.Event`. Its holder cannot clear it."""

    __slots__ = ()

    async def wait(self) -> bool:
        """Waits until the lease is over."""
        if self._lease.loss is None:
            await _run(lambda reactor: self._lease.wait_lost(None, reactor))
        return True


class Lease(BaseLease):
    """A held lock. It is renewed in the background until it is released or lost. Dropping it releases it, too.

    `async with lease:` cancels the body on a loss, and releases the lock at the end.
    """

    __slots__ = ("_guard",)

    @property
    def lost(self) -> LostEvent:
        """Whether it is over: `await lease.lost.wait()`."""
        return LostEvent(self._lease)

    async def renew(self) -> None:
        """As `quorlock.Lease.renew`."""
        await _run(self._lease.renew)

    async def release(self) -> None:
        """As `quorlock.Lease.release`. The lock is released even if the call is cancelled."""
        await _run(self._lease.release, abandon=False)

    async def downgrade(self) -> None:
        """As `quorlock.Lease.downgrade`."""
        await _run(self._lease.downgrade, abandon=False)

    async def retain(self, time: Duration, note: str = "") -> None:
        """As `quorlock.Lease.retain`."""
        await _run(lambda reactor: self._lease.retain(seconds(time) or 0.0, note, reactor), abandon=False)

    async def __aenter__(self) -> Lease:
        self._guard = _Guard(self, "raise", None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._guard.end(error)


class _Guard:
    """Cancels the task of a body when its lease is about to be lost, as `asyncio.timeout` does it."""

    __slots__ = ("_before", "_cancelled", "_lease", "_number", "_on_lost", "_reactor", "_task")

    def __init__(self, lease: Lease, on_lost: OnLost, notice: float | None) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs a task")
        # Right after the acquisition. While it is renewed, a third has passed at most.
        validity = lease.remaining
        notice = min(1.0, validity / 10) if notice is None else min(notice, validity / 3)
        self._lease, self._on_lost, self._task = lease, on_lost, task
        self._before = task.cancelling() if hasattr(task, "cancelling") else 0
        self._cancelled = False
        raw, wanted = lease._lease, notice
        self._reactor = _reactor()
        self._number = self._reactor.call(lambda reactor: raw.until_notice(wanted, reactor), self, False)

    def done(self) -> bool:
        return False

    def set_result(self, reason: str | None) -> None:
        # A release by the body itself is no loss, and is not told.
        self._cancelled = True
        self._task.cancel("the lock was lost")

    def set_exception(self, error: BaseException) -> None:
        pass

    async def end(self, error: BaseException | None) -> None:
        """Releases the lock. Raises `Lost` in place of the cancellation."""
        self._reactor.forget(self._number)
        lease, loss = self._lease, self._lease._lease.loss
        ours = self._cancelled
        if ours and hasattr(self._task, "uncancel"):
            # If others have cancelled the task as well, it stays cancelled.
            others = self._task.uncancel() > self._before
            ours = not others
        lost: Lost | None = None
        if loss != "released":
            try:
                await lease.release()
            except Lost as raised:
                lost = raised
        if self._cancelled and lost is None:
            lost = Lost(
                f"`{_quorlock.printable(lease.resource)}` was about to expire: it could not be renewed, or not "
                "beyond max_hold",
                resource=lease.resource,
                reason="expired",
            )
        if lost is None:
            return
        cancelled = isinstance(error, asyncio.CancelledError) and ours
        if cancelled or (error is None and self._on_lost == "raise"):
            raise lost from error
        report(lost)


class _Wanted:
    """What locks and semaphores have in common."""

    __slots__ = ("_guards", "_lock", "_notice", "_on_lost")

    def __init__(self, lock: _quorlock.Lock, on_lost: OnLost, notice: Duration | None) -> None:
        self._lock = lock
        self._on_lost: OnLost = on_lost
        self._notice = seconds(notice)
        self._guards: Contexts[_Guard] = Contexts()

    async def acquire(self) -> Lease:
        """As that of `quorlock`."""
        return Lease(await _run(self._lock.acquire))

    async def try_acquire(self) -> Lease | None:
        """As that of `quorlock`."""
        lease = await _run(self._lock.try_acquire)
        return None if lease is None else Lease(lease)

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        self._guards.enter(asyncio.current_task(), _Guard(lease, self._on_lost, self._notice))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._guards.leave(asyncio.current_task()).end(error)


class Lock(_Wanted):
    """As `quorlock.Lock`.

    As a context manager it cancels the body when the lock is about to be lost, and raises `Lost` at the end. A body
    that suppresses the cancellation goes on without the lock: `Lost` is raised when it ends.
    """

    __slots__ = ()

    async def inspect(self) -> VoteReport:
        """As `quorlock.Lock.inspect`."""
        report = await _run(self._lock.inspect)
        assert isinstance(report, VoteReport)
        return report

    async def waiters(self) -> Waiters:
        """As `quorlock.Lock.waiters`."""
        waiters: Waiters = await _run(self._lock.waiters)
        return waiters

    async def until_free(self) -> None:
        """As `quorlock.Lock.until_free`."""
        await _run(self._lock.until_free)

    async def revoke(self, token: bytes) -> VoteReport:
        """As `quorlock.Lock.revoke`."""
        report = await _run(lambda reactor: self._lock.revoke(token, reactor))
        assert isinstance(report, VoteReport)
        return report


class Semaphore(_Wanted):
    """As `quorlock.Semaphore`. As a context manager it does what `Lock` does."""

    __slots__ = ()

    async def inspect(self) -> list[VoteReport]:
        """As `quorlock.Semaphore.inspect`."""
        reports: list[VoteReport] = await _run(self._lock.inspect)
        return reports


class Election:
    """As `quorlock.Election`."""

    __slots__ = ("_election",)

    def __init__(self, election: _quorlock.Election) -> None:
        self._election = election

    async def campaign(self, value: str) -> Lease:
        """As `quorlock.Election.campaign`."""
        return Lease(await _run(lambda reactor: self._election.campaign(value, reactor)), value)

    async def leader(self) -> Leader | UnknownLeader | None:
        """As `quorlock.Election.leader`."""
        leader: Leader | UnknownLeader | None = await _run(self._election.leader)
        return leader

    def observe(self) -> Observer:
        """As `quorlock.Election.observe`."""
        return Observer(self._election.observe())


class Observer:
    """As `quorlock.Observer`, and an async iterator: `async for leader in election.observe():`."""

    __slots__ = ("_observer",)

    def __init__(self, observer: _quorlock.Observer) -> None:
        self._observer = observer

    async def changed(self) -> Leader | UnknownLeader | None:
        """Waits until the leader is another than last time; the first call returns the current one."""
        leader: Leader | UnknownLeader | None = await _run(lambda reactor: self._observer.changed(None, reactor))
        return leader

    def __aiter__(self) -> Observer:
        return self

    async def __anext__(self) -> Leader | UnknownLeader | None:
        return await self.changed()


class Coordinator:
    """As `quorlock.Coordinator`."""

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
        notice: Duration | None = None,
    ) -> Lock:
        """As `quorlock.Coordinator.lock`. `async with` cancels its body `notice` before the validity ends: a tenth of
        the TTL by default and at most a second, and never more than a third of it."""
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        made = self._connection.lock([name], shared=shared, metrics_class=metrics_class, **options)
        return Lock(made, on_lost, notice)

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
        notice: Duration | None = None,
    ) -> Lock:
        """As `quorlock.Coordinator.lock_all`."""
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        return Lock(self._connection.lock(list(names), together=True, **options), on_lost, notice)

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
        notice: Duration | None = None,
    ) -> Semaphore:
        """As `quorlock.Coordinator.semaphore`."""
        options = _settings.options(ttl, wait, renew, max_hold, label, fencing)
        return Semaphore(self._connection.semaphore(name, permits, **options), on_lost, notice)

    def election(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        max_hold: Duration | None = None,
    ) -> Election:
        """As `quorlock.Coordinator.election`."""
        made = self._connection.election(
            name, ttl=seconds(ttl), wait=_settings.waiting(wait), max_hold=seconds(max_hold)
        )
        return Election(made)

    def health(self) -> list[NodeHealth]:
        """As `quorlock.Coordinator.health`."""
        return self._connection.health()

    async def close(self, timeout: Duration = 5.0) -> None:
        """As `quorlock.Coordinator.close`."""
        await _run(lambda reactor: self._connection.close(seconds(timeout) or 0.0, reactor), abandon=False)

    async def __aenter__(self) -> Coordinator:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
