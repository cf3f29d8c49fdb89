"""What a program learns while it waits, who may acquire a lock again, and how often it is handed on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import queue
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import quorlock
import quorlock.aio
from programs import SOON, Face, eventually, run
from quorlock.testing import Servers, servers

#: What makes what can be waited for, and what acquires it.
KINDS: dict[str, Callable[[Any, str, dict[str, Any]], Any]] = {
    "lock": lambda q, name, options: q.lock(name, **options).acquire(),
    "lock_all": lambda q, name, options: q.lock_all([name, name + "/other"], **options).acquire(),
    "semaphore": lambda q, name, options: q.semaphore(name, 1, **options).acquire(),
    "election": lambda q, name, options: q.election(name, **options).campaign("the first"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_thread_learns_who_holds_it(kind: str, q: quorlock.Coordinator, nodes: Servers) -> None:
    acquire, name = KINDS[kind], f"awaited by a thread/{kind}"
    learnt: queue.Queue[quorlock.Waiting] = queue.Queue()
    with nodes.connect(label="the first") as other:
        first = acquire(other, name, {})
        granted: list[quorlock.Lease] = []
        waiter = threading.Thread(target=lambda: granted.append(acquire(q, name, {"on_wait": learnt.put})))
        waiter.start()
        waiting = learnt.get(timeout=SOON)
        assert waiting.holder is not None
        assert "the first" in (waiting.holder.context or "")
        assert "the first" in str(waiting)
        assert waiting.ahead == 0
        assert waiting.waited >= 0
        first.release()
        waiter.join(SOON)
    granted[0].release()


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_task_learns_who_holds_it(kind: str, nodes: Servers) -> None:
    acquire, name = KINDS[kind], f"awaited by a task/{kind}"

    async def main() -> None:
        learnt: asyncio.Queue[quorlock.Waiting] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def on_wait(waiting: quorlock.Waiting) -> None:
            loop.call_soon_threadsafe(learnt.put_nowait, waiting)

        async with nodes.aio_connect(label="the first") as other, nodes.aio_connect() as q:
            first = await acquire(other, name, {})
            waiter = asyncio.ensure_future(acquire(q, name, {"on_wait": on_wait}))
            waiting = await asyncio.wait_for(learnt.get(), SOON)
            assert waiting.holder is not None
            assert "the first" in (waiting.holder.context or "")
            await first.release()
            await (await waiter).release()

    asyncio.run(main())


def test_callers_of_one_process_learn_how_many_are_before_them(q: quorlock.Coordinator, nodes: Servers) -> None:
    learnt: queue.Queue[quorlock.Waiting] = queue.Queue()
    other = nodes.connect()
    first = other.lock("queue of threads").acquire()

    def wait() -> None:
        with q.lock("queue of threads", on_wait=learnt.put):
            pass

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    seen: set[int] = set()
    while seen < {0, 1, 2}:
        seen.add(learnt.get(timeout=SOON).ahead)
    first.release()
    for waiter in waiters:
        waiter.join(SOON)


def test_a_callback_for_waits_that_raises_is_logged_and_ends_nothing(
    q: quorlock.Coordinator, nodes: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()

    def fails(waiting: quorlock.Waiting) -> None:
        called.set()
        raise OSError("no terminal")

    with nodes.connect() as other, caplog.at_level(logging.ERROR, "quorlock"):
        lease = other.lock("shown badly").acquire()
        waiter = threading.Thread(target=lambda: q.lock("shown badly", on_wait=fails).acquire())
        waiter.start()
        assert called.wait(SOON)
        eventually("it to be logged", lambda: "the wait for `shown badly` failed" in caplog.text)
        lease.release()
        waiter.join(SOON)
        # The same thread still calls others.
        ended = threading.Event()
        q.lock("shown well").acquire().on_lost(lambda reason: ended.set())
        gc.collect()
        assert ended.wait(SOON)


def test_a_lock_whose_callback_refers_to_it_is_collected(q: quorlock.Coordinator) -> None:
    def made() -> weakref.ref[quorlock.Lock]:
        lock = q.lock("referred to", on_wait=lambda waiting: print(lock.name, waiting))
        return weakref.ref(lock)

    lock = made()
    gc.collect()
    assert lock() is None


def test_what_cannot_be_called_is_refused(q: quorlock.Coordinator) -> None:
    with pytest.raises(quorlock.ConfigError, match="on_wait='print'"):
        q.lock("a", on_wait="print")  # type: ignore[arg-type]
    for handoff in [-1, True, 1.5]:
        with pytest.raises(quorlock.ConfigError, match="handoff="):
            q.lock("a", handoff=handoff)  # type: ignore[arg-type]
    for within in [-1, True, "5"]:
        with pytest.raises(quorlock.ConfigError, match="handoff_within="):
            q.semaphore("a", 2, handoff_within=within)  # type: ignore[arg-type]


def test_an_owner_acquires_again_what_it_holds(q: quorlock.Coordinator, nodes: Servers) -> None:
    me = quorlock.Owner()
    for make in [
        lambda **owner: q.lock("owned", wait=0, **owner),
        lambda **owner: q.lock_all(["owned/1", "owned/2"], wait=0, **owner),
    ]:
        outer = make(owner=me).acquire()
        inner = make(owner=me).acquire()
        assert inner.fencing_token == outer.fencing_token
        assert make().try_acquire() is None
        assert make(owner=quorlock.Owner()).try_acquire() is None
        inner.release()
        outer.check()
        assert make().try_acquire() is None
        outer.release()
        with make():
            pass
        lock = make(owner=me)
        with lock as first, lock as second:
            assert first.token == second.token
    with (
        q.lock_all(["owned/1", "owned/2"], owner=me),
        pytest.raises(quorlock.ConfigError, match="would wait for itself"),
    ):
        q.lock("owned/1", owner=me).acquire()


@contextlib.contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raises in the main thread after this time, as the time limit of a task does."""

    def limit(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, limit)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_lease_that_its_owner_has_released_is_over_though_it_holds_the_lock_once_more(face: Face) -> None:
    q, done = face
    me = quorlock.Owner()
    for over in [lambda lease: done(lease.release()), lambda lease: done(lease.retain(60))]:
        released, kept = (done(q.lock("owned once more", owner=me).acquire()) for _ in range(2))
        heard: list[str] = []
        released.on_lost(heard.append)
        with contextlib.suppress(quorlock.ConfigError):
            # Its owner may not retain what it still holds: this lease is released.
            over(released)
        assert (released.lost.is_set(), released.lost.reason, released.remaining) == (True, "released", 0)
        assert done(released.lost.wait())
        for call in ["release", "renew", "downgrade"]:
            with pytest.raises(quorlock.Lost, match="it was released"):
                done(getattr(released, call)())
        with pytest.raises(quorlock.Lost):
            released.check()
        with pytest.raises(quorlock.Lost):
            done(released.retain(60))
        kept.check()
        assert not kept.shared
        assert eventually("the loss to be heard of", lambda heard=heard: heard) == ["released"]
        done(kept.release())
    assert done(q.lock("owned once more").inspect()).holder is None


