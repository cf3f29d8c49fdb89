"""Celery beat in several processes, of which one sends the tasks."""

from __future__ import annotations

import subprocess
import sys
import types
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from programs import SOON, eventually, set_up_django
from quorlock.testing import Servers, servers

celery = pytest.importorskip("celery")

import quorlock.celery  # noqa: E402

# Beat with a broker in memory, which notes each task that it sends. Its handler of signals closes that broker, which
# would wait for itself in the middle of a task.
PROGRAM = """
import os, sys
from celery import Celery
from celery.signals import before_task_publish
from kombu.transport import memory

del memory.Channel.close

name, out, schedule, *nodes = sys.argv[1:]
app = Celery("app", broker="memory://")
app.conf.update(
    quorlock_nodes=nodes, quorlock_name=name, quorlock_settings={"ttl": 3, "restart_guard": False},
    beat_schedule={"often": {"task": "often", "schedule": 0.1}},
)

@before_task_publish.connect(weak=False)
def note(**_):
    with open(out, "a") as file:
        file.write(f"{os.getpid()}\\n")

app.Beat(scheduler_cls="quorlock.celery:Scheduler", schedule=schedule, quiet=True).run()
"""


def until(condition: Callable[[], object]) -> None:
    eventually("what is waited for", condition)


def sent(out: Path) -> list[int]:
    return [int(line) for line in out.read_text().split()] if out.exists() else []


def test_one_beat_sends_and_another_takes_over_when_it_is_killed(nodes: Servers, tmp_path: Path) -> None:
    out, name = tmp_path / "sent", uuid.uuid4().hex
    beats = {}
    for number in range(2):
        schedule = str(tmp_path / f"schedule{number}")
        command = [sys.executable, "-c", PROGRAM, name, str(out), schedule, *nodes.urls]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        beats[process.pid] = process
    try:
        until(lambda: len(sent(out)) >= 15)
        leader = sent(out)[0]
        assert set(sent(out)) == {leader}
        beats[leader].kill()
        beats[leader].wait()
        before = len(sent(out))
        until(lambda: len(sent(out)) >= before + 5)
        (other,) = set(beats) - {leader}
        assert set(sent(out)[before:]) == {other}
        beats[other].terminate()
        assert beats[other].wait(SOON) == 0
    finally:
        for process in beats.values():
            process.kill()
            process.wait()


def scheduler(nodes: Servers, path: Path, name: str, kind: type = quorlock.celery.Scheduler, **conf: Any) -> Any:
    app = celery.Celery("app", broker="memory://", set_as_current=False)
    app.conf.update(
        quorlock_nodes=nodes.urls,
        quorlock_name=name,
        quorlock_settings={"ttl": 1, "max_ttl": 1, "restart_guard": False},
        beat_schedule={"often": {"task": "often", "schedule": 0.05}},
        **conf,
    )
    made = kind(app=app, schedule_filename=str(path))
    made.sent = []
    made.send_task = lambda *_, **__: made.sent.append(made._lease is not None and made._lease.remaining)
    return made


def test_a_beat_that_is_cut_off_stops_sending_before_its_validity_ends_and_leads_again(tmp_path: Path) -> None:
    with servers(3) as nodes:
        beat = scheduler(nodes, tmp_path / "schedule", "cut off")
        until(lambda: beat.tick() is None or len(beat.sent) >= 3)
        lease = beat._lease
        for index in range(3):
            nodes.kill(index)
        until(lambda: beat.tick() is None or lease.lost.is_set())
        assert min(beat.sent) > 0
        before = len(beat.sent)
        beat.tick()
        entry = beat.schedule["often"]
        assert beat.apply_async(entry) is None
        assert len(beat.sent) == before
        for index in range(3):
            nodes.restart(index)
        until(lambda: beat.tick() is None or len(beat.sent) > before)
        beat.close()


