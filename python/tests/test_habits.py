"""What programs write that used another library of locks: it works here, or the error says what to write instead."""

from __future__ import annotations

import asyncio
import copy
import pickle
import signal
import time
from datetime import timedelta
from typing import Any

import pytest

import quorlock
from programs import Face, end, eventually, run, start
from quorlock import _habits
from quorlock.testing import Servers, servers

#: What to write on a lock `lock`, a lease `lease` of it and a coordinator `q`, and what the error says.
HABITS = {
    # threading, filelock, redis-py, tooz
    "lock.acquire(blocking=False)": "lock.try_acquire()",
    "lock.acquire(False)": "lock.try_acquire()",
    "lock.acquire(True, 5)": "q.lock(name, wait=5)",
    "lock.acquire(timeout=5)": "q.lock(name, wait=5)",
    "lock.acquire(blocking_timeout=5)": "q.lock(name, wait=5)",
    "lock.acquire(poll_interval=0.1)": "waiting clients are notified",
    "lock.try_acquire(timeout=5)": "wait=5",
    "lock.try_acquire(blocking=False)": "it asks once",
    "lock.try_acquire(5)": "it asks once",
    "lock.acquire(token='mine')": "lease.token",
    "lock.release()": "it is of the lease",
    "lock.locked()": "lock.inspect().holder",
    "lock.is_locked": "lock.inspect().holder",
    "lock.owned()": "lease.check()",
    "lock.extend(10)": "it is of the lease",
    "lock.reacquire()": "lease.renew()",
    "lease.owned()": "lease.check()",
    "lease.locked()": "lease.check()",
    "lease.reacquire()": "lease.renew()",
    "lease.acquire()": "lock.acquire()",
    "q.lock('a', timeout=5)": "wait=5 .* ttl=30",
    "q.lock('a', blocking_timeout=5)": "wait=5",
    "q.lock('a', sleep=0.1)": "waiting clients are notified",
    "q.lock('a', thread_local=False)": "any thread may release",
    "q.lock('a', blocking=False)": "lock.try_acquire()",
    # RLock, filelock
    "q.lock('a', reentrant=True)": "owner=quorlock.Owner()",
    "q.semaphore('a', 2).waiters()": "#0",
    "q.semaphore('a', 2).log()": "#0",
    "q.semaphore('a', 2, owner=None)": "it is for q.lock() and q.lock_all()",
    # redlock-py, pottery, aioredlock
    "q.unlock(lease)": "lease.release()",
    "lease.validity": "lease.remaining",
    "lease.key": "lease.resource",
    "q.lock('a', auto_release_time=10)": "ttl=30",
    "q.lock('a', lock_timeout=10)": "ttl=30",
    "lease.valid": "lease.check()",
    "q.destroy()": "q.close()",
    "q.is_locked('a')": "inspect()",
    # python-redis-lock
    "lock.reset()": "revoke",
    "q.lock('a', expire=10)": "ttl=30",
    "q.lock('a', id='me')": "label=",
    # tooz
    "q.get_lock('a')": "q.lock(name)",
    "q.start()": "connects by itself",
    "lock.break_()": "revoke",
    # What is of another call here
    "q.lock_all(['a'], shared=True)": "it is for q.lock()",
    "q.lock_all(['a'], handoff_within=5)": "it is for q.lock() and q.semaphore()",
    "q.election('a', label='web-3')": "election.campaign(value)",
    "q.election('a', renew=False)": "a leader renews its lease until it resigns",
    "q.election('a', fencing=False)": "every leader has a fencing token",
    "q.election('a', timeout=5)": "wait=5 .* ttl=30",
    "q.once('a', every=1, wait=5)": "once() has no keyword 'wait'",
    "q.lock('a', tt=5)": "lock() has no keyword 'tt'",
    "lock.aquire()": "no attribute 'aquire'",
}


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_answered_by_what_to_write(face: Face, habit: str) -> None:
    q, done = face
    lock = q.lock("habit", wait=0)
    lease = done(lock.acquire())
    with pytest.raises((TypeError, AttributeError)) as raised:
        done(eval(habit, {"q": q, "lock": lock, "lease": lease}))
    said, words = str(raised.value), HABITS[habit]
    assert all(word in said for word in words.split(" .* ")), said
    lease.check()
    done(lease.release())


