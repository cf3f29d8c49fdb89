"""Locks as decorators, for functions and for coroutine functions."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial, wraps
from types import CodeType
from typing import Any


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
    aio = "use quorlock.aio: `async with q.lock(...)`, or its decorator for a coroutine function"
    if (what := _kind(function)) is not None:
        raise _refusal(function, what, _CURES.get(what, aio))

    @wraps(function)
    def locked(*arguments: Any, **keywords: Any) -> Any:
        with lock:
            result = function(*arguments, **keywords)
            if (what := _made(result)) is not None:
                _close(result)
                raise _refusal(function, what, _CURES.get(what, aio))
            return result

    return locked


def of_tasks(lock: AbstractAsyncContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The coroutine function with the lock around each call."""
    around = "use `async with` around the code that uses it, or within it"
    what = _kind(function)
    if what != "a coroutine":
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name}() returns {what or 'no coroutine'}, and this decorator is for `async def` without `yield`: "
            + (around if what else "use the decorator of quorlock")
        )

    @wraps(function)
    async def locked(*arguments: Any, **keywords: Any) -> Any:
        async with lock:
            result = await function(*arguments, **keywords)
            if (what := _made(result)) is not None:
                _close(result)
                raise _refusal(function, what, around)
            return result

    return locked
