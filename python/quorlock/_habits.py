"""What programs write that used another library of locks, and what to write here instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

_WAIT = "how long to wait is an option of the lock: q.lock(name, wait=5), where wait=None waits for ever"
_TRY = "write lock.try_acquire(), which returns None if another client holds the lock"
_ONCE = "leave it out: it asks once, and to wait, write q.lock(name, wait=5).acquire()"
_TTL = "write ttl=30: how long others wait after a crash of this process, which renews its lease until then"
_NOTIFIED = "leave it out: waiting clients are notified when the lock is free"
_ANY_THREAD = "leave it out: any thread may release a lease"
_REENTRANT = "write owner=quorlock.Owner(), which may acquire the lock again while it holds it"
_LEASE = "it is of the lease, which acquire() and `with lock as lease:` return: keep that in a variable"
_HOLDER = (
    "write lock.inspect().holder, which asks all nodes, and is None if the lock is free, or with `unknown` if too few "
    "answered to know"
)
_CHECK = "write lease.check(), which raises Lost, or lease.lost.is_set()"
_RENEW = "write lease.renew(), or lease.extend(ttl) for another TTL"
_REVOKE = "write lock.revoke(lock.inspect().holder.token), by which two clients may hold it for a while"
_ADDRESSES = 'write the addresses: connect("redis://user:password@a:6379/0,redis://b,redis://c")'
_UNLOCK = "write lease.release() with the lease that acquire() returned, or `with q.lock(name):`"
_ACQUIRED = "a lease is acquired already, and cannot be again: keep the lock, and call lock.acquire()"

#: By the class and the attribute that it has not.
_ATTRIBUTES = {
    "Lock": {
        **dict.fromkeys(["release", "unlock", "extend", "renew", "check", "fencing_token", "on_lost"], _LEASE),
        **dict.fromkeys(["locked", "is_locked", "get_owner_id"], _HOLDER),
        **dict.fromkeys(["owned", "acquired", "valid", "is_acquired"], _CHECK),
        **dict.fromkeys(["reacquire", "refresh", "heartbeat"], _RENEW),
        **dict.fromkeys(["reset", "break_", "break_lock", "force_release"], _REVOKE),
        **dict.fromkeys(["lock", "wait_for"], "write lock.acquire(), or `with lock as lease:`"),
        "trylock": _TRY,
    },
    "Lease": {
        **dict.fromkeys(["owned", "locked", "acquired", "valid", "is_valid", "is_locked", "is_acquired"], _CHECK),
        **dict.fromkeys(["reacquire", "refresh", "heartbeat"], _RENEW),
        **dict.fromkeys(["validity", "ttl", "timeout"], "write lease.remaining, in seconds"),
        **dict.fromkeys(["key", "name"], "write lease.resource"),
        "unlock": "write lease.release()",
        "acquire": _ACQUIRED,
    },
    "Coordinator": {
        **dict.fromkeys(["unlock", "release"], _UNLOCK),
        **dict.fromkeys(["get_lock", "create_lock", "Lock"], "write q.lock(name)"),
        **dict.fromkeys(["stop", "destroy", "disconnect", "shutdown"], "write q.close()"),
        **dict.fromkeys(["start", "ping"], "leave it out: a coordinator connects by itself; q.health() has the nodes"),
        **dict.fromkeys(["create_group", "join_group", "watch_join_group"], "write q.election(name) for a leader"),
        **dict.fromkeys(["is_locked", "get_leader"], "write q.lock(name).inspect(), or q.election(name).leader()"),
        "reset_all": "write q.lock(name).revoke(token) for each lock",
    },
}
_ATTRIBUTES["Semaphore"] = {
    **_ATTRIBUTES["Lock"],
    **dict.fromkeys(
        ["log", "revoke", "waiters"], 'each permit is a lock with its number: q.lock(f"{semaphore.name}#0"), and so on'
    ),
    "get_value": "write permit.permit, or semaphore.inspect()",
}

_OPTIONS = {
    "timeout": "write wait=5 for how long to wait, or ttl=30 for how long others wait after a crash of this process",
    **dict.fromkeys(["blocking_timeout", "acquire_timeout", "max_wait"], "write wait=5, in seconds; wait=0 asks once"),
    **dict.fromkeys(["expire", "expiry", "expires", "auto_release_time", "lock_timeout", "lease_time"], _TTL),
    **dict.fromkeys(["sleep", "poll_interval", "retry_delay", "retry_count", "retry_times", "interval"], _NOTIFIED),
    **dict.fromkeys(["thread_local", "is_singleton", "strict"], _ANY_THREAD),
    "reentrant": _REENTRANT,
    "owner": "it is for q.lock() and q.lock_all()",
    **dict.fromkeys(["handoff", "handoff_within"], "it is for q.lock() and q.semaphore()"),
    "blocking": _TRY,
    "auto_renewal": "write renew=False if the program renews the lease itself",
    "raise_on_release_error": 'write on_lost="warn", or "raise", which is the default',
    "id": "write label=, which others see beside the host and the process",
    "notice": "threads cannot be stopped: use quorlock.aio, or call lease.check()",
    "metrics_class": "it is for q.lock()",
    "shared": "it is for q.lock()",
}

_WAITS = ["timeout", "blocking_timeout", "wait", "acquire_timeout"]
_ACQUIRE = {
    **dict.fromkeys(_WAITS, _WAIT),
    **dict.fromkeys(["poll_interval", "sleep", "retry_delay", "retry_count"], _NOTIFIED),
    "blocking": _TRY,
    "token": "leave it out: each acquisition draws its own, lease.token",
    "ttl": "the TTL is an option of the lock: q.lock(name, ttl=30)",
    "shared": "readers are an option of the lock: q.lock(name, shared=True)",
}

#: By the call and the keyword that it has not.
_KEYWORDS = {
    "acquire": _ACQUIRE,
    "try_acquire": {**_ACQUIRE, **dict.fromkeys([*_WAITS, "blocking"], _ONCE)},
    **dict.fromkeys(["lock", "lock_all", "semaphore", "once"], _OPTIONS),
    "election": {
        **_OPTIONS,
        "label": "others see what the candidate announces: election.campaign(value)",
        **dict.fromkeys(["renew", "auto_renewal"], "leave it out: a leader renews its lease until it resigns"),
        "fencing": "leave it out: every leader has a fencing token",
    },
    "connect": {
        **dict.fromkeys(["host", "port", "hosts", "masters", "url", "urls", "db", "redis", "connection"], _ADDRESSES),
        **dict.fromkeys(["retry_count", "retry_delay", "retry_times"], _NOTIFIED),
        **dict.fromkeys(["lock_timeout", "internal_lock_timeout", "auto_release_time"], _TTL),
        **dict.fromkeys(["ssl", "ssl_ca_certs"], "write rediss:// in the addresses, and tls_ca= for an authority"),
        **dict.fromkeys(["prefix", "namespace"], "write key_prefix="),
        **dict.fromkeys(["timeout", "socket_timeout"], "write node_timeout=, or q.lock(name, wait=5)"),
        "socket_connect_timeout": "write connect_timeout=",
    },
}


def refuse(call: str, names: Iterable[str]) -> None:
    """Refuses keywords that a call has not: it says what to write instead of the first."""
    for name in sorted(names):
        instead = _KEYWORDS.get(call, {}).get(name)
        raise TypeError(f"{call}() has no keyword {name!r}" + (f": {instead}" if instead else ""))


def refuse_all(call: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """The same of a call that has no positional arguments, where threads have `blocking` and `timeout`."""
    refuse(call, keywords)
    if positional:
        instead = _ONCE if call == "try_acquire" else _WAIT if len(positional) > 1 else _TRY
        raise TypeError(f"{call}() has no positional argument: {instead}")


class Habits:
    """Says what to write instead of an attribute that other libraries have."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Says what to write instead."""
            kind = type(self).__name__
            instead = _ATTRIBUTES.get(kind, {}).get(name)
            error = f"{kind!r} object has no attribute {name!r}" + (f": {instead}" if instead else "")
            raise AttributeError(error, name=name, obj=self)

    def __reduce__(self) -> NoReturn:
        """Refuses `pickle`: what is held, and how it is asked for, belongs to this process."""
        raise TypeError(f"{type(self).__name__} cannot be pickled: call connect() in the child, and q.lock() there")
