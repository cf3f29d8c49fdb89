"""What a call of a function makes, for functions that are decorated or called back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import CodeType
from typing import Any

from quorlock.errors import ConfigError


def _by_contextlib(decorator: Callable[..., Any]) -> CodeType:
    """What a decorator of contextlib makes of any function."""
    made: CodeType = decorator(lambda: None).__code__
    return made


_CONTEXT, _ASYNC_CONTEXT = _by_contextlib(contextmanager), _by_contextlib(asynccontextmanager)


def kind(function: Callable[..., Any]) -> str | None:
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


def refuse_uncallable(name: str, callback: object, argument: str) -> None:
    """Refuses what is no callback, or one that a thread cannot run."""
    if not callable(callback):
        raise ConfigError(f"{name}={callback!r}: give a function of one argument, which is {argument}")
    if kind(callback) is not None:
        raise ConfigError(
            f"{name}={callback!r}: its body would not run, since a thread calls it: give a function without `async` "
            "and `yield`; it may call loop.call_soon_threadsafe()"
        )
