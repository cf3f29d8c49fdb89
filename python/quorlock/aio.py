"""The same locks for asyncio.

    async with quorlock.aio.connect(nodes) as q:
        async with q.lock("orders/42") as lease:  # the body is cancelled on a loss
            ...

Cancelling a call cleans up after itself: a lock that a node has granted meanwhile is given back.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar

from quorlock import _decorated, _events, _habits, _quorlock, _settings
from quorlock._base import BaseCoordinator, BaseElection, BaseLock
from quorlock._lease import BaseLease, BaseLostEvent, report
from quorlock._settings import ConnectSettings, Duration, OnceOptions, needed, seconds, unicode
from quorlock.errors import Lost
from quorlock.votes import Finding, HoldLog, Names, Observed, VoteReport, Waiters

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Coordinator", "Election", "Lease", "Lock", "LostEvent", "Observer", "Semaphore", "connect"]


_P = ParamSpec("_P")
_T = TypeVar("_T")
_Add = Callable[[_quorlock.Reactor], int]


class _Waits(Protocol):
    """What gets an outcome: a future, or a guard."""

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

    def call(self, add: _Add, waiting: _Waits, urgent: bool = True) -> int:
        """Starts work, whose outcome `waiting` gets. Returns its number.

        It starts together with what other tasks start in this turn of the loop. Alone and `urgent` it starts now.
        """
        number = add(self._reactor)
        if urgent and not self._futures:
            self._reactor.start()
        elif not self._starts:
            self._starts = True
            asyncio.get_running_loop().call_soon(self._start)
        self._futures[number] = waiting
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
                # Cancelled.
                _give_back(value)
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


_reactors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Reactor] = weakref.WeakKeyDictionary()


def _running_loop() -> asyncio.AbstractEventLoop:
    """The running loop of this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        if not _events.in_trio():
            raise
    raise RuntimeError(
        "Trio runs here, and quorlock.aio needs a loop of asyncio: use quorlock with trio.to_thread.run_sync(), or run "
        'the program with anyio.run(main, backend="asyncio")'
    )


def _current_task() -> asyncio.Task[Any]:
    _running_loop()
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("async with needs a task")
    return task


def _reactor() -> _Reactor:
    """The reactor of the running loop."""
    loop = _running_loop()
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


def _give_back(value: object) -> None:
    """Releases a lease that no one has received. Dropping it would not do: the frames that have it may be kept with the
    exception that went through them."""
    if isinstance(value, _quorlock.Lease):
        value.give_back()


async def _run(add: _Add, abandon: bool = True) -> Any:
    """Does work. If the wait is cancelled, so is the work with `abandon`."""
    reactor = _reactor()
    future = asyncio.get_running_loop().create_future()
    number = reactor.call(add, future)
    try:
        return await future
    except BaseException:
        if abandon:
            reactor.give_up(number)
            # It may be done since the cancellation, or before it in the same turn of the loop.
            if future.done() and not future.cancelled() and future.exception() is None:
                _give_back(future.result())
        raise


def connect(nodes: str | Iterable[str] | None = None, **settings: Unpack[ConnectSettings]) -> Coordinator:
    """As `quorlock.connect`. Several event loops may use the coordinator."""
    return Coordinator(_settings.connect(nodes, settings))


class LostEvent(BaseLostEvent):
    """Whether a lease is over, with the methods of `asyncio.Event`. Its holder cannot clear it."""

    __slots__ = ()

    async def wait(self) -> bool:
        """Waits until the lease is over."""
        if self._lease.loss is None:
            await _run(lambda reactor: self._lease.wait_lost(None, reactor))
        return True


