"""Whose lease a context releases, and that the body never runs without one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import queue
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

import quorlock
from programs import SOON, eventually, run, stored
from quorlock import aio, redis_lock
from quorlock.testing import Servers

_T = TypeVar("_T")
FOLDER = str(Path(quorlock.__file__).parent)


class Worker:
    """A thread that calls what it is given, as that of a pool."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[Callable[[], Any], queue.Queue[Any]]] = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        while True:
            call, answer = self.calls.get()
            try:
                answer.put((call(), None))
            except BaseException as error:
                answer.put((None, error))

    def call(self, call: Callable[[], _T]) -> _T:
        answer: queue.Queue[tuple[_T, BaseException | None]] = queue.Queue()
        self.calls.put((call, answer))
        result, error = answer.get(timeout=SOON)
        if error is not None:
            raise error
        return result


def test_a_blocking_call_in_a_running_event_loop_warns_of_it_once_for_each_place(q: quorlock.Coordinator) -> None:
    def held() -> list[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            asyncio.run(main())
        for warning in caught:
            assert warning.category is RuntimeWarning
            assert "quorlock.aio" in str(warning.message)
        return [(warning.filename, warning.lineno) for warning in caught]

    async def stops_the_loop() -> None:
        for _ in range(3):
            with q.lock("in a loop") as lease:
                assert q.lock("in a loop").try_acquire() is None
            assert lease.lost.is_set()

    async def stops_nothing() -> None:
        await asyncio.to_thread(lambda: q.lock("in a thread").acquire().release())
        await asyncio.get_running_loop().run_in_executor(None, q.lock("in a thread").inspect)
        q.health()

    main = stops_the_loop
    first = stops_the_loop.__code__.co_firstlineno + 2
    # The `with` begins and ends in its first line.
    assert held() == [(__file__, first), (__file__, first + 1)]
    main = stops_nothing
    assert held() == []
    with q.lock("without a loop"), warnings.catch_warnings():
        warnings.simplefilter("error")
        q.lock("without a loop").inspect()


async def _raises(call: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            call()


def test_a_warning_of_a_running_event_loop_that_is_raised_leaves_nothing_behind(
    q: quorlock.Coordinator, nodes: Servers
) -> None:
    lease = q.lock("raised").acquire()
    asyncio.run(_raises(lease.release))
    eventually("no lock", lambda: not stored(nodes, "raised"))
    asyncio.run(_raises(q.lock("raised").acquire))
    assert stored(nodes, "raised") == []
    asyncio.run(_raises(q.close))
    q.lock("raised").acquire().release()


Permits = Generator[quorlock.Lease, None, None]


def test_a_context_that_ends_on_another_thread_releases_its_own_lease(q: quorlock.Coordinator) -> None:
    """As the fixtures of web frameworks, which begin on one thread of a pool and end on another."""
    semaphore = q.semaphore("web", 2)

    def fixture() -> Permits:
        with semaphore as permit:
            yield permit

    one, other = Worker(), Worker()
    first, second = fixture(), fixture()
    lease, theirs = one.call(lambda: next(first)), other.call(lambda: next(second))
    # The first request ends on the thread that began the second.
    assert other.call(lambda: next(first, None)) is None
    assert lease.lost.reason == "released"
    theirs.check()
    third = fixture()
    assert one.call(lambda: next(third)).permit == lease.permit != theirs.permit
    one.call(second.close)
    other.call(third.close)
    assert theirs.lost.reason == "released"


def test_generators_on_one_thread_release_their_own(q: quorlock.Coordinator) -> None:
    readers = q.lock("interleaved", shared=True)

    def read() -> Permits:
        with readers as lease:
            yield lease

    one, other = read(), read()
    first, second = next(one), next(other)
    one.close()
    assert first.lost.is_set()
    second.check()
    other.close()


def test_stacks_of_contexts_release_their_own(q: quorlock.Coordinator) -> None:
    semaphore = q.semaphore("stacks", 2)
    with ExitStack() as one:
        first = one.enter_context(semaphore)
        other = ExitStack()
        second = other.enter_context(semaphore)
        Worker().call(one.close)
        assert first.lost.is_set()
        second.check()
        other.close()
        assert second.lost.is_set()


def test_an_object_that_cannot_know_whose_lease_it_is_refuses(q: quorlock.Coordinator) -> None:
    semaphore = q.semaphore("by hand", 2)

    def enter() -> quorlock.Lease:
        return semaphore.__enter__()

    def leave() -> None:
        semaphore.__exit__(None, None, None)

    alone = enter()
    leave()
    assert alone.lost.is_set()
    one, two = Worker(), Worker()
    first, second = one.call(enter), two.call(enter)
    with pytest.raises(RuntimeError, match="it cannot know which of them ends here.*make a lock for each use"):
        one.call(leave)
    first.check()
    second.check()
    first.release()
    second.release()
    with pytest.raises(RuntimeError, match="was not entered"):
        q.lock("never entered").__exit__(None, None, None)


def test_tasks_and_async_generators_release_their_own(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            semaphore = q.semaphore("aio web", 3)

            async def fixture() -> AsyncIterator[aio.Lease]:
                async with semaphore as permit:
                    yield permit

            one, other = fixture(), fixture()
            first, second = await anext(one), await asyncio.create_task(anext(other))  # type: ignore[arg-type]
            stack = AsyncExitStack()
            third = await stack.enter_async_context(semaphore)
            await asyncio.create_task(anext(one, None))  # type: ignore[arg-type]
            assert first.lost.is_set()
            second.check()
            third.check()
            await stack.aclose()
            assert third.lost.is_set()
            second.check()
            assert await anext(other, None) is None
            assert second.lost.is_set()
            leases = [await semaphore.__aenter__() for _ in range(2)]
            with pytest.raises(RuntimeError, match="it cannot know which of them ends here"):
                await asyncio.create_task(leave(semaphore))
            for lease in leases:
                await lease.release()

    async def leave(semaphore: aio.Semaphore) -> None:
        await semaphore.__aexit__(None, None, None)

    asyncio.run(main())


def test_a_lease_that_is_over_is_not_entered(q: quorlock.Coordinator, nodes: Servers) -> None:
    lease = q.lock("over").acquire()
    lease.release()
    with pytest.raises(quorlock.Lost, match="it was released"), lease:
        pytest.fail("the body ran without the lock")

    async def main() -> None:
        async with nodes.aio_connect() as q:
            async with await q.lock("over").acquire() as lease:
                pass
            with pytest.raises(quorlock.Lost, match="it was released"):
                async with lease:
                    pytest.fail("the body ran without the lock")

    asyncio.run(main())


def test_a_lease_is_in_one_context_only(q: quorlock.Coordinator, nodes: Servers) -> None:
    for context in [q.lock("in one"), q.lock("in one, too").acquire()]:
        with context as lease:
            with pytest.raises(RuntimeError, match="already"), lease:
                pytest.fail("its end would release the lock of the other")
            lease.check()

    async def main() -> None:
        async with nodes.aio_connect() as q:
            for context in [q.lock("in one"), await q.lock("in one, too").acquire()]:
                async with context as lease:
                    with pytest.raises(RuntimeError, match="already"):
                        async with lease:
                            pytest.fail("its end would release the lock of the other")
                    lease.check()

    asyncio.run(main())


def test_the_context_of_a_lease_has_the_options_of_its_lock(
    q: quorlock.Coordinator, nodes: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    lock = q.lock("optional", max_hold=0.3, on_lost="warn")
    for acquire in [lock.acquire, lock.try_acquire]:
        lease = acquire()
        assert lease
        with lease:
            assert lease.lost.wait(SOON)

    async def main() -> None:
        async with nodes.aio_connect() as q:
            lock = q.lock("optional", ttl=6, max_hold=3, notice=2, on_lost="warn")
            for acquire in [lock.acquire, lock.try_acquire]:
                lease = await acquire()
                assert lease
                async with lease:
                    try:
                        await asyncio.sleep(SOON)
                    except asyncio.CancelledError:
                        # A third of the validity, and by default a tenth.
                        assert lease.remaining > 0.5
                await lease.lost.wait()

    asyncio.run(main())
    assert caplog.text.count("some of the work may have run without the lock") == 2
    assert caplog.text.count("the work ended before") == 2


def test_functions_whose_body_runs_after_the_call_are_refused(q: quorlock.Coordinator) -> None:
    lock: Any = q.lock("decorated")

    async def coroutine() -> None: ...

    def generator() -> Iterator[None]:
        yield

    async def async_generator() -> AsyncIterator[None]:
        yield

    class Called:
        async def __call__(self) -> None: ...

    for function in [coroutine, async_generator, partial(coroutine), Called()]:
        with pytest.raises(TypeError, match=r"use quorlock.aio"):
            lock(function)
    with pytest.raises(TypeError, match="returns a generator, whose body would run when the lock is released"):
        lock(generator)
    # What only the call shows.
    for hidden in [lambda: coroutine(), lambda: async_generator(), lambda: generator()]:
        with pytest.raises(TypeError, match="whose body would run when the lock is released"):
            lock(hidden)()
    assert lock(lambda: 42)() == 42

    # What runs, or is used, after the call.
    with pytest.raises(TypeError, match="generator.. returns a context manager"):
        lock(contextlib.contextmanager(generator))
    with pytest.raises(TypeError, match="async_generator.. returns an async context manager"):
        lock(contextlib.asynccontextmanager(async_generator))
    later: list[tuple[Any, str]] = [
        (contextlib.contextmanager(generator), "a context manager"),
        (contextlib.asynccontextmanager(async_generator), "an async context manager"),
        (lambda: map(str, [1]), "an iterator"),
        (lambda: (number for number in [1]), "a generator"),
        (lambda: filter(None, [1]), "an iterator"),
    ]
    for function, what in later:
        with pytest.raises(TypeError, match=f"returns {what}, whose body would run when the lock is released"):
            lock(lambda function=function: function())()
    assert q.lock("decorated").try_acquire() is not None
    # Values, some of which are contexts or iterators as well.
    with open(os.devnull) as file:
        for value in [[1], Path("."), threading.Lock(), file, contextlib.closing(file), iter([1])]:
            assert lock(lambda value=value: value)() is value
            assert q.once(f"value {id(value)}", every=1)(lambda value=value: value)() is value


def test_a_coroutine_function_is_decorated_by_aio(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            lock = q.lock("aio decorated")

            @lock
            async def work(number: int) -> int:
                assert await q.lock("aio decorated", wait=0).try_acquire() is None
                return number + 1

            assert await asyncio.gather(work(1), work(number=2)) == [2, 3]
            assert work.__name__ == "work"
            wrong: Any = lock

            def plain() -> None: ...

            async def generator() -> AsyncIterator[None]:
                yield

            with pytest.raises(TypeError, match="use the decorator of quorlock"):
                wrong(plain)
            with pytest.raises(TypeError, match="returns an async generator.*use `async with`"):
                wrong(generator)
            with pytest.raises(TypeError, match="returns an async context manager.*use `async with`"):
                wrong(contextlib.asynccontextmanager(generator))

            @wrong
            async def later() -> AsyncIterator[None]:
                return generator()

            with pytest.raises(TypeError, match="returns an async generator, whose body would run"):
                await later()

            @lock
            async def path() -> Path:
                return Path(".")

            assert await path() == Path(".")

    asyncio.run(main())


def test_a_lease_that_nothing_keeps_is_given_back_with_a_warning(
    q: quorlock.Coordinator, nodes: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    lock = q.lock("dropped")
    with pytest.warns(ResourceWarning, match=r"the lease of `dropped` was dropped .*s after it was acquired"):
        lock.acquire()
    with pytest.warns(ResourceWarning, match=r"`dropped 2`.*keep=True"):
        assert q.lock("dropped 2").try_acquire() is not None
    eventually("two log records", lambda: caplog.text.count("the lease of `dropped") == 2)
    assert all(record.levelno == logging.WARNING for record in caplog.records if "was dropped" in record.message)
    with pytest.warns(ResourceWarning, match="`led`"):
        q.election("led").campaign("me")

    async def main() -> None:
        async with nodes.aio_connect() as q:
            with pytest.warns(ResourceWarning, match="`dropped`"):
                # The loop has the result until the next step.
                await asyncio.gather(drop(q), asyncio.sleep(0))

    async def drop(q: aio.Coordinator) -> None:
        await q.lock("dropped").acquire()

    asyncio.run(main())


def test_a_lease_that_has_ended_or_is_kept_is_collected_in_silence(nodes: Servers) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with nodes.connect() as q:
            with q.lock("silent"):
                pass
            q.lock("silent").acquire().release()
            q.lock("silent 2").acquire().retain(0.1)
            with q.lock("silent").acquire():
                pass
            q.lock("kept").acquire(keep=True)
            assert q.lock("kept 2").try_acquire(keep=True) is not None
            gc.collect()
            assert q.lock("kept", wait=0).try_acquire() is None
            assert q.lock("kept 2", wait=0).try_acquire() is None
            closed = q.lock("silent").acquire()
        del closed

        async def main() -> None:
            async with nodes.aio_connect() as q:
                async with q.lock("silent"):
                    pass
                await q.lock("kept").acquire(keep=True)
                assert await q.lock("kept 2").try_acquire(keep=True) is not None
                gc.collect()
                assert await q.lock("kept", wait=0).try_acquire() is None
                assert await q.lock("kept 2", wait=0).try_acquire() is None

        asyncio.run(main())
        gc.collect()
    assert [str(warning.message) for warning in warned if "the lease of" in str(warning.message)] == []
    assert not stored(nodes, "kept")


@pytest.mark.parametrize("what", ["with", "acquire"])
def test_no_frame_holds_a_lease_after_a_cancellation(nodes: Servers, what: str) -> None:
    """The grant and the cancellation arrive in the same turn of the loop, and the exception is kept."""

    async def main() -> None:
        async with nodes.aio_connect() as q:
            kept: list[BaseException] = []

            async def want() -> None:
                try:
                    if what == "with":
                        async with q.lock("raced"):
                            pytest.fail("it was cancelled")
                    await q.lock("raced").acquire()
                except asyncio.CancelledError as error:
                    kept.append(error)

            task = asyncio.create_task(want())
            reactor = await asyncio.create_task(started())
            take = reactor._take

            def take_and_cancel() -> None:
                take()
                task.cancel()

            loop = asyncio.get_running_loop()
            loop.add_reader(reactor._reactor.fileno(), take_and_cancel)
            await task
            loop.add_reader(reactor._reactor.fileno(), take)
            async with q.lock("raced", wait=SOON):
                pass
            assert kept[0].__traceback__ is not None

    async def started() -> aio._Reactor:
        return aio._reactor()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("use", ["with", "lease", "once", "redis-py"])
def test_an_exception_at_any_line_of_the_package_leaves_no_lock_held(nodes: Servers, use: str) -> None:
    """As the handler of a signal raises it: between an acquisition and the body, and before the release."""

    class Limit(Exception): ...

    with nodes.connect() as q, nodes.connect() as other:
        lock, drop_in = q.lock("interrupted"), redis_lock.Lock(q, "interrupted")
        once = q.once("interrupted", every=0.001)(lambda: None)

        def used() -> None:
            if use == "once":
                once()
                return
            with drop_in if use == "redis-py" else lock if use == "with" else lock.acquire():
                pass

        left = 0
        seen: set[tuple[str, int]] = set()

        def trace(frame: FrameType, event: str, argument: object) -> object:
            nonlocal left
            if not frame.f_code.co_filename.startswith(FOLDER) or threading.current_thread().name != "MainThread":
                return None
            line = (frame.f_code.co_filename, frame.f_lineno)
            # No handler runs at a `with` again, before its end.
            if event == "line" and use == "once" and line in seen:
                return trace
            seen.add(line)
            left -= 1
            if left == -1:
                # The traceback has this frame, too.
                del argument
                raise Limit
            return trace

        for number in itertools.count():
            left = number
            seen.clear()
            sys.settrace(trace)
            kept: list[Limit] = []
            try:
                used()
            except Limit as error:
                # As an error reporter does, and with it the frames that have a lease.
                kept.append(error)
            sys.settrace(None)
            with other.lock("interrupted", wait=10):
                pass
            kept.clear()
            if left >= 0:
                # The other lines do not run.
                break


def test_a_job_that_has_run_is_not_run_again_whatever_line_is_interrupted(nodes: Servers) -> None:
    class Limit(Exception): ...

    ended = False

    def work() -> None:
        nonlocal ended
        ended = True

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal left
        line = (frame.f_code.co_filename, frame.f_lineno)
        if not line[0].startswith(FOLDER):
            return None
        # No handler runs at a `with` again, before its end.
        left -= ended and line not in seen
        seen.add(line)
        if left == -1:
            raise Limit
        return trace

    with nodes.connect() as q, nodes.connect() as other:
        for number in itertools.count():
            left, ended, name = number, False, f"ended {number}"
            seen = set[tuple[str, int]]()
            sys.settrace(trace)
            with contextlib.suppress(Limit):
                q.once(name, every=20)(work)()
            sys.settrace(None)
            assert other.lock(name).try_acquire() is None
            if left >= 0:
                break
        assert number > 3


def test_a_handler_of_a_signal_that_raises_leaves_no_lock_held(nodes: Servers) -> None:
    """A soft time limit at any moment of a decorated function, whose lock lives as long as the process."""
    ended = run(
        nodes,
        """
import random
class Limit(Exception): pass
armed = False
def limit(*_):
    global armed
    if armed:
        armed = False
        raise Limit
signal.signal(signal.SIGALRM, limit)
q = connect()
lock = q.lock("limited", wait=5, ttl=20)
kept = q.lock("kept", wait=5, ttl=20)
@lock
def work():
    for _ in range(random.randint(0, 30)): time.sleep(0)
def by_hand():
    lease = kept.acquire()
    with lease:
        for _ in range(random.randint(0, 30)): time.sleep(0)
limits = 0
errors = []
ends = time.monotonic() + 1.5
# A busy machine needs longer.
while time.monotonic() < ends or limits < 50:
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(.0001, .0015))
        random.choice([work, by_hand])()
        armed = False
    except Limit as error:
        limits += 1
        # As an error reporter does.
        errors = [error]
    finally:
        armed = False
errors.clear()
work()
with kept: pass
print("free")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "free\n"
