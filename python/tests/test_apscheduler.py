"""APScheduler in several processes, of which one runs the jobs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import quorlock
from programs import SOON, eventually
from quorlock.testing import Servers, servers

schedulers = pytest.importorskip("apscheduler.schedulers.background")

from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: E402
from apscheduler.schedulers.blocking import BlockingScheduler  # noqa: E402

from quorlock.apscheduler import elect  # noqa: E402

PROGRAM = """
import os, sys, time, quorlock
from apscheduler.schedulers.background import BackgroundScheduler
from quorlock.apscheduler import elect

name, out, *nodes = sys.argv[1:]
q = quorlock.connect(nodes, restart_guard=False)
scheduler = BackgroundScheduler()
leadership = elect(scheduler, q.election(name, ttl=3))

def job():
    leadership.check()
    with open(out, "a") as file:
        file.write(f"{os.getpid()}\\n")

scheduler.add_job(job, "interval", seconds=0.1)
scheduler.start()
sys.stdin.read()
"""


def until(condition: Callable[[], object]) -> None:
    eventually("what is waited for", condition)


def runs(out: Path) -> list[int]:
    return [int(line) for line in out.read_text().split()] if out.exists() else []


def test_jobs_run_in_one_process_and_in_another_when_it_is_killed(nodes: Servers, tmp_path: Path) -> None:
    out, name = tmp_path / "runs", uuid.uuid4().hex
    command = [sys.executable, "-c", PROGRAM, name, str(out), *nodes.urls]
    processes = {p.pid: p for p in (subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2))}
    try:
        until(lambda: len(runs(out)) >= 15)
        leader = runs(out)[0]
        assert set(runs(out)) == {leader}
        processes[leader].kill()
        processes[leader].wait()
        before = len(runs(out))
        until(lambda: len(runs(out)) >= before + 5)
        (other,) = set(processes) - {leader}
        assert set(runs(out)[before:]) == {other}
        # The end of the interpreter resigns, and leaves no thread that hangs.
        processes[other].communicate(timeout=SOON)
        assert processes[other].returncode == 0
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_a_leader_that_is_cut_off_stops_before_its_validity_ends_and_leads_again() -> None:
    ran: list[float] = []
    with servers(3) as nodes, nodes.connect(max_ttl=10) as q:
        scheduler = schedulers.BackgroundScheduler()
        # A tenth of it is left when the scheduler is to stop.
        leadership = elect(scheduler, q.election("cut off", ttl=10))
        scheduler.add_job(lambda: ran.append(time.monotonic()), "interval", seconds=0.05)
        scheduler.start()
        try:
            until(lambda: len(ran) >= 3)
            lease = leadership.lease
            assert lease is not None
            ends, left = 0.0, list[float]()
            look = scheduler._process_jobs

            def looked() -> object:
                nonlocal ends
                if leadership.leads:
                    ends = time.monotonic() + lease.remaining
                else:
                    left.append(ends - time.monotonic())
                return look()

            scheduler._process_jobs = looked
            for index in range(3):
                nodes.kill(index)
            until(lambda: left)
            assert left[0] > 0
            until(lease.lost.is_set)
            with pytest.raises(quorlock.Lost):
                leadership.check()
            before = len(ran)
            time.sleep(0.3)
            assert len(ran) == before
            scheduler.pause()
            scheduler.resume()
            assert not leadership.leads
            time.sleep(0.3)
            assert len(ran) == before
            for index in range(3):
                nodes.restart(index)
            until(lambda: len(ran) > before)
        finally:
            scheduler.shutdown()
    assert not any(thread.name == "quorlock election" for thread in threading.enumerate())


def test_an_election_resumes_no_scheduler_that_its_user_has_paused(q: quorlock.Coordinator) -> None:
    ran: list[float] = []
    scheduler = schedulers.BackgroundScheduler()
    leadership = elect(scheduler, q.election(uuid.uuid4().hex))
    scheduler.add_job(lambda: ran.append(time.monotonic()), "interval", seconds=0.02)
    scheduler.start(paused=True)
    try:
        until(lambda: leadership.leads)
        time.sleep(0.2)
        assert not ran
        scheduler.resume()
        until(lambda: ran)
    finally:
        scheduler.shutdown()


def test_a_shutdown_lets_another_process_lead_at_once(q: quorlock.Coordinator) -> None:
    name = uuid.uuid4().hex
    first, second = schedulers.BackgroundScheduler(), schedulers.BackgroundScheduler()
    one, two = elect(first, q.election(name)), elect(second, q.election(name))
    first.start()
    until(lambda: one.leads)
    second.start()
    assert not two.leads
    first.shutdown()
    assert not one.leads
    until(lambda: two.leads)
    second.shutdown()
    third = schedulers.BackgroundScheduler()
    elect(third, q.election(name))
    third.start()
    third.shutdown()
    assert not any(thread.name == "quorlock election" for thread in threading.enumerate())


def test_an_asyncio_and_a_blocking_scheduler_run_jobs_too(q: quorlock.Coordinator) -> None:
    ran = threading.Event()

    async def main() -> None:
        scheduler = AsyncIOScheduler()
        elect(scheduler, q.election("loop"))
        scheduler.add_job(ran.set, "interval", seconds=0.05)
        scheduler.start()
        await asyncio.to_thread(ran.wait, SOON)
        scheduler.shutdown()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert ran.is_set()
    blocking = BlockingScheduler()
    elect(blocking, q.election("loop"))
    blocking.add_job(lambda: blocking.shutdown(wait=False), "interval", seconds=0.05)
    blocking.start()
    # The thread of the job shuts it down, while start() returns.
    until(lambda: not any(thread.name == "quorlock election" for thread in threading.enumerate()))
