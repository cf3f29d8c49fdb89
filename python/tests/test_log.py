"""The log of a lock: who held it before."""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from os import getpid
from pathlib import Path

import pytest

import quorlock
import quorlock.aio
from programs import SOON, Face, eventually
from quorlock.testing import Servers, servers


def read(face: Face, name: str, count: int) -> quorlock.HoldLog:
    """The log, as soon as each node has this number of holds: no caller waits until they are written."""
    q, done = face

    def complete() -> quorlock.HoldLog | None:
        log: quorlock.HoldLog = done(q.lock(name).log())
        return log if len(log) >= count and all(hold.nodes == 5 for hold in log) else None

    return eventually(f"{count} entries of `{name}`", complete)


def test_the_log_has_who_held_a_lock_from_when_and_for_how_long(face: Face, nodes: Servers) -> None:
    name = f"logged {type(face[0]).__module__}"
    before, halfway = datetime.now(timezone.utc), timedelta(seconds=0.2)
    with nodes.connect(log=9, label="the first") as q, q.lock(name) as first:
        assert not first.lost.wait(halfway)
    with nodes.connect(log=9, label="the second") as q, q.lock(name, shared=True, fencing=False) as second:
        pass
    after = datetime.now(timezone.utc)

    log = read(face, name, 2)
    assert [hold.context.partition(" ")[2] for hold in log] == ["the first", "the second"]
    assert {hold.context.partition(" ")[0] for hold in log} == {f"{socket.gethostname()}:{getpid()}"}
    assert [hold.fencing_token for hold in log] == [first.fencing_token, None]
    assert [hold.shared for hold in log] == [False, True]
    assert [hold.ended for hold in log] == ["released", "released"]
    assert log[0].id.encode() in first.token
    assert log[1].id.encode() in second.token
    assert before <= log[0].acquired < log[0].acquired + halfway < log[1].acquired <= after
    assert log[0].acquired.utcoffset() == timedelta(0)
    assert 0.2 <= log[0].held_for <= (after - before).total_seconds()
    assert (log.report.granted, log.report.needed) == (5, 3)
    assert str(log[0]).startswith(f"{log[0].acquired:%Y-%m-%d %H:%M:%S}+00:00, {log[0].context} for ")
    assert str(log[0]).endswith(": released")
    assert "the second (shared) for " in str(log[1])
    copied = pickle.loads(pickle.dumps(log))
    assert (copied, copied.report) == (log, log.report)


def expire(q: quorlock.Coordinator, name: str) -> None:
    lease = q.lock(name, ttl=0.3, renew=False).acquire()
    assert lease.lost.wait(SOON)


def outlast(q: quorlock.Coordinator, name: str) -> None:
    lease = q.lock(name, max_hold=0.1).acquire()
    assert lease.lost.wait(SOON)


def lose(q: quorlock.Coordinator, name: str) -> None:
    lease = q.lock(name, renew=False).acquire()
    q.lock(name).revoke(lease.token)
    with pytest.raises(quorlock.Lost):
        lease.release()


def retain(q: quorlock.Coordinator, name: str) -> None:
    q.lock(name).acquire().retain(10)


def close(q: quorlock.Coordinator, name: str) -> None:
    q.lock(name).acquire(keep=True)
    q.close()


def pass_on(q: quorlock.Coordinator, name: str) -> None:
    lock = q.lock(name)

    def work() -> None:
        for _ in range(20):
            with lock:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ENDS: dict[str, Callable[[quorlock.Coordinator, str], None]] = {
    "expired": expire,
    "max_hold": outlast,
    "quorum_lost": lose,
    "retained": retain,
    "closed": close,
    "passed_on": pass_on,
}


@pytest.mark.parametrize("ended", ENDS)
def test_the_log_has_how_a_hold_ended(ended: str, face: Face, nodes: Servers) -> None:
    name = f"ended {ended} {type(face[0]).__module__}"
    with nodes.connect(log=100) as q:
        ENDS[ended](q, name)
        log = read(face, name, 80 if ended == "passed_on" else 1)
        assert {hold.ended for hold in log} - {"released"} == {ended}


