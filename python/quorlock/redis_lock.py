"""The calls of `redis.lock.Lock` of redis-py, on a lock that is held by a quorum.

    from quorlock.redis_lock import Lock

    with Lock(q, "orders/42", timeout=10):
        ...

`AsyncLock` has those of `redis.asyncio.lock.Lock`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from urllib.parse import quote

import quorlock
from quorlock import _quorlock, aio
from quorlock._settings import LockOptions, needed, seconds, unicode
from quorlock._settings import options as lock_options
from quorlock.errors import ConfigError, Held, Lost, Misconfigured, NoQuorum, QuorlockError, Unconfirmed

__all__ = ["AsyncLock", "Lock", "LockError", "LockNotOwnedError", "LockUnavailableError", "Owned"]

_LOG = logging.getLogger("quorlock")

if TYPE_CHECKING:

    class _RedisLockError(ValueError): ...

    class _RedisLockNotOwnedError(_RedisLockError): ...

    class _RedisConnectionError(Exception): ...
else:
    try:
        from redis.exceptions import ConnectionError as _RedisConnectionError
        from redis.exceptions import LockError as _RedisLockError
        from redis.exceptions import LockNotOwnedError as _RedisLockNotOwnedError
    except ImportError:
        _RedisLockError = _RedisLockNotOwnedError = ValueError
        _RedisConnectionError = ConnectionError


class LockError(QuorlockError, _RedisLockError):
    """The lock is not held, or too few nodes answered to know. It is a `redis.exceptions.LockError` if redis-py is
    installed, and its `__cause__` is the exception of quorlock."""

    lock_name: str | None

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.lock_name = lock_name


class LockNotOwnedError(LockError, _RedisLockNotOwnedError):
    """The lock was acquired, and is lost. It is a `redis.exceptions.LockNotOwnedError` if redis-py is
    installed."""


class LockUnavailableError(LockError, _RedisConnectionError):
    """Too few nodes answered. It is a `redis.exceptions.ConnectionError` too if redis-py is installed, otherwise the
    `ConnectionError` of Python."""


#: The coordinators made from addresses, which last until exit: a lock object is often made for each use.
_coordinators: dict[tuple[str, ...], quorlock.Coordinator] = {}
_making = threading.Lock()


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held it."""
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _address(node: Any) -> str:
    """The address of a node, which is one already, or a client of redis-py."""
    if isinstance(node, str):
        return node
    pool = getattr(node, "connection_pool", None)
    kind = getattr(getattr(pool, "connection_class", None), "__name__", "")
    settings: Mapping[str, Any] = getattr(pool, "connection_kwargs", {})
    user, password = settings.get("username"), settings.get("password")
    if (provider := settings.get("credential_provider")) is not None:
        if type(provider).__name__ != "UsernamePasswordCredentialProvider":
            raise ConfigError("a client whose credentials may change: give a Coordinator, with password_file")
        user, password = (None, *provider.get_credentials())[-2:]
    login = f"{quote(user or '', safe='')}:{quote(unicode('the password', password), safe='')}@" if password else ""
    database = settings.get("db") or 0
    if "UnixDomain" in kind:
        if login or database:
            raise ConfigError("a Unix socket with a password or a database: give addresses instead")
        return f"redis+unix://{settings['path']}"
    if not kind or "Sentinel" in kind:
        raise ConfigError(f"no address in {type(node).__name__}: give a Coordinator, addresses, or clients")
    if any(settings.get(name) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_ca_data")):
        raise ConfigError("a client with its own certificates: give a Coordinator, with tls_ca and tls_cert")
    host = settings.get("host", "localhost")
    host = f"[{host}]" if ":" in host else host
    scheme = "rediss" if kind.startswith("SSL") else "redis"
    return f"{scheme}://{login}{host}:{settings.get('port', 6379)}/{database}"


def _coordinator(redis: Any) -> quorlock.Coordinator:
    """The coordinator that the first argument of a lock stands for."""
    if isinstance(redis, quorlock.Coordinator):
        return redis
    if isinstance(redis, aio.Coordinator):
        return quorlock.Coordinator(redis._connection)
    if isinstance(redis, str):
        nodes = tuple(redis.split(","))
    else:
        nodes = tuple(map(_address, redis if isinstance(redis, Iterable) else [redis]))
    with _making:
        if nodes not in _coordinators:
            _coordinators[nodes] = quorlock.connect(nodes)
        return _coordinators[nodes]


def _replaced(module: str, name: str, usual: ModuleType) -> Any:
    """What stands for `usual` in a module of redis-py, if it was replaced: a test waits by a clock of its own then."""
    used = getattr(sys.modules.get(module), name, usual)
    return None if used is usual else used


_L = TypeVar("_L", quorlock.Lease, aio.Lease)


def _ends(wait: Any, now: float) -> float:
    return math.inf if wait is None else now + wait


class _Shared:
    """What `local` of redis-py has: the token, if the lock is held."""

    lease: quorlock.Lease | aio.Lease | None = None

    @property
    def token(self) -> bytes | None:
        return None if self.lease is None else self.lease.token


class _Local(_Shared, threading.local):
    """The same for each thread."""


class Owned(int):
    """A truth value that may be awaited, which gives a `bool`."""

    def __await__(self) -> Generator[Any, None, bool]:
        return bool(self)
        yield

    def __repr__(self) -> str:
        return repr(bool(self))


class _Base(Generic[_L]):
    """What both kinds of lock have in common."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        renew: bool = False,
    ) -> None:
        self.redis = redis
        self.name = name.decode() if isinstance(name, bytes) else name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.renew = renew
        self.local: Any = _Local() if self.thread_local else _Shared()
        self._q = _coordinator(redis)
        # What redis-py takes for no timeout.
        self._ttl = seconds(timeout, "timeout") or None
        self._options: LockOptions = {"ttl": self._ttl, "renew": renew or self._ttl is None}
        try:
            self._q.lock(self.name, **self._options)
        except ConfigError as error:
            if "max_ttl" not in str(error):
                raise
            # The nodes cannot promise so long a TTL. Shorter ones in a row can.
            self._options = {"renew": True, "max_hold": None if renew else timeout}

    @property
    def lease(self) -> _L | None:
        """The lease that `acquire` got: of this thread, if `thread_local`."""
        lease: _L | None = self.local.lease
        return lease

    @property
    def fencing_token(self) -> int | None:
        """The fencing token of that lease: see `Lease.fencing_token`."""
        return None if self.lease is None else self.lease.fencing_token

    def _owned(self) -> bool:
        return self.lease is not None and not self.lease.lost.is_set()

    def _wanted(self, blocking: bool | None, blocking_timeout: float | None, token: str | bytes | None) -> LockOptions:
        """The options of an acquisition."""
        if token is not None:
            raise ConfigError("token: each acquisition draws a random one; lock.lease.token is that")
        if not (self.blocking if blocking is None else blocking):
            return {"wait": 0, **self._options}
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        wait = max(wait, 0) if isinstance(wait, int | float) else wait
        return {"wait": seconds(wait, "blocking_timeout"), **self._options}

    def _wait(self, wanted: LockOptions) -> _quorlock.Lock:
        """A wait that redis-py ends in an outage, although it has no end otherwise."""
        made = lock_options(wanted)
        return self._q._connection.lock([self.name], not_in_outage=wanted["wait"] is None, **made)

    def _held(self, doing: str) -> _L:
        if self.lease is None:
            raise LockError(f"Cannot {doing} a lock that's not owned or is already unlocked.", self.name)
        return self.lease

    def _renewable(self, doing: str) -> _L:
        lease = self._held(doing)
        if self.timeout is None:
            raise LockError(f"Cannot {doing} a lock with no timeout", self.name)
        if "max_hold" in self._options and not self.renew:
            raise LockError(
                f"Cannot {doing} a lock whose timeout={self.timeout} s is above max_ttl: use renew=True", self.name
            )
        return lease

    def _longer(self, lease: _L, additional_time: float, replace_ttl: bool) -> float | None:
        """The TTL of an extension; that of the lease if it is renewed anyway."""
        more = needed(additional_time, "additional_time")
        return None if self.renew else more + (0 if replace_ttl else lease.remaining)

    def _again(self) -> float | None:
        return None if self.renew else self.timeout

    def _failed(self, doing: str, error: QuorlockError) -> LockError:
        if isinstance(error, Lost):
            return LockNotOwnedError(f"Cannot {doing} a lock that's no longer owned: {error}", self.name)
        if isinstance(error, NoQuorum | Unconfirmed) and not isinstance(error, Misconfigured):
            return LockUnavailableError(f"Cannot {doing} the lock: {error}", self.name)
        return LockError(f"Cannot {doing} the lock: {error}", self.name)

    def _taken(self, report: quorlock.VoteReport) -> bool:
        if report.holder is None and report.unknown:
            raise LockUnavailableError(f"Too few nodes answered to know whether the lock is held: {report}", self.name)
        return report.holder is not None

    def _released(self, lease: quorlock.Lease | aio.Lease) -> None:
        """Raises if no quorum has confirmed."""
        if (votes := lease.unconfirmed_release) is not None:
            raise LockUnavailableError(
                f"The lock was released, and no quorum confirmed it, so others may wait until its TTL ends: {votes}",
                self.name,
            )

    def _failed_to_enter(self) -> LockError:
        return LockError("Unable to acquire lock within the time specified", self.name)


class Lock(_Base[quorlock.Lease], _quorlock.Steps):
    """A lock with the calls of `redis.lock.Lock`.

    `redis` is a `Coordinator`, addresses, a `redis.Redis` client, or several of these in a list. From clients
    only the address, the database and the login are taken. Addresses and clients get a coordinator with
    default settings, which is kept until exit.

    What differs from redis-py:

    - On one server the two exclude each other. On several, redis-py asks one of them only and does not exclude this
      lock: all clients must change over together.
    - `timeout` is the longest life of the lock, as with redis-py: it expires even if the body still runs. With
      `renew=True` it is renewed until `release()`, and `timeout` is how long others wait after a crash of this
      process; `extend` and `reacquire` then only renew it.
    - Without `timeout` it is renewed, and others wait for the coordinator's TTL after a crash. With redis-py they
      wait for ever.
    - A `timeout` above the coordinator's `max_ttl` works: the lock is renewed until `timeout` has passed, so others
      wait for less after a crash, and it cannot be extended.
    - `extend` refuses what would be left beyond `max_ttl`. `extend(replace_ttl=True)` and `reacquire` never shorten
      what is left.
    - `sleep` has no effect: waiting clients are notified when the lock is free. A wait ends after
      `blocking_timeout`, not up to `sleep` before. `blocking_timeout=0` asks once. If redis-py's clock was replaced,
      as in tests, a wait asks again after each `sleep` of that clock.
    - `acquire(token=)` is refused: the nodes store a random token, which `lock.lease.token` is.
    - `owned()` asks no node: it is the validity of the lease, which ends before others can acquire the lock.
    - When too few nodes answer, each call raises `LockUnavailableError`, which is a `LockError` and the
      `ConnectionError` of redis-py: `acquire` at the end of `blocking_timeout`, and without it when they have not
      answered for 10 to 15 s. A restarted server is no outage: it votes again after `max_ttl`.
    - Dropping the object, or the end of a thread with `thread_local=True`, releases the lock, with a warning.
    - In a child after a fork the lock is not owned.
    """

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquires the lock. Returns `False` if another client still holds it after `blocking_timeout`. Raises
        `LockUnavailableError` if too few nodes answer: at the end of `blocking_timeout`, or without one after 10 to
        15 s."""
        wanted = self._wanted(blocking, blocking_timeout, token)
        clock = _replaced("redis.lock", "mod_time", time)
        if clock is not None and wanted["wait"] != 0:
            pause, ends = self.sleep if sleep is None else sleep, _ends(wanted["wait"], clock.monotonic())
            while not self.acquire(blocking=False):
                if clock.monotonic() + pause > ends:
                    return False
                clock.sleep(pause)
            return True
        try:
            self.local.lease = quorlock.Lock(self._wait(wanted), True).acquire()
        except Held:
            return False
        except QuorlockError as error:
            raise self._failed("acquire", error) from error
        return True

    def release(self) -> None:
        """Releases the lock. Raises `LockNotOwnedError` if it was lost before, also if its key was deleted or is
        another's, and `LockUnavailableError` if no quorum confirmed: others may wait until the TTL ends then."""
        lease = self._held("release")
        self.local.lease = None
        try:
            # That of the extension module: whatever interrupts it, the lock is given back.
            lease._lease.release()
        except QuorlockError as error:
            raise self._failed("release", error) from error
        self._released(lease)

    def owned(self) -> bool:
        """Whether this lock is held by this object (by this thread of it). It asks no node."""
        return self._owned()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds seconds to what is left, or with `replace_ttl` starts a new TTL of that length. Raises
        `LockNotOwnedError` if the lock was lost before, and `LockError` if that would be more than `max_ttl`."""
        lease = self._renewable("extend")
        return self._renew("extend", lease, self._longer(lease, additional_time, replace_ttl))

    def reacquire(self) -> Literal[True]:
        """Starts a new TTL of `timeout`. Raises `LockNotOwnedError` if the lock was lost before."""
        return self._renew("reacquire", self._renewable("reacquire"), self._again())

    def _renew(self, doing: str, lease: quorlock.Lease, ttl: float | None) -> Literal[True]:
        try:
            lease._lease.renew(ttl)
        except QuorlockError as error:
            raise self._failed(doing, error) from error
        return True

    def locked(self) -> bool:
        """Asks all nodes whether any client holds the lock."""
        return self._taken(self._q.lock(self.name).inspect())

    # Of `with`, whose methods are in the extension module.

    def _enter(self) -> Lock:
        if self.acquire():
            return self
        raise self._failed_to_enter()

    def _leave(self) -> None:
        try:
            self.release()
        except LockError as lost:
            if self.raise_on_release_error:
                raise
            _LOG.warning("%s", lost)


class AsyncLock(_Base[aio.Lease]):
    """A lock with the calls of `redis.asyncio.lock.Lock`. It differs from that as `Lock` from
    `redis.lock.Lock`.

    A loss does not cancel the body of `async with`: see `quorlock.aio.Lock` for that.
    """

    async def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """As `Lock.acquire`."""
        wanted = self._wanted(blocking, blocking_timeout, token)
        clock = _replaced("redis.asyncio.lock", "asyncio", asyncio)
        if clock is not None and wanted["wait"] != 0:
            loop = clock.get_running_loop()
            pause, ends = self.sleep if sleep is None else sleep, _ends(wanted["wait"], loop.time())
            while not await self.acquire(blocking=False):
                if loop.time() + pause > ends:
                    return False
                await clock.sleep(pause)
            return True
        try:
            self.local.lease = await aio.Lock(self._wait(wanted), True).acquire()
        except Held:
            return False
        except QuorlockError as error:
            raise self._failed("acquire", error) from error
        return True

    async def release(self) -> None:
        """As `Lock.release`."""
        lease = self._held("release")
        self.local.lease = None
        try:
            # It goes on if this call is cancelled.
            await lease.release()
        except QuorlockError as error:
            raise self._failed("release", error) from error
        self._released(lease)

    def owned(self) -> Owned:
        """As `Lock.owned`. It may be awaited, as that of redis-py, which is a coroutine, or used right away."""
        return Owned(self._owned())

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """As `Lock.extend`."""
        lease = self._renewable("extend")
        return await self._renew("extend", lease, self._longer(lease, additional_time, replace_ttl))

    async def reacquire(self) -> Literal[True]:
        """As `Lock.reacquire`."""
        return await self._renew("reacquire", self._renewable("reacquire"), self._again())

    async def _renew(self, doing: str, lease: aio.Lease, ttl: float | None) -> Literal[True]:
        try:
            await aio._run(lambda reactor: lease._lease.renew(ttl, reactor))
        except QuorlockError as error:
            raise self._failed(doing, error) from error
        return True

    async def locked(self) -> bool:
        """As `Lock.locked`."""
        return self._taken(await self._aio().lock(self.name).inspect())

    def _aio(self) -> aio.Coordinator:
        return aio.Coordinator(self._q._connection)

    async def __aenter__(self) -> AsyncLock:
        if await self.acquire():
            return self
        raise self._failed_to_enter()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            await self.release()
        except LockError as lost:
            if self.raise_on_release_error:
                raise
            _LOG.warning("%s", lost)
