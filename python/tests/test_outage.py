"""An outage of all nodes: each call says that no quorum answered, within its time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import quorlock
from quorlock import aio, redis_lock
from quorlock.testing import Servers, servers

#: Of a call that would wait for 35 s otherwise.
WAIT = 0.5
#: A wait of redis-py's lock without an end, as the page says, and the time to ask.
ENDLESS = 25.0
SOON = 20.0


@pytest.fixture(scope="module")
def down() -> Iterator[Servers]:
    """Masters that were there when the coordinator connected."""
    with servers(3) as nodes:
        yield nodes


@contextlib.contextmanager
def outage(
    nodes: Servers, waits: bool, held: Callable[[quorlock.Coordinator], object] = lambda q: None
) -> Iterator[tuple[quorlock.Coordinator, Any]]:
    """A coordinator all of whose nodes are gone, with a thread that waits for the lock, or not."""
    with nodes.connect(ttl=30) as q:
        with q.lock("out"):
            pass
        had = held(q)
        for index in range(3):
            nodes.kill(index)
        began = threading.Event()
        waiting = threading.Thread(target=_wait, args=(q, began), daemon=True)
        try:
            if waits:
                waiting.start()
                assert began.wait(SOON)
            yield q, had
        finally:
            q.close(0)
            for index in range(3):
                nodes.restart(index)


def _wait(q: quorlock.Coordinator, began: threading.Event) -> None:
    began.set()
    with contextlib.suppress(quorlock.QuorlockError):
        q.lock("out", wait=None).acquire()


def decorated(q: Any, by: Any) -> Any:
    """A function under the lock, of threads or of an event loop."""
    if isinstance(q, quorlock.Coordinator):
        return by(pytest.fail)

    async def body() -> None:
        pytest.fail("the body ran")

    return by(body)


CALLS: dict[str, Callable[[quorlock.Coordinator], object]] = {
    "try_acquire": lambda q: q.lock("out").try_acquire(),
    "wait=0": lambda q: q.lock("out", wait=0).acquire(),
    "wait": lambda q: q.lock("out", wait=WAIT).acquire(),
    "with": lambda q: q.lock("out", wait=WAIT).__enter__(),
    "decorated": lambda q: decorated(q, q.lock("out", wait=WAIT))(),
    "once": lambda q: decorated(q, q.once("out", every=60))(),
    "lock_all": lambda q: q.lock_all(["out", "in"], wait=WAIT).acquire(),
    "lock_all without waiting": lambda q: q.lock_all(["out", "in"]).try_acquire(),
    "shared": lambda q: q.lock("out", shared=True, wait=WAIT).acquire(),
    "shared without waiting": lambda q: q.lock("out", shared=True).try_acquire(),
    "semaphore": lambda q: q.semaphore("permits", 2, wait=WAIT).acquire(),
    "semaphore without waiting": lambda q: q.semaphore("permits", 2).try_acquire(),
    "unfenced": lambda q: q.lock("out", wait=WAIT, fencing=False).acquire(),
    "until_free": lambda q: q.lock("out", wait=WAIT).until_free(),
    "campaign": lambda q: q.election("out", wait=WAIT).campaign("me"),
}


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "behind another"])
def test_each_call_of_threads_says_that_no_quorum_answers(down: Servers, waits: bool) -> None:
    with outage(down, waits) as (q, _):
        for name, call in CALLS.items():
            began = time.monotonic()
            with pytest.raises(quorlock.NoQuorum) as raised:
                call(q)
            assert not isinstance(raised.value, quorlock.Misconfigured), name
            assert time.monotonic() - began < SOON, name
        assert q.names() == []
        assert len(q.names().failed) == len(q.health())
        assert {node.node for node in q.health()} <= {finding.node for finding in q.doctor()}
        for report in [
            q.lock("out").inspect(),
            *q.semaphore("permits", 2).inspect(),
            q.lock("out").revoke(b"no one's"),
        ]:
            assert report.holder is None
            assert report.unknown
        assert q.lock("out").waiters().has_more
        assert q.election("out").leader().unknown is not None
        assert q.election("out").observe().changed(SOON).unknown is not None


def leases_of(q: quorlock.Coordinator) -> list[quorlock.Lease]:
    # A lock stays taken after its lease only if a quorum says so before the lease would have ended; until then it is
    # tried.
    return [q.lock(f"held {number}", ttl=8 if number == 1 else 25).acquire(keep=True) for number in range(4)]


def test_each_call_on_a_lease_says_that_no_quorum_confirmed(down: Servers) -> None:
    with outage(down, False, leases_of) as (_, (renewed, retained, downgraded, released)):
        with pytest.raises(quorlock.Unconfirmed):
            renewed.renew()
        with pytest.raises(quorlock.Unconfirmed):
            renewed.extend(26)
        with pytest.raises(quorlock.Unconfirmed):
            retained.retain(20)
        # It goes on as before, and ends no later.
        downgraded.downgrade()
        downgraded.check()
        released.release()
        assert released.unconfirmed_release is not None


def test_each_call_on_a_lease_of_asyncio_says_that_no_quorum_confirmed(down: Servers) -> None:
    async def main(leases: list[aio.Lease]) -> None:
        renewed, retained, downgraded, released = leases
        with pytest.raises(quorlock.Unconfirmed):
            await renewed.renew()
        with pytest.raises(quorlock.Unconfirmed):
            await renewed.extend(26)
        with pytest.raises(quorlock.Unconfirmed):
            await retained.retain(20)
        await downgraded.downgrade()
        downgraded.check()
        await released.release()
        assert released.unconfirmed_release is not None

    with outage(down, False, leases_of) as (_, leases):
        asyncio.run(main([aio.Lease(lease._lease) for lease in leases]))


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "behind another"])
def test_each_call_of_asyncio_says_that_no_quorum_answers(down: Servers, waits: bool) -> None:
    async def main(q: quorlock.Coordinator) -> None:
        on_loop: Any = aio.Coordinator(q._connection)
        for name, call in CALLS.items():
            made: Any = on_loop.lock("out", wait=WAIT).__aenter__() if name == "with" else call(on_loop)
            with pytest.raises(quorlock.NoQuorum):
                await asyncio.wait_for(made, SOON)

    with outage(down, waits) as (q, _):
        asyncio.run(main(q))


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "behind another"])
def test_each_call_of_the_lock_of_redis_py_raises_the_connection_error_of_redis_py(down: Servers, waits: bool) -> None:
    redis = pytest.importorskip("redis")

    def held(q: quorlock.Coordinator) -> list[redis_lock.Lock]:
        locks = [redis_lock.Lock(q, f"held {number}", timeout=25) for number in range(2)]
        assert all(lock.acquire() for lock in locks)
        return locks

    with outage(down, waits, held) as (q, (extended, released)):
        calls: dict[str, Callable[[], object]] = {
            "blocking=False": lambda: redis_lock.Lock(q, "out", timeout=5).acquire(blocking=False),
            "blocking_timeout": lambda: redis_lock.Lock(q, "out", timeout=5, blocking_timeout=WAIT).acquire(),
            "with": lambda: redis_lock.Lock(q, "out", timeout=5, blocking_timeout=WAIT).__enter__(),
            "for ever": lambda: redis_lock.Lock(q, "out").acquire(),
            "locked": lambda: redis_lock.Lock(q, "out").locked(),
            "extend": lambda: extended.extend(2),
            "release": released.release,
        }
        for name, call in calls.items():
            began = time.monotonic()
            with pytest.raises(redis.exceptions.ConnectionError) as raised:
                call()
            assert isinstance(raised.value, redis.exceptions.LockError), name
            assert isinstance(raised.value, redis_lock.LockUnavailableError), name
            assert time.monotonic() - began < ENDLESS, name


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "behind another"])
def test_each_call_of_the_asyncio_lock_of_redis_py_does_so_too(down: Servers, waits: bool) -> None:
    redis = pytest.importorskip("redis")

    def held(q: quorlock.Coordinator) -> list[redis_lock.AsyncLock]:
        locks = [redis_lock.AsyncLock(q, f"held {number}", timeout=25, thread_local=False) for number in range(2)]
        for lock in locks:
            assert asyncio.run(lock.acquire())
        return locks

    async def main(q: quorlock.Coordinator, extended: redis_lock.AsyncLock, released: redis_lock.AsyncLock) -> None:
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "blocking=False": lambda: redis_lock.AsyncLock(q, "out", blocking=False).acquire(),
            "blocking_timeout": lambda: redis_lock.AsyncLock(q, "out", timeout=5, blocking_timeout=WAIT).acquire(),
            "with": lambda: redis_lock.AsyncLock(q, "out", timeout=5, blocking_timeout=WAIT).__aenter__(),
            "for ever": lambda: redis_lock.AsyncLock(q, "out").acquire(),
            "locked": lambda: redis_lock.AsyncLock(q, "out").locked(),
            "extend": lambda: extended.extend(2),
            "release": released.release,
        }
        for name, call in calls.items():
            with pytest.raises(redis.exceptions.ConnectionError) as raised:
                await asyncio.wait_for(call(), ENDLESS)
            assert isinstance(raised.value, redis_lock.LockUnavailableError), name

    with outage(down, waits, held) as (q, (extended, released)):
        asyncio.run(main(q, extended, released))


def test_a_wait_of_redis_py_goes_on_while_nodes_answer(down: Servers) -> None:
    """A lock that others hold for long is no outage."""
    with down.connect() as q, down.connect() as other:
        lock, outcome = redis_lock.Lock(q, "long"), []
        with other.lock("long"):
            waiting = threading.Thread(target=lambda: outcome.append(lock.acquire()))
            waiting.start()
            # It has asked twice whether the nodes answer.
            waiting.join(11)
            assert waiting.is_alive()
        waiting.join(SOON)
        assert outcome == [True]
