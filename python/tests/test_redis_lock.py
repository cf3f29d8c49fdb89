"""The lock with the calls of redis-py, beside that of redis-py."""

from __future__ import annotations

import asyncio
import math
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import quorlock
from quorlock import redis_lock
from quorlock.redis_lock import AsyncLock, Lock, LockError, LockNotOwnedError
from quorlock.testing import Servers, servers

redis = pytest.importorskip("redis")


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returned, or which of redis-py's exceptions it raised."""
    try:
        return call()
    except redis.exceptions.LockNotOwnedError:
        return "LockNotOwnedError"
    except redis.exceptions.LockError:
        return "LockError"
    except AttributeError:
        return "AttributeError"  # Of redis-py in a thread that never acquired the lock.


def sequence(make: Callable[..., Any], free: Callable[[str], None]) -> list[Any]:
    name = uuid.uuid4().hex
    lock, other = make(name, timeout=20), make(name, timeout=20, blocking=False)
    seen = [outcome(lock.release), outcome(lambda: lock.extend(1)), outcome(lock.reacquire)]
    seen += [lock.locked(), lock.owned(), lock.acquire(), lock.locked(), lock.owned(), other.owned()]
    seen += [other.acquire(), lock.acquire(blocking=False), other.acquire(blocking=True, blocking_timeout=0.2)]
    seen += [lock.extend(5), lock.extend(5, replace_ttl=True), lock.reacquire(), outcome(other.release)]
    seen += [outcome(other.__enter__), lock.release(), lock.locked(), lock.owned(), outcome(lock.release)]
    with lock as entered:
        seen += [entered is lock, lock.owned(), other.acquire()]
    seen += [other.acquire(), lock.acquire(blocking_timeout=0.2), other.release()]
    forever = make(name)
    seen += [forever.acquire(), outcome(lambda: forever.extend(1)), outcome(forever.reacquire), forever.release()]
    thread: list[Any] = []
    for thread_local in True, False:
        shared = make(name, timeout=20, thread_local=thread_local)
        seen.append(shared.acquire())
        calls = shared.owned, shared.release
        run = threading.Thread(target=lambda calls=calls: thread.extend(outcome(c) in (True, None) for c in calls))
        run.start()
        run.join()
        seen += [shared.owned(), outcome(shared.release)]
    seen.append(lock.acquire())
    free(name)
    return seen + thread + [outcome(lambda: lock.extend(1)), outcome(lock.reacquire), outcome(lock.release)]


def test_the_same_calls_have_the_same_outcomes_as_with_redis_py() -> None:
    with servers(1) as nodes, nodes.connect(ttl=2) as q, redis.Redis.from_url(nodes.urls[0]) as client:
        theirs = sequence(lambda *a, **k: redis.lock.Lock(client, *a, **k), lambda name: client.delete(name))

        def free(name: str) -> None:
            holder = q.lock(name).inspect().holder
            assert holder is not None
            q.lock(name).revoke(holder.token)

        assert sequence(lambda *a, **k: Lock(q, *a, **k), free) == theirs


def test_exceptions_are_those_of_redis_py_with_the_cause(q: quorlock.Coordinator) -> None:
    assert issubclass(LockError, redis.exceptions.LockError)
    assert issubclass(LockNotOwnedError, redis.exceptions.LockNotOwnedError)
    lock = Lock(q, "expires", timeout=0.3)
    assert lock.acquire()
    assert lock.lease is not None
    assert lock.lease.lost.wait(20)
    assert not lock.owned()
    with pytest.raises(redis.exceptions.LockNotOwnedError) as raised:
        lock.release()
    assert isinstance(raised.value.__cause__, quorlock.Lost)
    assert Lock(q, "expires").acquire(blocking_timeout=20)


def test_an_error_on_release_is_only_logged_if_asked_for(q: quorlock.Coordinator) -> None:
    with Lock(q, "logged", timeout=0.3, raise_on_release_error=False) as lock:
        assert lock.lease is not None
        assert lock.lease.lost.wait(20)
    with pytest.raises(LockNotOwnedError), Lock(q, "logged", timeout=0.3) as lock:
        assert lock.lease is not None
        assert lock.lease.lost.wait(20)


