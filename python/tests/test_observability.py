"""Logs and metrics."""

from __future__ import annotations

import asyncio
import logging

import pytest

import quorlock
from programs import SOON, eventually, run
from quorlock.testing import Servers, servers


def test_warnings_are_logged_by_the_logger_quorlock(caplog: pytest.LogCaptureFixture) -> None:
    with servers(3) as nodes, nodes.connect() as q:
        with q.lock("logged"):
            nodes.kill(0)
            address = nodes.urls[0].split("@")[1]
            eventually(
                "a warning",
                lambda: any(
                    record.name == "quorlock" and record.levelno == logging.WARNING and address in record.message
                    for record in caplog.records
                ),
            )


def test_warnings_that_trickle_in_are_left_out_for_a_while_only(nodes: Servers) -> None:
    """Nothing else of the program wakes the thread that logs, and that has logged each before the next one comes."""
    ended = run(
        nodes,
        """
import logging, warnings
warnings.simplefilter("ignore")
texts = []
class Keep(logging.Handler):
    def emit(self, record): texts.append(record.getMessage())
logging.getLogger("quorlock").addHandler(Keep())
def until(look):
    ends = time.monotonic() + 60
    while not look() and time.monotonic() < ends: time.sleep(.01)
    return look()
def dropped(): return sum("was dropped" in text and "left out" not in text for text in texts)
q = connect()
begun = time.monotonic()
for number in range(20):
    lease = q.lock(f"trickles {number}").acquire()
    del lease
    assert until(lambda: dropped() > number), texts
if time.monotonic() - begun < 5:
    lease = q.lock("trickles more").acquire()
    del lease
    print(until(lambda: any("1 more records like this one were left out" in text for text in texts)))
else:
    # Too slow a machine: there was a window after another.
    print(True)
lease = q.lock("trickles later").acquire()
del lease
print(until(lambda: any("`trickles later` was dropped" in text for text in texts)))
""",
    )
    assert ended.stdout.split() == ["True", "True"], ended.stderr


