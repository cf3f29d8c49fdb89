"""The threads that log what the library logs, and call what was registered for the loss of a lease.

The library's own thread never waits for the interpreter, so that a program that computes delays no renewal. Nothing
that a callback or a handler of logging does ends these threads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import itertools
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from quorlock import _quorlock
from quorlock.errors import ConfigError
from quorlock.votes import Waiting

_LOG = logging.getLogger("quorlock")

#: How long an exit waits for the releases of leases that were just dropped, and for these threads.
EXIT_SECONDS = 1.0

#: How often what is registered by `call_now_and_then` is called, and how long a callback may run until that is logged.
_NOW_AND_THEN_SECONDS = 5.0


class _State:
    """What belongs to this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads: dict[str, threading.Thread] = {}
        self.number = 0
        #: Each with the name of its lock.
        self.callbacks: dict[int, tuple[str, Callable[[str], None]]] = {}
        #: What callbacks are to be called with, by their numbers, until they have returned.
        self.called: list[tuple[int, str | Waiting]] = []
        #: When the callback that runs now began, and what it is.
        self.runs: tuple[float, str] | None = None
        self.level = -1
        self.counts = False
        self.now_and_then: set[Callable[[], object]] = set()


_state = _State()
_connections: weakref.WeakSet[_quorlock.Connection] = weakref.WeakSet()
#: The locks whose waits are followed, by the numbers of their callbacks. Each has its callback, which may refer to it.
_waits: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_after_closing: list[Callable[[], object]] = []


def refuse_green_threads() -> None:
    """Refuses threads that are coroutines of gevent or eventlet: the first wait would stop all of them for ever."""
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        name = "gevent"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        name = "eventlet"
    else:
        return
    raise ConfigError(
        f"{name} has replaced the threads of this process, and a wait for a lock would stop them all: use workers that "
        "are threads or processes (gunicorn -k gthread, celery -P prefork), or asyncio with quorlock.aio"
    )


def in_trio() -> bool:
    """Whether this code runs in a loop of Trio."""
    # Older versions do not say, nor does one that another thread imports now.
    lowlevel: Any = getattr(sys.modules.get("trio"), "lowlevel", None)
    return hasattr(lowlevel, "in_trio_task") and bool(lowlevel.in_trio_task())


def warn_of_loop() -> None:
    """Warns that this call stops the running event loop of this thread. The line that is named is the caller's."""
    if "ipykernel" in sys.modules:
        # The cells of a notebook run in the loop of its kernel, and may stop it.
        return
    if in_trio():
        cure = "call it with trio.to_thread.run_sync()"
    else:
        cure = "use quorlock.aio, or call it in another thread with asyncio.to_thread()"
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "quorlock":
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"this call waits on the thread of a running event loop, all of whose tasks stand still meanwhile: {cure}",
        RuntimeWarning,
        stacklevel=level,
    )


def follow_logging() -> None:
    """Collects what the logger `quorlock` logs now. A level that is set later applies from the next lock on."""
    level = _LOG.getEffectiveLevel()
    if level != _state.level:
        _state.level = level
        _quorlock.log_above(max(1, min(level, 255)))
        _start()


def begin_in_child() -> None:
    """Starts the threads that the parent has, once a child uses what it has inherited."""
    follow_logging()
    if _waits:
        _start("losses")


def register(connection: _quorlock.Connection) -> None:
    """Closes it at exit."""
    _connections.add(connection)


def after_closing(work: Callable[[], object]) -> None:
    """Calls `work` at exit, when all that was registered is closed."""
    _after_closing.append(work)


def on_lost(lease: _quorlock.Lease, callback: Callable[[str], None], exit_code: int | None = None) -> None:
    """Calls `callback` with the reason when the lease is over. With an `exit_code` a loss ends the process soon after,
    whatever the thread of the callbacks does. If no thread can be started, it raises, and calls nothing."""
    _start("losses")
    _start("records")
    with _state.lock:
        _state.number += 1
        number, first = _state.number, not _state.callbacks
        _state.callbacks[number] = (lease.resource, callback)
    if first:
        # From now on it looks for a callback that blocks.
        _quorlock.wake_events()
    lease.notify_lost(number, exit_code)


def new_number() -> int:
    """The number of a callback for waits."""
    return next(_numbers)


def on_wait(number: int, lock: Any) -> None:
    """Calls `lock._on_wait` when one that waits for it learns who holds it."""
    _start("losses")
    _start("records")
    _waits[number] = lock
    # From now on it looks for a callback that blocks.
    _quorlock.wake_events()


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


def _start(what: str = "records") -> None:
    with _state.lock:
        thread = _state.threads.get(what)
        if thread is None or not thread.is_alive():
            refuse_green_threads()
            run = {"records": _log_records, "losses": _call_back}[what]
            thread = threading.Thread(target=_go_on, args=(run, _state), name=f"quorlock {what}", daemon=True)
            thread.start()
            # Not one that was not started: the exit waits for its end.
            _state.threads[what] = thread