def test_a_lock_is_renewed_beyond_its_timeout(q: quorlock.Coordinator) -> None:
    # The machine may pause for two seconds.
    with Lock(q, "renewed", timeout=3, renew=True) as lock:
        assert lock.lease is not None
        assert not lock.lease.lost.wait(3.5)
        assert not Lock(q, "renewed").acquire(blocking=False)


def test_a_timeout_above_max_ttl_works(nodes: Servers) -> None:
    with nodes.connect(ttl=1, max_ttl=1) as q:
        with Lock(q, "long", timeout=3600, renew=True) as lock:
            assert lock.lease is not None
            assert lock.lease.remaining < 2
            assert lock.extend(3600)
        with pytest.raises(LockError), Lock(q, "long", timeout=1.5) as lock:
            assert lock.lease is not None
            with pytest.raises(LockError, match="max_ttl"):
                lock.extend(1)
            assert lock.lease.lost.wait(20)
            assert lock.lease.lost.reason == "max_hold"


def test_an_extension_that_cannot_be_kept_is_refused(q: quorlock.Coordinator) -> None:
    with Lock(q, "extended", timeout=5) as lock:
        assert lock.lease is not None
        assert lock.extend(15)
        assert 15 < lock.lease.remaining <= 20
        with pytest.raises(LockError, match=r"at every client \(`max_ttl` of connect\)"):
            lock.extend(15)
        assert lock.extend(1, replace_ttl=True)
        assert lock.reacquire()
        assert lock.lease.remaining > 5, "neither shortens"


def test_no_quorum_is_a_lock_error() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        nodes.kill(0)
        nodes.kill(1)
        with pytest.raises(LockError) as raised:
            Lock(q, "name").acquire(blocking=False)
        assert isinstance(raised.value.__cause__, quorlock.NoQuorum)
        with pytest.raises(LockError):
            Lock(q, "name").locked()


def test_a_timeout_that_cannot_be_is_refused_by_its_name(q: quorlock.Coordinator) -> None:
    with pytest.raises(quorlock.ConfigError, match="^timeout=-1: give"):
        Lock(q, "timeout", timeout=-1)
    with pytest.raises(quorlock.ConfigError, match="^blocking_timeout='x': a duration"):
        Lock(q, "timeout").acquire(blocking_timeout="x")  # type: ignore[arg-type]
    with Lock(q, "timeout", timeout=10) as lock:
        with pytest.raises(quorlock.ConfigError, match="^additional_time=-10: give"):
            lock.extend(-10)
        assert lock.owned()


def test_a_token_is_refused(q: quorlock.Coordinator) -> None:
    with pytest.raises(quorlock.ConfigError):
        Lock(q, "token").acquire(token="mine")


class Signed(redis.CredentialProvider):
    """As that of a cloud: each token is another."""

    def get_credentials(self) -> tuple[str, str]:
        return "default", uuid.uuid4().hex


def test_the_addresses_of_clients_are_taken() -> None:
    client = redis.Redis("::1", 7000, db=3, username="me", password="p/w")
    assert redis_lock._address(client) == "redis://me:p%2Fw@[::1]:7000/3"
    assert redis_lock._address(redis.Redis("a", ssl=True)) == "rediss://a:6379/0"
    assert redis_lock._address(redis.Redis(unix_socket_path="/tmp/s")) == "redis+unix:///tmp/s"
    assert redis_lock._address(redis.asyncio.Redis(host="b", port=1)) == "redis://b:1/0"
    one, two = Lock([redis.Redis("a"), redis.Redis("b")], "x"), Lock("redis://a:6379/0,redis://b:6379/0", "y")
    assert one._q is two._q
    login = redis.UsernamePasswordCredentialProvider("me", "p/w")
    assert redis_lock._address(redis.Redis("a", credential_provider=login)) == "redis://me:p%2Fw@a:6379/0"
    with pytest.raises(quorlock.ConfigError, match="whose credentials may change: give a Coordinator"):
        Lock(redis.Redis("a", credential_provider=Signed()), "x")
    with pytest.raises(quorlock.ConfigError):
        Lock(object(), "x")
    with pytest.raises(quorlock.ConfigError) as raised:
        Lock(redis.Redis("a", password="s3cret\udcff"), "x")
    assert "s3cret" not in repr(raised.value)
    assert raised.value.__context__ is None