def test_a_downgrade_goes_on_if_the_handler_of_a_signal_raises() -> None:
    with servers(3) as nodes, nodes.connect() as q, q.lock("let in") as lease:
        for index in range(2):
            nodes.freeze(index)
        with interrupted(0.2), pytest.raises(InterruptedError):
            lease.downgrade()
        for index in range(2):
            nodes.thaw(index)
        lease.check()
        eventually("the lease to be shared", lambda: lease.shared)
        with nodes.connect() as other:
            assert other.lock("let in").try_acquire() is None


def test_an_owner_acquires_again_on_an_event_loop(nodes: Servers) -> None:
    async def main() -> None:
        me = quorlock.Owner()
        async with nodes.aio_connect() as q:
            async with q.lock("owned by a task", owner=me), q.lock("owned by a task", owner=me):
                assert await q.lock("owned by a task").try_acquire() is None
            async with q.lock("owned by a task", wait=0):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("made", ["lock", "semaphore", "election"])
def test_a_wait_in_a_child_calls_what_the_parent_has_set(made: str, nodes: Servers) -> None:
    ended = run(
        nodes,
        f"made, name = {made!r}, 'waited for in a child, {made}'"
        """
def learn(waiting):
    if os.getpid() != parent:
        print("learnt", flush=True)
        learnt.set()
parent, learnt, q, other = os.getpid(), threading.Event(), connect(), connect()
wanted = {
    "lock": lambda q: q.lock(name, on_wait=learn).acquire,
    "semaphore": lambda q: q.semaphore(name, 1, on_wait=learn).acquire,
    "election": lambda q: lambda: q_election.campaign("me"),
}
q_election = q.election(name, on_wait=learn)
acquire = wanted[made](q)
held = other.semaphore(name, 1).acquire() if made == "semaphore" else other.lock(name).acquire()
if (child := os.fork()) == 0:
    threading.Thread(target=acquire, daemon=True).start()
    os._exit(0 if learnt.wait(60) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    )
    # A busy machine may learn of the holder in two steps, of which the end of the child cuts the second off.
    assert ended.stdout.startswith("learnt"), ended.stderr
    assert ended.stdout.replace("learnt", "").split() == ["0"], ended.stdout


def test_a_callback_for_waits_that_blocks_is_logged(nodes: Servers) -> None:
    """Though nothing else of the program is called now and then."""
    ended = run(
        nodes,
        """
import logging
logged, blocked, idle = threading.Event(), threading.Event(), threading.Event()
class Watch(logging.Handler):
    def emit(self, record):
        if "still runs" in record.getMessage(): logged.set()
        if "was dropped" in record.getMessage(): idle.set()
logging.getLogger("quorlock").addHandler(Watch())
held = connect().lock("shown slowly").acquire()
q = connect()
q.lock("dropped").acquire()
# From now on the thread of the records waits without an end.
assert idle.wait(60)
def block(waiting):
    blocked.set()
    time.sleep(3600)
threading.Thread(target=q.lock("shown slowly", on_wait=block).acquire, daemon=True).start()
assert blocked.wait(60)
print(logged.wait(60), flush=True)
os._exit(0)
""",
    )
    assert ended.stdout == "True\n", ended.stderr


def test_an_owner_of_the_parent_owns_nothing_in_a_child(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q, me = connect(), quorlock.Owner()
lock = q.lock("a parent's", owner=me, wait=0)
with lock:
    if (child := os.fork()) == 0:
        print(lock.try_acquire(), flush=True)
        with q.lock("a child's", owner=me), q.lock("a child's", owner=me):
            print("twice", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    with lock:
        print("again")
""",
    )
    assert ended.stdout.split("\n")[:3] == ["None", "twice", "again"], ended.stderr


