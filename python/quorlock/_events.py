"""The thread that logs what the library logs, and calls what was registered for the loss of a lease.

The library's own thread never waits for the interpreter, so that a program that computes delays no renewal.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable

from quorlock import _quorlock

_LOG = logging.getLogger("quorlock")

#: How long an exit waits for the releases of leases that were just dropped.
EXIT_SECONDS = 1.0

#: How often what is registered by `call_now_and_then` is called.
_NOW_AND_THEN_SECONDS = 5.0


class _State:
    """What belongs to this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.number = 0
        self.callbacks: dict[int, Callable[[str], None]] = {}
        self.level = -1
        self.counts = False
        self.now_and_then: set[Callable[[], object]] = set()


_state = _State()
_connections: weakref.WeakSet[_quorlock.Connection] = weakref.WeakSet()


def follow_logging() -> None:
    """Collects what the logger `quorlock` logs now. A level that is set later applies from the next lock on."""
    level = _LOG.getEffectiveLevel()
    if level != _state.level:
        _state.level = level
        _quorlock.log_above(max(1, min(level, 255)))
        _start()


def register(connection: _quorlock.Connection) -> None:
    """Closes it at exit."""
    _connections.add(connection)


def on_lost(lease: _quorlock.Lease, callback: Callable[[str], None]) -> None:
    """Calls `callback` with the reason when the lease is over."""
    with _state.lock:
        _state.number += 1
        number = _state.number
        _state.callbacks[number] = callback
    _start()
    lease.notify_lost(number)


def enable_metrics() -> None:
    """Counts in coordinators that are made from now on."""
    with _state.lock:
        if not _state.counts:
            _quorlock.enable_metrics()
            _state.counts = True
            # Otherwise histograms would grow until they are read.
            _state.now_and_then.add(_quorlock.metrics_text)
    _start()


def call_now_and_then(work: Callable[[], object]) -> None:
    """Calls `work` every few seconds from now on."""
    _state.now_and_then.add(work)
    _quorlock.wake_events()


def _start() -> None:
    with _state.lock:
        if _state.thread is None:
            _state.thread = threading.Thread(target=_run, args=(_state,), name="quorlock events", daemon=True)
            _state.thread.start()


def _run(state: _State) -> None:
    while (events := _quorlock.next_events(_NOW_AND_THEN_SECONDS if state.now_and_then else 3600.0)) is not None:
        if not events:
            for work in list(state.now_and_then):
                try:
                    work()
                except RuntimeError:
                    # A dictionary of loops has changed meanwhile. The next time will do.
                    _LOG.debug("upkeep failed", exc_info=True)
        for level, what, text in events:
            try:
                if level:
                    _LOG.log(level, text, extra={"target": what})
                else:
                    with state.lock:
                        callback = state.callbacks.pop(int(what))
                    callback(text)
            except Exception:
                _LOG.exception("a callback for the loss of a lock failed")


@atexit.register
def _end() -> None:
    """Releases what is held, and ends the thread before the interpreter does."""
    for connection in list(_connections):
        try:
            connection.close(EXIT_SECONDS)
        except Exception:
            _LOG.debug("closing at exit failed", exc_info=True)
    _quorlock.stop_events()
    if _state.thread is not None:
        _state.thread.join(EXIT_SECONDS)


def _after_fork_in_child() -> None:
    global _state
    _quorlock.after_fork_in_child()
    parent = _state
    # The lock of the parent may be held by a thread that does not exist here.
    _state = _State()
    _state.counts, _state.now_and_then = parent.counts, parent.now_and_then


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_quorlock.before_fork,
        after_in_parent=_quorlock.after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
