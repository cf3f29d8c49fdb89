"""Logs and metrics."""

from __future__ import annotations

import logging

import pytest

import quorlock
from programs import SOON, eventually, run
from quorlock.testing import Servers, servers


def test_warnings_are_logged_by_the_logger_quorlock(caplog: pytest.LogCaptureFixture) -> None:
    with servers(3) as nodes, nodes.connect() as q:
        with q.lock("logged"):
            nodes.kill(0)
            eventually(
                "a warning",
                lambda: any(
                    record.name == "quorlock" and record.levelno == logging.WARNING and nodes.urls[0] in record.message
                    for record in caplog.records
                ),
            )


def test_debug_records_are_collected_only_if_they_are_asked_for(
    q: quorlock.Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    with q.lock("quiet"):
        pass
    with caplog.at_level(logging.DEBUG, logger="quorlock"):
        with q.lock("told"):
            pass
        eventually("a record", lambda: "told" in caplog.text)
    assert "quiet" not in caplog.text


def test_a_callback_that_fails_is_logged_and_the_next_is_called(
    q: quorlock.Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail(reason: str) -> None:
        raise ZeroDivisionError

    with q.lock("callbacks") as lease:
        lease.on_lost(fail)
        lease.on_lost(told.append)
    assert eventually("the callback", lambda: told) == ["released"]
    eventually("the log", lambda: "ZeroDivisionError" in caplog.text)


def test_metrics_are_those_of_the_program_and_of_each_process(nodes: Servers) -> None:
    pytest.importorskip("prometheus_client")
    ended = run(
        nodes,
        """
from prometheus_client import REGISTRY, generate_latest
from quorlock import metrics
REGISTRY.register(metrics.Collector())
q = connect()
def acquisitions():
    return REGISTRY.get_sample_value("quorlock_acquisitions_total", {"outcome": "acquired"})
for _ in range(3):
    with q.lock("counted"): pass
assert b"quorlock_hold_duration_seconds_bucket" in generate_latest()
print("parent:", acquisitions())
child = os.fork()
if child == 0:
    with q.lock("counted"): pass
    print("child:", acquisitions())
    os._exit(0)
os.waitpid(child, 0)
print("parent:", acquisitions())
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "parent: 3\nchild: 1\nparent: 3\n"


def test_without_metrics_nothing_is_counted(nodes: Servers) -> None:
    ended = run(
        nodes, 'q = connect()\nwith q.lock("uncounted"): pass\nfrom quorlock import metrics; print(metrics.text())'
    )
    assert ended.stdout.strip() == ""


def test_a_lost_lock_is_told_within_its_ttl_whatever_the_interpreter_does() -> None:
    with servers(1) as nodes, nodes.connect() as q:
        with pytest.raises(quorlock.Lost), q.lock("told", ttl=1) as lease:
            nodes.kill(0)
            assert lease.lost.wait(SOON)
            # From here on `check` says so without asking anyone.
            lease.check()