def test_what_is_asked_for_politely_is_not_there(face: Face) -> None:
    lock = face[0].lock("absent")
    assert not hasattr(lock, "release")
    assert getattr(lock, "locked", None) is None


def test_every_sentence_is_of_what_is_missing() -> None:
    for module in [quorlock, quorlock.aio]:
        for kind, names in _habits._ATTRIBUTES.items():
            for name in names:
                assert not hasattr(getattr(module, kind), name), f"{kind}.{name} exists"


@pytest.mark.parametrize("keyword", ["host", "masters", "db", "retry_count", "ssl", "socket_timeout"])
@pytest.mark.parametrize("module", [quorlock, quorlock.aio])
def test_settings_of_other_clients_are_answered(module: Any, keyword: str) -> None:
    with pytest.raises(TypeError, match=rf"connect\(\) has no keyword '{keyword}': "):
        module.connect("redis://a", **{keyword: 1})


def test_a_lease_is_extended(face: Face) -> None:
    q, done = face
    lease = done(q.lock("extended", ttl=5, renew=False).acquire())
    done(lease.extend(20))
    assert 15 < lease.remaining <= 20
    done(lease.extend(timedelta(seconds=5)))
    assert lease.remaining > 15
    with pytest.raises(quorlock.ConfigError, match="max_ttl"):
        done(lease.extend(60))
    lease.check()
    done(lease.release())


def test_nothing_of_a_process_is_pickled_or_copied(face: Face) -> None:
    q, done = face
    lease = done(q.lock("pickled").acquire())
    for thing in [q, q.lock("pickled"), q.semaphore("pickled", 2), q.election("pickled"), lease]:
        for copied in [pickle.dumps, copy.copy, copy.deepcopy]:
            with pytest.raises(TypeError, match=r"cannot be pickled: call connect\(\) in the child"):
                copied(thing)
    done(lease.release())


def test_a_job_runs_once_in_its_time(face: Face) -> None:
    q, done = face
    runs: list[int] = []
    name, every = f"job {type(q).__module__}", timedelta(seconds=3)
    if type(q) is quorlock.Coordinator:

        @q.once(name, every=every)
        def job(number: int) -> int:
            runs.append(number)
            return number

    else:

        @q.once(name, every=every)
        async def job(number: int) -> int:
            runs.append(number)
            return number

    begun = time.monotonic()
    assert done(job(1)) == 1
    assert done(job(2)) is None
    assert eventually("the time to pass", lambda: done(job(2))) == 2
    # The servers count whole milliseconds.
    assert time.monotonic() - begun > 2.99
    assert runs == [1, 2]


def test_a_job_that_fails_has_run(face: Face) -> None:
    q, done = face
    name = f"fails {type(q).__module__}"
    if type(q) is quorlock.Coordinator:

        @q.once(name, every=60)
        def job() -> None:
            raise OSError("no disk")

    else:

        @q.once(name, every=60)
        async def job() -> None:
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        done(job())
    assert done(job()) is None
    holder = done(q.lock(name).inspect()).holder
    assert 50 < holder.remaining <= 60
    done(q.lock(name).revoke(holder.token))


def test_a_job_that_loses_its_lock_leaves_its_time_free(face: Face) -> None:
    q, done = face
    name = f"lost {type(q).__module__}"
    if type(q) is quorlock.Coordinator:

        @q.once(name, every=60, max_hold=0.5)
        def job() -> None:
            eventually("the lock to be free", lambda: q.lock(name).inspect().holder is None)

    else:

        @q.once(name, every=60, max_hold=0.5)
        async def job() -> None:
            await asyncio.sleep(60)

    for _ in range(2):
        with pytest.raises(quorlock.Lost):
            done(job())


def test_a_job_without_a_quorum_or_a_time_is_refused(face: Face) -> None:
    q, _ = face
    with pytest.raises(quorlock.ConfigError, match="every=0"):
        q.once("job", every=0)
    with servers(3) as nodes, nodes.connect() as blocking:
        job = blocking.once("job", every=60)(lambda: pytest.fail("it ran without the lock"))
        nodes.kill(0)
        nodes.kill(1)
        with pytest.raises(quorlock.NoQuorum):
            job()