def test_a_closed_beat_lets_another_lead_which_sends_nothing_again(nodes: Servers, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    first, second = (scheduler(nodes, tmp_path / str(number), name) for number in range(2))
    until(lambda: first.tick() is None or first.sent)
    until(lambda: second.tick() is None or second.schedule["often"].total_run_count >= 3)
    assert not second.sent
    first.close()
    first.close()
    until(lambda: second.tick() is None or second.sent)
    second.close()


def test_settings_of_django_have_the_prefix_of_celery(nodes: Servers, tmp_path: Path) -> None:
    app = celery.Celery("app", broker="memory://", set_as_current=False)
    settings = types.SimpleNamespace(
        CELERY_QUORLOCK_NODES=nodes.urls,
        CELERY_QUORLOCK_NAME="beat of Django",
        CELERY_QUORLOCK_SETTINGS={"restart_guard": False},
    )
    app.config_from_object(settings, namespace="CELERY")
    beat = quorlock.celery.Scheduler(app=app, schedule_filename=str(tmp_path / "schedule"))
    until(lambda: beat.tick() is None or beat.leads)
    with nodes.connect() as q:
        assert q.lock("beat of Django").inspect().holder is not None
    beat.close()


def test_a_scheduler_of_django_sends_only_while_it_leads_and_knows_what_the_last_leader_has_sent(
    nodes: Servers, tmp_path: Path
) -> None:
    pytest.importorskip("django_celery_beat")
    set_up_django()
    from django_celery_beat.models import IntervalSchedule, PeriodicTask
    from django_celery_beat.schedulers import DatabaseScheduler

    hourly, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    tasks = ["an hourly task", "another hourly task"]
    for name in tasks:
        due = datetime.now(timezone.utc) - timedelta(hours=2)
        PeriodicTask.objects.create(name=name, task=name, interval=hourly, last_run_at=due)
    kind = type("Combined", (quorlock.celery.Leading, DatabaseScheduler), {})
    first, second = (scheduler(nodes, tmp_path / "unused", "in Django", kind) for _ in range(2))
    for beat in (first, second):
        beat.names = []
        beat.send_task = lambda name, *_, _names=beat.names, **__: _names.append(name)
        # Each knows the tasks as they are before any was sent.
        assert set(tasks) <= set(beat.schedule)
    until(lambda: first.tick() is None or set(tasks) <= set(first.names))
    second.tick()
    assert not second.names
    # A process that is killed saves nothing.
    first._lease.release()
    until(lambda: second.tick() is None or second.names.count("often") >= 3)
    assert not set(tasks) & set(second.names)
    first.names.clear()
    first.tick()
    assert not first.names
    first.close()
    second.close()


def test_a_task_of_django_that_is_due_when_the_lead_ends_is_sent_by_the_next_leader(
    nodes: Servers, tmp_path: Path
) -> None:
    pytest.importorskip("django_celery_beat")
    set_up_django()
    from django_celery_beat.models import IntervalSchedule, PeriodicTask
    from django_celery_beat.schedulers import DatabaseScheduler

    hourly, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    due = datetime.now(timezone.utc) - timedelta(hours=2)
    task = PeriodicTask.objects.create(name="refused", task="refused", interval=hourly, last_run_at=due)

    class Combined(quorlock.celery.Leading, DatabaseScheduler):
        def reserve(self, entry: Any) -> Any:
            reserved = super().reserve(entry)
            if entry.name == "refused" and not refused:
                refused.append(entry)
                self._lease.release()
            return reserved

    refused: list[Any] = []
    beat = scheduler(nodes, tmp_path / "unused", "refused in Django", Combined)
    names: list[str] = []
    beat.send_task = lambda name, *_, **__: names.append(name)
    until(lambda: beat.tick() is None or refused)
    assert "refused" not in names
    # As when the process ends.
    beat.sync()
    task.refresh_from_db()
    assert (task.last_run_at, task.total_run_count) == (due, 0)
    # What was left to save is older than what another leader has saved.
    beat._dirty.add("refused")
    until(lambda: beat.tick() is None or "refused" in names)
    task.refresh_from_db()
    assert (names.count("refused"), task.total_run_count) == (1, 1)
    beat.close()


def test_redbeat_sends_only_while_it_leads(tmp_path: Path) -> None:
    redbeat = pytest.importorskip("redbeat")
    kind = type("Combined", (quorlock.celery.Leading, redbeat.RedBeatScheduler), {})
    with servers(1) as nodes:
        conf = {"redbeat_redis_url": nodes.urls[0], "redbeat_lock_key": None}
        first, second = (scheduler(nodes, tmp_path / "unused", "redbeat", kind, **conf) for _ in range(2))
        assert first.lock_key is None
        until(lambda: first.tick() is None or len(first.sent) >= 2)
        second.tick()
        assert not second.sent
        first.close()
        until(lambda: second.tick() is None or second.sent)
        second.close()