def _go_on(run: Callable[[_State], object], state: _State) -> None:
    """Goes on after an exception from outside, such as of `PyThreadState_SetAsyncExc`, until the end of the events."""
    while True:
        try:
            run(state)
        except BaseException as error:
            say("the thread for the events of quorlock goes on after an exception", error)
        else:
            return


def say(what: str, error: BaseException | None = None) -> None:
    """Logs a warning, or an exception, and writes it to stderr if logging fails."""
    try:
        if error is None:
            _LOG.warning("%s", what)
        else:
            _LOG.error("%s: %r", what, error, exc_info=error)
    except BaseException as failed:
        with contextlib.suppress(BaseException):
            print(f"quorlock: {what}: {error!r}; logging that failed: {failed!r}", file=sys.stderr)


def _log_records(state: _State) -> None:
    said: object = None
    while True:
        busy = state.now_and_then or state.callbacks or state.runs or _waits
        records = _quorlock.next_records(_NOW_AND_THEN_SECONDS if busy else 3600.0)
        if records is None:
            return
        if not records:
            for work in list(state.now_and_then):
                try:
                    work()
                except BaseException as error:
                    # A dictionary of loops may have changed meanwhile. The next time will do.
                    _LOG.debug("upkeep failed: %r", error)
        for level, target, text in records:
            try:
                _LOG.log(level, text, extra={"target": target})
            except BaseException as error:
                say("a handler or filter of logging failed", error)
        runs = state.runs
        if runs is not None and runs is not said and time.monotonic() - runs[0] >= _NOW_AND_THEN_SECONDS:
            said = runs
            say(runs[1])


def _call_back(state: _State) -> None:
    while state.called or _quorlock.next_calls(3600.0, state.called):
        while state.called:
            number, what = state.called[0]
            if isinstance(what, Waiting):
                if (lock := _waits.get(number)) is not None:
                    _call(state, "the wait for", lock.name, lock._on_wait, what)
                # Not kept until the next one.
                del lock
            elif number in state.callbacks:
                _call(state, "the loss of", *state.callbacks[number], what)
                del state.callbacks[number]
            del state.called[0]


def _call(state: _State, event: str, resource: str, callback: Callable[[Any], object], what: str | Waiting) -> None:
    name = f"{event} `{_quorlock.printable(resource)}`"
    state.runs = (
        time.monotonic(),
        f"{callback!r}, called for {name}, still runs, and all other callbacks wait for it",
    )
    try:
        if inspect.iscoroutine(made := callback(what)):
            made.close()
            say(
                f"a callback for {name} returned a coroutine, which does not run: callbacks run on a thread, so use "
                "loop.call_soon_threadsafe(), or await lease.lost.wait() in a task"
            )
    except SystemExit as error:
        say(
            f"a callback for {name} raised SystemExit, which ends no process on this thread: "
            "use lease.exit_on_lost(), or signal.raise_signal(signal.SIGTERM)",
            error,
        )
    except BaseException as error:
        say(f"a callback for {name} failed", error)
    finally:
        state.runs = None


@atexit.register
def _end() -> None:
    """Releases what is held, and ends the threads before the interpreter does: all in a second."""
    _quorlock.begin_exit()
    ends = time.monotonic() + EXIT_SECONDS
    try:
        _quorlock.close_all(list(_connections), EXIT_SECONDS)
    except Exception:
        _LOG.debug("closing at exit failed", exc_info=True)
    for work in _after_closing:
        work()
    _quorlock.stop_events()
    for thread in _state.threads.values():
        thread.join(max(0.0, ends - time.monotonic()))


def _before_fork() -> None:
    _release_at_the_end_of_children()
    _quorlock.before_fork()


def _release_at_the_end_of_children() -> None:
    """Releases at the end of processes of `multiprocessing`, and of Celery's copy of it, which end without `atexit`.
    They forget what they have inherited, and then call what was registered for after a fork."""
    for name in "multiprocessing", "billiard":
        util, process = sys.modules.get(f"{name}.util"), sys.modules.get(f"{name}.process")
        if util is None or process is None or name in _followed:
            continue
        end = functools.partial(_release_at_the_end, util)
        # It is called for as long as this object lasts.
        _followed[name] = end
        util.register_after_fork(end, lambda end: end())
        if getattr(process, "parent_process", lambda: None)() is not None:
            end()


def _release_at_the_end(util: ModuleType) -> None:
    # The last of all: what others do at the end may need their locks.
    util.Finalize(None, _end, exitpriority=-100)


#: The packages whose processes release at their end, each with what does it.
_followed: dict[str, Callable[[], None]] = {}


def _after_fork_in_child() -> None:
    _quorlock.after_fork_in_child()
    forget_parent()


def forget_parent() -> None:
    """Begins anew in a child: the threads are the parent's."""
    global _state
    parent = _state
    # The lock of the parent may be held by a thread that does not exist here.
    _state = _State()
    _state.counts, _state.now_and_then = parent.counts, parent.now_and_then


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_quorlock.after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )

# A child that was spawned may have imported it before.
_release_at_the_end_of_children()