def test_a_process_ends_with_its_lock() -> None:
    with servers(3) as nodes:
        program = start(
            nodes,
            """
with connect() as q:
    q.lock("released").acquire(keep=True).exit_on_lost(3)
lease = connect().lock("lost", ttl=1).acquire()
lease.exit_on_lost(76)
print("held")
time.sleep(60)
""",
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        for index in range(3):
            nodes.kill(index)
        ended = end(program)
        assert ended.returncode == 76, ended.stderr
        assert "`lost` is lost (expired)" in ended.stderr


def test_a_job_whose_lock_cannot_stay_taken_never_runs(face: Face) -> None:
    q, _ = face
    with pytest.raises(quorlock.ConfigError, match="cannot stay taken after the work: .* ten years at most"):
        q.once("for ever", every=timedelta(days=36500))
    q.once("for a decade", every=timedelta(days=3650))
    # Its keys end with a session. It contacts no node before.
    of_sessions = (quorlock if type(q) is quorlock.Coordinator else quorlock.aio).connect("zookeeper://127.0.0.1:1/a")
    with pytest.raises(quorlock.ConfigError, match="does not support the transfer of a lock to another token"):
        of_sessions.once("job", every=60)


#: What may hold up the thread of callbacks, when the lease is lost.
HINDRANCES = {
    "a handler of logging that raises": """
class Broken(logging.Handler):
    def emit(self, record):
        raise OSError("no space left")
logging.getLogger().addHandler(Broken())
""",
    "a handler of logging that blocks": """
class Full(logging.Handler):
    def emit(self, record):
        time.sleep(3600)
logging.getLogger("quorlock").addHandler(Full(level=logging.ERROR))
""",
    "code that keeps the interpreter": """
import ctypes
class Keeping(logging.Handler):
    def emit(self, record):
        ctypes.PyDLL(None).sleep(3600)
logging.getLogger("quorlock").addHandler(Keeping(level=logging.ERROR))
""",
    "a callback that blocks": """
def block(reason):
    print("blocks", flush=True)
    time.sleep(3600)
other = q.lock("other").acquire()
other.on_lost(block)
other.release()
""",
}


@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_process_ends_with_its_lock_whatever_callbacks_and_logging_do(face: str, hindrance: str) -> None:
    with servers(3) as nodes:
        program = start(
            nodes,
            "import logging\nq = connect()\n"
            + HINDRANCES[hindrance]
            + ("lock = q.lock('lost', ttl=1)\n" if face == "threads" else "lock = aio_connect().lock('lost', ttl=1)\n")
            + """
async def hold():
    acquired = lock.acquire()
    lease = acquired if isinstance(acquired, quorlock.Lease) else await acquired
    lease.exit_on_lost(76)
    print("held", flush=True)
    while True: await asyncio.sleep(0.1)
asyncio.run(hold())
""",
        )
        assert program.stdout is not None
        while program.stdout.readline() != "held\n":
            assert program.poll() is None, program.communicate()
        for index in range(3):
            nodes.kill(index)
        ended = end(program)
        assert ended.returncode == 76, ended.stderr


def test_a_process_ends_with_its_lock_where_the_system_grants_no_thread() -> None:
    """The thread that would end it with the code cannot be started."""
    with servers(3) as nodes:
        program = start(
            nodes,
            """
import ctypes, resource
lease = connect().lock("lost", ttl=1).acquire()
lease.exit_on_lost(76)
# Root may have as many threads as it wants.
if os.getuid() == 0: os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("held", flush=True)
# With the interpreter.
ctypes.PyDLL(None).sleep(3600)
""",
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        for index in range(3):
            nodes.kill(index)
        ended = end(program)
        assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_a_code_that_no_process_ends_with_is_refused(face: Face) -> None:
    q, done = face
    lease = done(q.lock("ends with a code").acquire())
    for code in ["76", None, True, -1, 256, 7.0]:
        with pytest.raises(quorlock.ConfigError, match="code=.*: give an exit code"):
            lease.exit_on_lost(code)
    done(lease.release())


def test_an_exit_that_releases_is_no_loss(q: quorlock.Coordinator, nodes: Servers) -> None:
    ended = run(nodes, 'lease = connect().lock("ends").acquire(); lease.exit_on_lost(3)')
    assert ended.returncode == 0, ended.stderr
    lease = q.lock("ends", wait=0).try_acquire()
    assert lease is not None
    lease.release()