_HANDED_ON = """
import quorlock.metrics
quorlock.metrics.enable()
q = connect()
lock = q.{made}
def work():
    for _ in range(20):
        with lock:
            pass
def sum_of(metric):
    return sum(map(float, re.findall(rf"^quorlock_{{metric}}.* ([0-9.]+)$", quorlock.metrics.text(), re.MULTILINE)))
threads = [threading.Thread(target=work) for _ in range(4)]
with lock:
    for thread in threads: thread.start()
    while sum_of("waiters") < 4: time.sleep(0.001)
for thread in threads: thread.join()
print(sum_of("handoffs_total"))
"""


@pytest.mark.parametrize(
    ("handoff", "is_handed_on"),
    [
        ("handoff=0", False),
        ("handoff=1", True),
        ("handoff=None", True),
        ("handoff_within=0", False),
        ("handoff_within=0.000_000_001", False),
        ("handoff_within=timedelta(minutes=1)", True),
        ("handoff=0, handoff_within=60", False),
    ],
)
@pytest.mark.parametrize("made", ["lock('in turns'", "semaphore('permits in turns', 1"])
def test_a_lease_is_handed_on_within_the_process_unless_that_is_off(
    made: str, handoff: str, is_handed_on: bool, nodes: Servers
) -> None:
    ended = run(nodes, "import re; from datetime import timedelta" + _HANDED_ON.format(made=f"{made}, {handoff})"))
    assert ended.returncode == 0, ended.stderr
    assert (float(ended.stdout) > 0) == is_handed_on, ended.stdout
