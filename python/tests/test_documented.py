"""`help()` says what every public name is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import quorlock

MODULES = sorted(
    f"quorlock.{module.name}" for module in pkgutil.iter_modules(quorlock.__path__) if not module.name.startswith("_")
)


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """The public names of a module, and of its classes."""
    for name in module.__all__:
        value = getattr(module, name)
        yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            for member, of_class in inspect.getmembers(value):
                (origin, *_) = [one for one in value.__mro__ if member in vars(one)] or [value]
                ours = origin.__module__.startswith("quorlock") and (
                    callable(of_class) or isinstance(of_class, property)
                )
                if ours and not member.startswith("_"):
                    yield f"{module.__name__}.{name}.{member}", of_class


def test_the_modules_are_those_that_are_known() -> None:
    assert {"quorlock.aio", "quorlock.errors", "quorlock.pytest_plugin", "quorlock.votes"} <= set(MODULES)


@pytest.mark.parametrize("name", ["quorlock", *MODULES])
def test_every_public_name_is_documented_at_run_time(name: str) -> None:
    for needed in ["apscheduler", "celery", "redis"]:
        if needed in name:
            pytest.importorskip(needed)
    module = importlib.import_module(name)
    assert module.__doc__
    names = list(public(module))
    assert names
    # A dataclass without text of its own has its signature instead.
    without = [
        path
        for path, value in names
        if not (text := inspect.getdoc(value)) or text.startswith(f"{path.rpartition('.')[2]}(")
    ]
    assert without == []
