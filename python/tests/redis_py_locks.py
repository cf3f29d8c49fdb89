"""A plugin of pytest for the tests of redis-py: they get quorlock's locks for redis-py's."""

from __future__ import annotations

import contextlib
from typing import Any

import redis.asyncio.lock
import redis.lock

import quorlock
from quorlock import redis_lock

#: What the test that runs now has made.
_made: list[redis_lock.Lock | redis_lock.AsyncLock] = []


def pytest_runtest_teardown() -> None:
    """A test that fails keeps its locks with its frames, and they are renewed: the next one would not get them.

    Each test empties the database at its end, which ends connections; where that happens often, for a second.
    """
    while _made:
        lease = _made.pop().lease
        if lease is not None:
            with contextlib.suppress(quorlock.QuorlockError):
                lease._lease.release()
    for coordinator in _coordinators.values():
        coordinator.close()
    _coordinators.clear()


_coordinators: dict[str, quorlock.Coordinator] = {}


def _coordinator(client: Any) -> quorlock.Coordinator:
    """One on the server of the client, which was just started: without the restart guard."""
    address = redis_lock._address(client)
    if address not in _coordinators:
        _coordinators[address] = quorlock.connect(address, restart_guard=False)
    return _coordinators[address]


class Lock(redis_lock.Lock):
    def __init__(self, client: Any, *arguments: Any, **keywords: Any) -> None:
        super().__init__(_coordinator(client), *arguments, **keywords)
        _made.append(self)


class AsyncLock(redis_lock.AsyncLock):
    def __init__(self, client: Any, *arguments: Any, **keywords: Any) -> None:
        super().__init__(_coordinator(client), *arguments, **keywords)
        _made.append(self)


redis.lock.Lock = Lock  # type: ignore[misc,assignment]
redis.asyncio.lock.Lock = AsyncLock  # type: ignore[misc,assignment]
