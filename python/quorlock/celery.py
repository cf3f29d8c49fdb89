"""Celery beat in several processes, of which one sends the tasks.

    celery -A app beat -S quorlock.celery:Scheduler

The configuration of the app has `quorlock_nodes` (else what `quorlock.connect()` reads), `quorlock_name`
("celery-beat"), and `quorlock_settings`, a dict of keyword arguments for `quorlock.connect`. In the settings of Django
these are `CELERY_QUORLOCK_NODES` and so on, with the namespace `CELERY`.

With a schedule that all processes share, that of django-celery-beat, or of RedBeat, whose own lock is switched off by
`redbeat_lock_key = None`:

    class Scheduler(quorlock.celery.Leading, DatabaseScheduler):
        pass
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from celery.beat import PersistentScheduler

import quorlock
from quorlock.errors import QuorlockError

__all__ = ["Leading", "Scheduler"]

_LOG = logging.getLogger("quorlock")

#: The seconds between two attempts to become the leader.
_RETRY = 1.0


class Leading:
    """Lets a scheduler of beat send tasks only while it leads. It comes before the scheduler among the base
    classes.

    This one is for schedulers with a schedule that all processes share, as those of django-celery-beat and RedBeat.
    What is due between two leaders is sent by the second, which knows what the first has sent.
    """

    app: Any
    _tasks_since_sync: int
    _q: quorlock.Coordinator | None = None
    _lease: quorlock.Lease | None = None
    _margin = 0.0

    @property
    def leads(self) -> bool:
        """Whether this process leads, with a margin for the time that sending a task takes."""
        return self._lease is not None and self._lease.remaining > self._margin

    def tick(self, *arguments: Any, **keywords: Any) -> float:
        """Sends what is due while this process leads."""
        if self._lead():
            interval: float = super().tick(*arguments, **keywords)  # type: ignore[misc]
            return interval
        return _RETRY

    def apply_async(self, entry: Any, *arguments: Any, **keywords: Any) -> Any:
        """Sends one task, if this process leads."""
        if self.leads:
            return super().apply_async(entry, *arguments, **keywords)  # type: ignore[misc]
        _LOG.warning("%s is not sent: this process no longer leads", entry.name)
        # django-celery-beat has noted it as sent, and would save that.
        getattr(self, "_dirty", set()).discard(entry.name)
        return None

    def should_sync(self) -> bool:
        """Whether to save what was sent: after each task, since another process may lead before the next."""
        return self._tasks_since_sync > 0 or bool(super().should_sync())  # type: ignore[misc]

    def close(self) -> None:
        """Lets another process lead."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            q, self._q = self._q, None
            if q is not None:
                q.close()
            self._lease = None

    def _lead(self) -> bool | None:
        """Whether this process leads. `None` if no one is known to."""
        if self.leads:
            return True
        if self._lease is not None:
            _LOG.warning("%r: this process no longer leads, and sends no tasks", self._lease)
            lease, self._lease = self._lease, None
            with contextlib.suppress(QuorlockError):
                lease.release()
        try:
            if self._q is None:
                settings = self.app.conf.get("quorlock_settings") or {}
                self._q = quorlock.connect(self.app.conf.get("quorlock_nodes"), **settings)
            self._lease = self._q.lock(self.app.conf.get("quorlock_name") or "celery-beat").try_acquire()
        except quorlock.ConfigError:
            raise
        except QuorlockError as error:
            _LOG.warning("%s; this process sends no tasks", error)
            return None
        if self._lease is None:
            return False
        _LOG.info("this process leads, and sends the tasks")
        # Beat begins with the schedule as it is now, and that of django-celery-beat reads it again. It saves first what
        # was left to save, which may be older than what others have saved since.
        getattr(self, "_dirty", set()).clear()
        self._heap, self._initial_read = None, True
        self._margin = min(1.0, self._lease.remaining / 10)
        return True


class Scheduler(Leading, PersistentScheduler):  # type: ignore[misc]
    """The default scheduler of beat, which sends tasks only while it leads. Each process needs a schedule
    file of its own (`-s`).

    What is due while another process leads is counted as sent, so that a new leader does not send it again. A
    task that is due between a crash and the end of the TTL may thus not be sent.
    """

    def should_sync(self) -> bool:
        """Whether to save the schedule, which is that of this process: every three minutes, as beat does."""
        return bool(PersistentScheduler.should_sync(self))

    def tick(self, *arguments: Any, **keywords: Any) -> float:
        """Sends what is due while this process leads, and skips it while another does."""
        leads = self._lead()
        if leads is None:
            return _RETRY
        interval: float = PersistentScheduler.tick(self, *arguments, **keywords)
        return interval if leads else min(interval, _RETRY)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Sends one task, if this process leads."""
        if self.leads:
            super().apply_entry(entry, producer=producer)
        else:
            _LOG.debug("%s is skipped: another process leads", entry.name)