def test_a_client_logs_only_if_it_says_so_and_at_most_as_many(face: Face, nodes: Servers) -> None:
    name, (q, done) = f"in part {type(face[0]).__module__}", face
    off: list[dict[str, int]] = [{}, {"log": 0}]
    for settings in off:
        with nodes.connect(**settings) as other, other.lock(name):
            pass
        assert done(q.lock(name).log()) == []
    for label in ["a", "b", "c"]:
        with nodes.connect(log=2, label=label) as other, other.lock(name):
            pass
        eventually("its entry", lambda label=label: [h for h in read(face, name, 1) if h.context.endswith(label)])
    assert [hold.context[-2:] for hold in read(face, name, 2)] == [" b", " c"]
    with pytest.raises(quorlock.ConfigError, match="200"):
        nodes.connect(log=201)


def test_each_permit_has_a_log(face: Face, nodes: Servers) -> None:
    name = f"permits {type(face[0]).__module__}"
    with nodes.connect(log=9) as q, q.semaphore(name, 2) as permit:
        number = permit.permit
    assert read(face, f"{name}#{number}", 1)[0].fencing_token == permit.fencing_token


def test_an_election_has_a_log_of_its_leaders(face: Face, nodes: Servers) -> None:
    name = f"led {type(face[0]).__module__}"
    with nodes.connect(log=9, label="unseen") as q:
        q.election(name).campaign("http://10.0.0.7:8080").release()
    assert read(face, name, 1)[0].context.partition(" ")[2] == "http://10.0.0.7:8080"


def test_a_log_is_of_one_name_and_of_an_open_coordinator(face: Face) -> None:
    q, done = face
    with pytest.raises(quorlock.ConfigError, match=r"log\(\) is for a lock of one name"):
        done(q.lock_all(["a", "b"]).log())
    lock = q.lock("closed")
    done(q.close())
    with pytest.raises(quorlock.Closed):
        done(lock.log())


def test_what_a_node_says_is_shown_safely(face: Face, nodes: Servers) -> None:
    name = f"{{hostile {type(face[0]).__module__}}}"
    with nodes.connect(log=9) as q, q.lock(name):
        pass
    read(face, name, 1)
    entry = "1 0123456789abcdef e 1 253402300799999999 253402300799999999 released h:1 \x1b[2J"
    for index in range(5):
        nodes.command(index, "ZADD", f"{name}::quorlock:log:holds", "9e18", entry)
    last = read(face, name, 2)[-1]
    assert last.context == "h:1 \x1b[2J"
    assert "\x1b" not in str(last)
    assert last.acquired == datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc)


def test_nodes_that_do_not_answer_are_in_the_report() -> None:
    async def on_a_loop() -> quorlock.HoldLog:
        async with nodes.aio_connect() as q:
            return await q.lock("outage").log()

    with servers(3) as nodes, nodes.connect(log=9) as q:
        with q.lock("outage"):
            pass
        eventually("all entries", lambda: [hold.nodes for hold in q.lock("outage").log()] == [3])
        nodes.kill(0)
        nodes.kill(2)
        for log in [q.lock("outage").log(), asyncio.run(on_a_loop())]:
            assert [hold.nodes for hold in log] == [1]
            assert log.report.granted < log.report.needed
            assert [vote.outcome for vote in log.report.votes] == ["failed", "granted", "failed"]


def test_nodes_that_keep_no_log_are_not_asked_and_alone_are_refused(nodes: Servers, tmp_path: Path) -> None:
    alone = f"sqlite:{tmp_path}/locks.db"
    with quorlock.connect(alone, log=9) as q:
        with q.lock("kept by none"):
            pass
        with pytest.raises(quorlock.ConfigError, match="does not support a log of the holds of a lock"):
            q.lock("kept by none").log()

    async def on_a_loop() -> None:
        async with quorlock.aio.connect(alone) as q:
            await q.lock("kept by none").log()

    with pytest.raises(quorlock.ConfigError, match="does not support a log of the holds of a lock"):
        asyncio.run(on_a_loop())
    program = Path(__file__).parents[2] / "crates/quorlock-exec/examples/node.py"
    with quorlock.connect([*nodes.urls[:2], f"exec:{sys.executable}?arg={program}"], restart_guard=False, log=9) as q:
        with q.lock("kept by some"):
            pass
        log = eventually("the entries", lambda: [hold for hold in q.lock("kept by some").log() if hold.nodes == 2])
        assert [hold.ended for hold in log] == ["released"]
        assert [vote.outcome for vote in q.lock("kept by some").log().report.votes] == ["granted", "granted", "skipped"]
