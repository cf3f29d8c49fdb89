"""APScheduler 3.x in several processes, of which one runs the jobs.

scheduler = BackgroundScheduler()
leadership = elect(scheduler, q.election("scheduler", ttl=10))
scheduler.start()
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN, EVENT_SCHEDULER_STARTED

import quorlock
from quorlock import aio
from quorlock.errors import Closed, Lost, QuorlockError

__all__ = ["Leadership", "elect"]

_LOG = logging.getLogger("quorlock")

#: The seconds after an error until the next campaign.
_RETRY = 1.0

#: How long a shutdown waits for the release.
_STOP_SECONDS = 5.0


def elect(scheduler: Any, election: quorlock.Election | aio.Election, value: str | None = None) -> Leadership:
    """Lets the scheduler run jobs only while this process leads the election. Call it before
    `scheduler.start()`, in each process; it works with all kinds of scheduler.

    It starts no job until elected, nor from shortly before the validity of the leadership ends. One that its
    user has paused stays paused. Jobs that run then are not interrupted: they call `check()` of what this
    returns before each side effect. Others wait for the TTL of the election after a crash.
    `scheduler.shutdown()` and the end of the interpreter resign.

    A job store in memory is one of each process. After a change of the leader, a run that was due before is
    dropped if it is older than the job's `misfire_grace_time` (1 s by default); with a longer one, it may run
    a second time.

    `value` is what the leader announces, `host:pid` by default.
    """
    return Leadership(scheduler, election, value or f"{socket.gethostname()}:{os.getpid()}")


class Leadership:
    """Whether this process leads, for jobs. Made by `elect`."""

    def __init__(self, scheduler: Any, election: quorlock.Election | aio.Election, value: str) -> None:
        self._scheduler, self._value = scheduler, value
        self._election = aio.Election(election._election)
        self._lease: aio.Lease | None = None
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None
        self._stopped = False
        self._lock = threading.Lock()
        # Every scheduler looks for jobs by this. It is not paused instead: whether it is, its user decides.
        process_jobs = scheduler._process_jobs
        scheduler._process_jobs = lambda: process_jobs() if self.leads else None
        scheduler.add_listener(self._started, EVENT_SCHEDULER_STARTED)
        scheduler.add_listener(lambda _: self.stop(), EVENT_SCHEDULER_SHUTDOWN)
        if scheduler.running:
            self._started(None)

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        lease = self._lease
        return lease is not None and not lease.lost.is_set()

    @property
    def lease(self) -> aio.Lease | None:
        """The leadership, while this process leads. It has the fencing token."""
        return self._lease

    def check(self) -> aio.Lease:
        """Returns the leadership. Raises `Lost` if this process does not lead. Call it right before each side effect
        of a job."""
        lease = self._lease
        if lease is None:
            raise Lost("this process does not lead", reason="released")
        lease.check()
        return lease

    def stop(self) -> None:
        """Resigns, and stops to campaign. The shutdown of the scheduler does this by itself."""
        with self._lock:
            self._stopped = True
            stop, thread = self._stop, self._thread
        if stop is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed already.
                stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)
        atexit.unregister(self.stop)

    def _started(self, _: object) -> None:
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="quorlock election", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._campaign())

    async def _campaign(self) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        with self._lock:
            if self._stopped:
                return
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        while True:
            try:
                lease = await self._election.campaign(self._value)
                # It cancels the body shortly before the validity ends.
                async with lease:
                    await self._lead(lease)
            except Closed:
                return
            except QuorlockError as error:
                _LOG.warning("%s; the scheduler starts no jobs", error)
                await asyncio.sleep(_RETRY)

    async def _lead(self, lease: aio.Lease) -> None:
        self._lease = lease
        try:
            if self._scheduler.running:
                self._scheduler.wakeup()
            await asyncio.Event().wait()
        finally:
            self._lease = None