def test_the_token_is_where_redis_py_has_it(q: quorlock.Coordinator) -> None:
    for thread_local in [True, False]:
        lock = Lock(q, "token", thread_local=thread_local)
        assert lock.local.token is None
        with lock:
            assert lock.lease is not None
            assert lock.local.token == lock.lease.token
        assert lock.local.token is None


def test_the_asyncio_lock_has_the_same_calls(q: quorlock.Coordinator) -> None:
    async def main() -> None:
        lock, other = AsyncLock(q, "aio", timeout=5), AsyncLock(q, "aio", timeout=5, blocking=False)
        async with lock:
            assert await lock.locked()
            assert lock.owned()
            assert not await other.acquire()
            assert await lock.extend(5)
            assert await lock.reacquire()
            with pytest.raises(redis.exceptions.LockError):
                async with other:
                    pass
        assert not await lock.locked()
        with pytest.raises(redis.exceptions.LockError):
            await lock.release()

    asyncio.run(main())


def test_on_one_server_both_kinds_of_lock_exclude_each_other() -> None:
    with servers(1) as nodes, nodes.connect() as q, redis.Redis.from_url(nodes.urls[0]) as client:
        theirs = client.lock("both", timeout=30)
        assert theirs.acquire()
        assert not Lock(q, "both").acquire(blocking=False)
        theirs.release()
        with Lock(q, "both"):
            assert not client.lock("both", timeout=30).acquire(blocking=False)


def test_a_lock_whose_key_was_deleted_or_is_another_s_is_not_owned() -> None:
    with servers(1) as nodes, nodes.connect() as q, redis.Redis.from_url(nodes.urls[0]) as client:
        for taken in [False, True]:
            lock = Lock(q, f"deleted {taken}", timeout=20)
            assert lock.acquire()
            client.delete(lock.name)
            if taken:
                client.set(lock.name, "another", px=20_000)
            with pytest.raises(redis.exceptions.LockNotOwnedError):
                lock.release()
            assert client.exists(lock.name) == taken
            assert lock.local.token is None

        async def on_a_loop() -> None:
            lock = AsyncLock(q, "aio deleted", timeout=20)
            assert await lock.acquire()
            client.delete(lock.name)
            with pytest.raises(redis.exceptions.LockNotOwnedError):
                await lock.release()
            lock, other = AsyncLock(q, "aio taken over", timeout=20), AsyncLock(q, "aio taken over", timeout=20)
            assert await lock.acquire()
            waiting = asyncio.ensure_future(other.acquire())
            await asyncio.sleep(0)
            client.delete(lock.name)
            with pytest.raises(redis.exceptions.LockNotOwnedError):
                await lock.release()
            assert await waiting
            await other.release()

        asyncio.run(on_a_loop())


def test_owned_of_the_asyncio_lock_may_be_awaited_or_not(q: quorlock.Coordinator) -> None:
    async def main() -> None:
        lock = AsyncLock(q, "owned", timeout=20)
        assert await lock.owned() is False
        assert not lock.owned()
        async with lock:
            assert await lock.owned() is True
            assert lock.owned()
            assert repr(lock.owned()) == "True"

    asyncio.run(main())


def test_a_blocking_timeout_without_an_end_is_refused_by_its_name(q: quorlock.Coordinator) -> None:
    for timeout in [math.inf, math.nan]:
        with pytest.raises(quorlock.ConfigError, match="^blocking_timeout=(inf|nan): "):
            Lock(q, "refused").acquire(blocking_timeout=timeout)


def test_a_lock_that_is_never_released_is_no_cool_down(q: quorlock.Coordinator) -> None:
    with pytest.warns(ResourceWarning, match="`mail` was dropped"):
        assert Lock(q, "mail", timeout=20).acquire(blocking=False)
    q.lock("mail", wait=10).acquire().release()
