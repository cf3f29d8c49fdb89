"""Locks as decorators, for functions and for coroutine functions."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial, wraps
from types import CodeType
from typing import TYPE_CHECKING, Any

from quorlock import _quorlock
from quorlock.errors import Lost, Unconfirmed

if TYPE_CHECKING:
    from quorlock import Lock, aio

_LOG = logging.getLogger("quorlock")


def _by_contextlib(decorator: Callable[..., Any]) -> CodeType:
    """What a decorator of contextlib makes of any function."""
    made: CodeType = decorator(lambda: None).__code__
    return made


_CONTEXT, _ASYNC_CONTEXT = _by_contextlib(contextmanager), _by_contextlib(asynccontextmanager)


class NeedsAio:
    """What type checkers see in the decorator of a lock of threads of a function that returns a coroutine, an iterator
    or a context manager. It cannot be called, and at run time there is a `TypeError`."""


def _kind(function: Callable[..., Any]) -> str | None:
    """What a call of the function makes, if its body runs only after the call."""
    while isinstance(function, partial):
        function = function.func
    for called in [function, getattr(type(function), "__call__", None)]:  # noqa: B004
        if inspect.iscoroutinefunction(called):
            return "a coroutine"
        if inspect.isasyncgenfunction(called):
            return "an async generator"
        if inspect.isgeneratorfunction(called):
            return "a generator"
        code = getattr(called, "__code__", None)
        if code is _CONTEXT:
            return "a context manager"
        if code is _ASYNC_CONTEXT:
            return "an async context manager"
    return None


def _made(result: object) -> str | None:
    """The same of what a call has returned."""
    if inspect.isawaitable(result):
        return "a coroutine or another awaitable"
    if inspect.isasyncgen(result):
        return "an async generator"
    if inspect.isgenerator(result):
        return "a generator"
    for kind, what in _LATER.items():
        if isinstance(result, kind):
            return what
    return None


#: What runs code, or is used, after the call that made it.
_LATER: dict[type, str] = {
    Iterator: "an iterator",
    AsyncIterator: "an async iterator",
    AbstractContextManager: "a context manager",
    AbstractAsyncContextManager: "an async context manager",
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
        # In one line, since the handler of a signal may raise after a call.
        with lock.try_acquire() or nullcontext() as lease:
            if lease is None:
                return None
            ends = time.monotonic() + every
            try:
                return call(*arguments, **keywords)
            finally:
                # The end of `with` raises the loss, or logs it.
                with _retaining(lease.resource, ends) as left:
                    if left > 0:
                        lease.retain(left)

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
                with _retaining(lease.resource, ends) as left:
                    # What a loss cancels may run elsewhere.
                    if left > 0 and not lease._is_cancelling:
                        await lease.retain(left)

    return once


@contextmanager
def _retaining(resource: str, ends: float) -> Iterator[float]:
    """Gives how much longer a lock is to stay taken. That it may not is logged: the function has run."""
    try:
        yield ends - time.monotonic()
    except Lost:
        pass
    except Unconfirmed as error:
        _LOG.warning("`%s` may run again too soon: %s", _quorlock.printable(resource), error)


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of the function, which refuses what runs only after it."""
    aio = "use quorlock.aio: `async with q.lock(...)`, or its decorator for a coroutine function"
    if (what := _kind(function)) is not None:
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
    what = _kind(function)
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