def test_debug_records_are_collected_only_if_they_are_asked_for(
    q: quorlock.Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    with q.lock("quiet"):
        pass
    with caplog.at_level(logging.DEBUG, logger="quorlock"):
        with q.lock("seen"):
            pass
        eventually("a record", lambda: "seen" in caplog.text)
    assert "quiet" not in caplog.text


def test_a_callback_that_fails_is_logged_and_the_next_is_called(
    q: quorlock.Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def fail(reason: str) -> None:
        raise ZeroDivisionError

    with q.lock("callbacks") as lease:
        lease.on_lost(fail)
        lease.on_lost(lambda reason: asyncio.sleep(0))
        lease.on_lost(seen.append)
    assert eventually("the callback", lambda: seen) == ["released"]
    eventually("the log", lambda: "ZeroDivisionError" in caplog.text)
    assert "returned a coroutine, which does not run: callbacks run on a thread" in caplog.text


def test_nothing_that_a_callback_or_a_filter_does_ends_the_thread_of_events(nodes: Servers) -> None:
    """One that exits, one that interrupts, one that blocks, and a filter of logging that raises."""
    ended = run(
        nodes,
        """
import asyncio
import logging
from quorlock import _events
_events._NOW_AND_THEN_SECONDS = 0.2
class Broken(logging.Filter):
    def filter(self, record):
        if "broken" in record.getMessage(): raise RuntimeError("bad filter")
        if "exits" in record.getMessage(): raise SystemExit(5)
        return True
said = []
class Handler(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
log = logging.getLogger("quorlock")
log.addFilter(Broken())
log.addHandler(Handler())
log.propagate = False
seen = []
def exits(reason): sys.exit(3)
def interrupts(reason): raise KeyboardInterrupt
def fails(reason): raise ZeroDivisionError
blocked = threading.Event()
def blocks(reason):
    while not any("blocks" in text and "still runs" in text for text in said): time.sleep(0.01)
    seen.append("unblocked")
def until(what):
    ends = time.monotonic() + 30
    while not what() and time.monotonic() < ends: time.sleep(0.01)
    assert what(), said
q = connect()
# A record of a name that breaks the filter, and one that breaks it worse.
for name in ["broken", "exits"]:
    q.lock(name).acquire()
for callback in [exits, interrupts, fails, blocks, seen.append]:
    with q.lock("seen") as lease:
        lease.on_lost(callback)
until(lambda: seen == ["unblocked", "released"])
q.lock("dropped").acquire()
until(lambda: any("dropped" in text for text in said))
for words in ["raised SystemExit, which ends no process on this", "KeyboardInterrupt", "ZeroDivisionError"]:
    assert any(words in text for text in said), (words, said)
print("seen")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "seen\n"
    # Logging them failed.
    assert ended.stderr.count("a handler or filter of logging failed") == 0
    assert "bad filter" not in ended.stdout


def test_an_exception_from_outside_does_not_end_the_thread_of_events(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import ctypes, logging
seen = []
q = connect()
lock = q.lock("seen")
with lock as lease: lease.on_lost(seen.append)
def until(what):
    ends = time.monotonic() + 30
    while not what() and time.monotonic() < ends: time.sleep(0.01)
    assert what()
until(lambda: len(seen) == 1)
threads = [thread for thread in threading.enumerate() if thread.name.startswith("quorlock ")]
assert len(threads) == 2, threads
for thread in threads:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
for _ in range(2):
    with lock as lease: lease.on_lost(seen.append)
until(lambda: len(seen) == 3)
print("seen")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "seen\n"


def test_an_outage_with_many_leases_is_told_in_few_records(caplog: pytest.LogCaptureFixture) -> None:
    with servers(1) as nodes, nodes.connect() as q:
        leases = [q.lock(f"many {number}", ttl=1, fencing=False).acquire() for number in range(200)]
        nodes.kill(0)
        for lease in leases:
            assert lease.lost.wait(SOON)
        eventually("what was left out", lambda: "more records like this one were left out" in caplog.text)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    # Those that are alike are counted anew after five seconds, and a busy machine takes longer.
    spans = 1 + (warnings[-1].created - warnings[0].created) / 5
    assert len(warnings) < 100 * spans, len(warnings)


def test_a_child_that_uses_what_it_inherited_logs(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import asyncio
import logging
logging.basicConfig(format="%(message)s")
logged = threading.Event()
class Watch(logging.Handler):
    def emit(self, record): logged.set()
logging.getLogger().addHandler(Watch())
lock = connect().lock("inherited")
child = os.fork()
if child == 0:
    lock.acquire()
    logged.wait(60)
    sys.exit(0)
os.waitpid(child, 0)
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert "the lease of `inherited` was dropped" in ended.stderr


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


def test_the_oldest_waiter_of_a_child_is_its_own_though_its_parent_waited_at_the_fork(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import quorlock.metrics
quorlock.metrics.enable()
def oldest():
    name = "quorlock_oldest_waiter_start_time_seconds "
    return float(quorlock.metrics.text().split("\\n" + name)[1].split()[0])
def wait_for(name):
    waits = q.lock(name, wait=None).acquire
    threading.Thread(target=waits, daemon=True).start()
    ends = time.monotonic() + 20
    while oldest() <= begun and time.monotonic() < ends: time.sleep(.01)
q, begun = connect(), 0
held = q.lock("held by the parent").acquire()
wait_for("held by the parent")
of_parent = begun = oldest()
child = os.fork()
if child == 0:
    q.health()  # connects
    print(oldest())
    wait_for("held by the parent")
    print(oldest() > of_parent)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(oldest() == of_parent)
held.release()
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "0.0\nTrue\nTrue\n"


def test_without_metrics_nothing_is_counted(nodes: Servers) -> None:
    ended = run(
        nodes, 'q = connect()\nwith q.lock("uncounted"): pass\nfrom quorlock import metrics; print(metrics.text())'
    )
    assert ended.stdout.strip() == ""


def test_a_lost_lock_is_told_within_its_ttl_whatever_the_interpreter_does() -> None:
    with servers(1) as nodes, nodes.connect() as q:
        with pytest.raises(quorlock.Lost), q.lock("seen", ttl=1) as lease:
            nodes.kill(0)
            assert lease.lost.wait(SOON)
            # From here on `check` says so without asking anyone.
            lease.check()


def test_names_are_listed_and_nodes_are_examined() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        with q.lock("listed/2"), q.lock("listed/1"), q.lock("another"):
            assert q.names("listed/") == ["listed/1", "listed/2"]
            assert q.names().failed == {}
        nodes.command(1, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")

        async def on_a_loop() -> tuple[quorlock.Names, list[quorlock.Finding]]:
            async with nodes.aio_connect() as aio:
                return await aio.names("listed/"), await aio.doctor()

        names, findings = asyncio.run(on_a_loop())
        assert names == []
        assert {finding.check for finding in findings} == {finding.check for finding in q.doctor()}
        (evicts,) = [finding for finding in findings if "allkeys-lru" in finding.evidence]
        assert (evicts.severity, evicts.node) == ("unsafe", q.health()[1].node)
        assert "noeviction" in evicts.cure
        assert str(evicts) == f"unsafe: {evicts.node} {evicts.evidence}; {evicts.cure}"
        nodes.kill(0)
        assert list(q.names("listed/").failed) == [q.health()[0].node]


def test_warnings_are_what_nodes_have_said() -> None:
    with servers(1) as nodes:
        nodes.command(0, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
        with nodes.connect() as q:
            assert q.warnings() == []
            with q.lock("warned"):
                assert [finding.severity for finding in q.warnings()] == ["unsafe"]