class Lease(BaseLease):
    """A held lock. It is renewed in the background until it is released or lost. Keep it in a variable: losing the last
    reference to it releases it, too, with a warning.

    `async with lease:` raises `Lost` if it is over already. It cancels the body on a loss, and releases at the end,
    with the `notice` and the `on_lost` of the lock that it is of. It can be in one `async with` only.
    """

    __slots__ = ("_entered", "_guard", "_lease", "_notice", "_raises", "_value")

    def __init__(
        self, lease: _quorlock.Lease, value: str | None = None, raises: bool = True, notice: float | None = None
    ) -> None:
        self._lease = lease
        self._value = value
        self._raises, self._notice = raises, notice
        self._guard: _Guard | None = None
        #: Whether it is in a context, whose end releases it.
        self._entered = False

    @property
    def lost(self) -> LostEvent:
        """Whether it is over: `await lease.lost.wait()`."""
        return LostEvent(self._lease)

    @property
    def _is_cancelling(self) -> bool:
        """Whether the body of `async with` was cancelled, since the lease is about to be lost."""
        return self._guard is not None and self._guard._cancelled

    async def renew(self) -> None:
        """As `quorlock.Lease.renew`."""
        await _run(lambda reactor: self._lease.renew(None, reactor))

    async def extend(self, ttl: Duration) -> None:
        """As `quorlock.Lease.extend`."""
        longest = needed(ttl, "ttl")
        await _run(lambda reactor: self._lease.renew(longest, reactor))

    async def release(self) -> None:
        """As `quorlock.Lease.release`. The lock is released even if the call is cancelled."""
        await _run(self._lease.release, abandon=False)

    async def downgrade(self) -> None:
        """As `quorlock.Lease.downgrade`."""
        await _run(self._lease.downgrade, abandon=False)

    async def retain(self, time: Duration, note: str = "") -> None:
        """As `quorlock.Lease.retain`."""
        longest, text = needed(time, "time"), unicode("the note", note)
        await _run(lambda reactor: self._lease.retain(longest, text, reactor), abandon=False)

    async def __aenter__(self) -> Lease:
        self.check()
        if self._entered:
            raise RuntimeError("this lease is in an `async with` already, whose end releases it")
        self._guard = _Guard(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.end(error)


class _Guard:
    """Cancels the task of a body when its lease is about to be lost, as `asyncio.timeout` does it."""

    __slots__ = ("_before", "_cancelled", "_lease", "_number", "_reactor", "_task")

    def __init__(self, lease: Lease) -> None:
        task = _current_task()
        # Right after the acquisition. While it is renewed, a third has passed at most.
        validity = lease.remaining
        notice = min(1.0, validity / 10) if lease._notice is None else min(lease._notice, validity / 3)
        self._lease, self._task = lease, task
        self._before = task.cancelling() if hasattr(task, "cancelling") else 0
        self._cancelled = False
        raw, wanted = lease._lease, notice
        self._reactor = _reactor()
        self._number = self._reactor.call(lambda reactor: raw.until_notice(wanted, reactor), self, False)
        lease._entered = True

    def done(self) -> bool:
        return False

    def set_result(self, reason: str | None) -> None:
        # A release by the body itself is no loss, and does not come here.
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
                # What the body has begun to release is no loss.
                lost = None if raised.reason == "released" else raised
        in_time = lost is None
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
        if cancelled or (error is None and lease._raises):
            raise lost from error
        report(lost, in_time)


class _Wanted(BaseLock):
    """What locks and semaphores have in common."""

    __slots__ = ("__weakref__", "_contexts", "_lock", "_notice", "_on_wait", "_raises")

    def __init__(self, lock: _quorlock.Lock, raises: bool, notice: Duration | None = None) -> None:
        self._lock = lock
        self._raises = raises
        self._notice = seconds(notice, "notice")
        self._contexts = _quorlock.Contexts()

    async def acquire(self, *others: NoReturn, keep: bool = False, **keywords: NoReturn) -> Lease:
        """As that of `quorlock`."""
        _habits.refuse_all("acquire", others, keywords)
        acquired: _quorlock.Lease = await _run(self._lock.acquire)
        if keep:
            _quorlock.keep(acquired)
        return Lease(acquired, None, self._raises, self._notice)

    async def try_acquire(self, *others: NoReturn, keep: bool = False, **keywords: NoReturn) -> Lease | None:
        """As that of `quorlock`."""
        _habits.refuse_all("try_acquire", others, keywords)
        acquired: _quorlock.Lease | None = await _run(self._lock.try_acquire)
        if acquired is None:
            return None
        if keep:
            _quorlock.keep(acquired)
        return Lease(acquired, None, self._raises, self._notice)

    if TYPE_CHECKING:
        # pyright wants those of coroutine functions in context managers.

        async def __aenter__(self) -> Lease: ...
        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    else:
        # Not coroutine functions: the frame of the `async with` is the caller of these.

        def __aenter__(self):
            return self._enter(_quorlock.place(1))

        def __aexit__(self, kind, error, traceback):
            return self._leave(_quorlock.place(1), error)

    async def _enter(self, place: object) -> Lease:
        _current_task()
        lease = await self.acquire()
        self._contexts.enter(place, _Guard(lease))
        return lease

    async def _leave(self, place: object, error: BaseException | None) -> None:
        guard: _Guard = self._contexts.leave(place)
        await guard.end(error)

    def __call__(self, function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
        """As a decorator of `async def`: each call acquires it first."""
        return _decorated.of_tasks(self, function)


class Lock(_Wanted):
    """As `quorlock.Lock`.

    As a context manager it cancels the body when the lock is about to be lost, and raises `Lost` at the end. A body
    that suppresses the cancellation goes on without the lock: `Lost` is raised when it ends, or logged with
    `on_lost="warn"`.
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

    async def log(self) -> HoldLog:
        """As `quorlock.Lock.log`."""
        log: HoldLog = await _run(self._lock.log)
        return log

    async def revoke(self, token: bytes) -> VoteReport:
        """As `quorlock.Lock.revoke`."""
        seen = _settings.token(token)
        report = await _run(lambda reactor: self._lock.revoke(seen, reactor))
        assert isinstance(report, VoteReport)
        return report


class Semaphore(_Wanted):
    """As `quorlock.Semaphore`. As a context manager it does what `Lock` does."""

    __slots__ = ()

    async def inspect(self) -> list[VoteReport]:
        """As `quorlock.Semaphore.inspect`."""
        reports: list[VoteReport] = await _run(self._lock.inspect)
        return reports


class Election(BaseElection):
    """As `quorlock.Election`."""

    __slots__ = ()

    async def campaign(self, value: str) -> Lease:
        """As `quorlock.Election.campaign`."""
        announced = unicode("the value", value)
        return Lease(await _run(lambda reactor: self._election.campaign(announced, reactor)), value)

    async def leader(self) -> Observed:
        """As `quorlock.Election.leader`."""
        observed: Observed = await _run(self._election.leader)
        return observed

    def observe(self) -> Observer:
        """As `quorlock.Election.observe`."""
        return Observer(self._election.observe())


class Observer:
    """As `quorlock.Observer`, and an async iterator: `async for observed in election.observe():`."""

    __slots__ = ("_observer",)

    def __init__(self, observer: _quorlock.Observer) -> None:
        self._observer = observer

    async def changed(self, timeout: Duration | None = None) -> Observed:
        """As `quorlock.Observer.changed`."""
        longest = seconds(timeout, "timeout")
        observed: Observed = await _run(lambda reactor: self._observer.changed(longest, reactor))
        return observed

    def __aiter__(self) -> Observer:
        return self

    async def __anext__(self) -> Observed:
        return await self.changed()


class SemaphoreOptions(_settings.SemaphoreOptions, total=False):
    """The options of a semaphore, with that of `async with`."""

    notice: Duration | None


class SeveralLockOptions(_settings.SeveralLockOptions, total=False):
    """The same of a lock of several names."""

    notice: Duration | None


class OneLockOptions(_settings.OneLockOptions, total=False):
    """The same of a lock of one name."""

    notice: Duration | None


class Coordinator(BaseCoordinator[Lock, Semaphore, Election]):
    """As `quorlock.Coordinator`. Several event loops may use it."""

    __slots__ = ()
    _lock, _semaphore, _election, _own_options = Lock, Semaphore, Election, frozenset({"notice"})

    if TYPE_CHECKING:

        def lock(self, name: str, **options: Unpack[OneLockOptions]) -> Lock: ...
        def lock_all(self, names: Iterable[str], **options: Unpack[SeveralLockOptions]) -> Lock: ...
        def semaphore(self, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Semaphore: ...

    def once(
        self, name: str, *, every: Duration, **options: Unpack[OnceOptions]
    ) -> Callable[[Callable[_P, Coroutine[Any, Any, _T]]], Callable[_P, Coroutine[Any, Any, _T | None]]]:
        """As `quorlock.Coordinator.once`, for `async def`."""
        lock, period = self._once(name, every, options)
        return lambda function: _decorated.once_of_tasks(lock, period, function)

    async def doctor(self) -> list[Finding]:
        """As `quorlock.Coordinator.doctor`."""
        findings: list[Finding] = await _run(self._connection.doctor)
        return findings

    async def names(self, prefix: str = "") -> Names:
        """As `quorlock.Coordinator.names`."""
        first = unicode("the prefix", prefix)
        names: Names = await _run(lambda reactor: self._connection.names(first, reactor))
        return names

    async def close(self, timeout: Duration | None = 5.0) -> None:
        """As `quorlock.Coordinator.close`."""
        longest = seconds(timeout, "timeout")
        await _run(lambda reactor: self._connection.close(longest, reactor), abandon=False)

    async def __aenter__(self) -> Coordinator:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
