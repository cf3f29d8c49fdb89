"""Locks as decorators, for functions and for coroutine functions."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    _AsyncGeneratorContextManager,
    _GeneratorContextManager,
    nullcontext,
)
from functools import wraps
from typing import TYPE_CHECKING, Any

from quorlock import _quorlock
from quorlock._functions import kind
from quorlock._lease import report_unconfirmed
from quorlock.errors import Lost, Unconfirmed

if TYPE_CHECKING:
    from quorlock import Lock, aio


class NeedsAio:
    """What type checkers see in the decorator of a lock of threads of a function that returns a coroutine, a generator
    or what `contextlib.contextmanager` makes of one. It cannot be called, and at run time there is a `TypeError`."""


def _made(result: object) -> str | None:
    """The same of what a call has returned."""
    if inspect.isawaitable(result):
        return "a coroutine or another awaitable"
    if inspect.isasyncgen(result):
        return "an async generator"
    if inspect.isgenerator(result):
        return "a generator"
    for later, what in _LATER.items():
        if isinstance(result, later):
            return what
    return None


#: What runs code of the function after the call that made it. All else is a value, as a `Path` or an open file, which
#: are contexts as well.
_LATER: dict[type, str] = {
    map: "an iterator",
    filter: "an iterator",
    zip: "an iterator",
    _GeneratorContextManager: "a context manager",
    _AsyncGeneratorContextManager: "an async context manager",
}

_CURES = {
    "a generator": "use `with` around the loop that runs it, or within it",
    "an iterator": "use `with` around the loop that runs it, or return a list",
    "a context manager": "use `with` around its own `with`, or within it",
}


def _refusal(function: Callable[..., Any], what: str, cure: str) -> TypeError:
    name = getattr(function, "__qualname__", repr(function))
    return TypeError(f"{name}() returns {what}, whose body would run when the lock is released already: {cure}")


def _close(result: object) -> None:
    """Ends what has not begun."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()


def of_threads(lock: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the lock around each call."""
    call = _call(function)

    @wraps(function)
    def locked(*arguments: Any, **keywords: Any) -> Any:
        with lock:
            return call(*arguments, **keywords)

    return locked


def once_of_threads(lock: Lock, every: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is called if no client has begun to within `every` seconds."""
    call = _call(function)

    @wraps(function)
    def once(*arguments: Any, **keywords: Any) -> Any:
        with _quorlock.OnceContext(lock._lock, every) as acquired:
            return call(*arguments, **keywords) if acquired else None

    return once


def of_tasks(lock: AbstractAsyncContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The coroutine function with the lock around each call."""
    call = _call_on_a_loop(function)

    @wraps(function)
    async def locked(*arguments: Any, **keywords: Any) -> Any:
        async with lock:
            return await call(*arguments, **keywords)

    return locked


def once_of_tasks(lock: aio.Lock, every: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """As `once_of_threads`."""
    call = _call_on_a_loop(function)

    @wraps(function)
    async def once(*arguments: Any, **keywords: Any) -> Any:
        async with await lock.try_acquire() or nullcontext() as lease:
            if lease is None:
                return None
            ends = time.monotonic() + every
            try:
                return await call(*arguments, **keywords)
            finally:
                left = ends - time.monotonic()
                # What a loss cancels may run elsewhere.
                if left > 0 and not lease._is_cancelling:
                    try:
                        await lease.retain(left)
                    except Lost:
                        # The end of `async with` raises it, or logs it.
                        pass
                    except Unconfirmed as error:
                        report_unconfirmed(error)

    return once


def _refuse_uncallable(function: object) -> None:
    if not callable(function):
        raise TypeError(f"a lock decorates a function, and {function!r} cannot be called")


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of the function, which refuses what runs only after it."""
    aio = "use quorlock.aio: `async with q.lock(...)`, or its decorator for a coroutine function"
    _refuse_uncallable(function)
    if (what := kind(function)) is not None:
        raise _refusal(function, what, _CURES.get(what, aio))

    def call(*arguments: Any, **keywords: Any) -> Any:
        result = function(*arguments, **keywords)
        if (what := _made(result)) is not None:
            _close(result)
            raise _refusal(function, what, _CURES.get(what, aio))
        return result

    return call


def _call_on_a_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a coroutine function."""
    around = "use `async with` around the code that uses it, or within it"
    _refuse_uncallable(function)
    what = kind(function)
    if what != "a coroutine":
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name}() returns {what or 'no coroutine'}, and this decorator is for `async def` without `yield`: "
            + (around if what else "use the decorator of quorlock")
        )

    async def call(*arguments: Any, **keywords: Any) -> Any:
        result = await function(*arguments, **keywords)
        if (what := _made(result)) is not None:
            _close(result)
            raise _refusal(function, what, around)
        return result

    return call
