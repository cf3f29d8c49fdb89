"""Refuses subinterpreters, before the extension module is loaded: without this, the first to load it would keep it from
all others, the main one included."""

from __future__ import annotations

import importlib


def _is_main() -> bool:
    # The name of the module changed in Python 3.13. Without it there is no way to make one.
    for name in ["_interpreters", "_xxsubinterpreters"]:
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


if not _is_main():
    raise ImportError(
        "quorlock works in the main interpreter of a process, and this is a subinterpreter: use threads or processes "
        "(with mod_wsgi, `WSGIApplicationGroup %{GLOBAL}`)",
        name="quorlock",
    )
