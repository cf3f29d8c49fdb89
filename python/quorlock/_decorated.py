"""Locks as decorators, for functions and for coroutine functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, wraps
from typing import Any


class NeedsAio:
    """What type checkers see of a coroutine function or a generator in the decorator of a lock of threads. It cannot be
    called, and at run time there is a `TypeError`: use the decorator of `quorlock.aio`."""


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
    return None


def _made(result: object) -> str | None:
    """The same of what a call has returned."""
    if inspect.isawaitable(result):
        return "a coroutine or another awaitable"
    if inspect.isasyncgen(result):
        return "an async generator"
    return "a generator" if inspect.isgenerator(result) else None


def _refusal(function: Callable[..., Any], what: str) -> TypeError:
    cure = (
        "use `with` around the loop that runs it, or within it"
        if what == "a generator"
        else "use quorlock.aio: `async with q.lock(...)`, or its decorator for a coroutine function"
    )
    name = getattr(function, "__qualname__", repr(function))
    return TypeError(f"{name}() returns {what}, whose body would run when the lock is released already: {cure}")


def of_threads(lock: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the lock around each call."""
    if (what := _kind(function)) is not None:
        raise _refusal(function, what)

    @wraps(function)
    def locked(*arguments: Any, **keywords: Any) -> Any:
        with lock:
            result = function(*arguments, **keywords)
            if (what := _made(result)) is not None:
                if inspect.iscoroutine(result) or inspect.isgenerator(result):
                    # It has not begun.
                    result.close()
                raise _refusal(function, what)
            return result

    return locked


def of_tasks(lock: AbstractAsyncContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The coroutine function with the lock around each call."""
    what = _kind(function)
    if what != "a coroutine":
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name}() returns {what or 'no coroutine'}, and this decorator is for `async def` without `yield`: use "
            + ("`async with` around the loop that runs it, or within it" if what else "the decorator of quorlock")
        )

    @wraps(function)
    async def locked(*arguments: Any, **keywords: Any) -> Any:
        async with lock:
            return await function(*arguments, **keywords)

    return locked
