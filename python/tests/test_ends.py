"""Forks, exits and signals: nothing hangs, nothing aborts, and no key stays for longer than its TTL."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import quorlock
from programs import SOON, end, eventually, eventually_gone, run, start, start_command, stored
from quorlock.testing import Servers, servers


def test_a_forked_child_has_no_lease_and_connects_anew(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q = connect()
lock = q.lock("forked")
with lock as lease:
    child = os.fork()
    if child == 0:
        try:
            lease.check()
        except quorlock.Lost as lost:
            print("child:", lost.reason, lease.lost.is_set(), lease.remaining, lock.try_acquire())
        try:
            lease.release()
        except quorlock.Lost:
            print("child: not released")
        with q.lock("of the child", wait=5) as mine:
            mine.check()
        del lease, lock
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.check()
    lease.renew()
    print("parent: held")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "child: forked True 0.0 None\nchild: not released\nparent: held\n"
    eventually_gone(nodes, "forked")
    eventually_gone(nodes, "of the child")


#: What uses first what the parent has made, and what it prints in a child.
FIRST_USES = {
    "print(lease.lost.reason)": "forked",
    "print(lease.remaining)": "0.0",
    "print(lock.try_acquire())": "None",
    "lease = q.lock('of the child').acquire(); lease.on_lost(said.append); lease.release(); said.wait()": "released",
    "asyncio.run(on_a_loop())": "on a loop",
    "lock.inspect(); exit()": "",
    "print(free.until_free())": "None",
    "print(free.waiters())": "[]",
    "print(len(free.log()))": "0",
    "print(len(free.revoke(b'of no one').votes))": "5",
    "print(q.close(timeout=5)); exit()": "None",
    "try: observer.changed(timeout=5)\n    except quorlock.ConfigError as error: print(error)": (
        "this observer belongs to the parent process: observe() again"
    ),
    "del lease, free, observer": "",
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_a_fork_by_a_host_that_does_not_say_so_to_python_is_noticed_by_the_child(use: str, nodes: Servers) -> None:
    """As uWSGI does it."""
    ended = run(
        nodes,
        f"""
import ctypes
from quorlock import aio
q, on = connect(log=3), aio_connect()
lock, free, observer = q.lock("forked in silence"), q.lock("free"), q.election("followed").observe()
lease = lock.acquire()

class Said(list):
    def wait(self):
        while not self: time.sleep(0.01)
        print(*self)

said = Said()

async def on_a_loop():
    async with on.lock("of a loop"):
        print("on a loop")

child = ctypes.PyDLL(None).fork()
if child == 0:
    {use}
    with q.lock("of the child", wait=5): pass
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
# The child has disturbed no connection.
lease.renew()
lease.release()
print("held")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[:-1] == [*filter(None, [FIRST_USES[use]]), "held"], ended.stderr
    eventually_gone(nodes, "of the child")


def test_threads_of_a_child_that_notice_a_fork_together_are_of_one_process(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import ctypes
q = connect()
child = ctypes.PyDLL(None).fork()
if child == 0:
    begin, leases = threading.Barrier(8), []
    def work(number):
        begin.wait()
        leases.append(q.lock(f"of thread {number}").acquire())
    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for lease in leases: lease.check()
    print(len(leases), quorlock._quorlock.generation())
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "8 1\n", ended.stderr


def test_a_host_that_ends_the_interpreter_after_its_main_thread_releases_what_is_held(nodes: Servers) -> None:
    """As uWSGI does it: by what the C library calls at the exit."""
    ended = run(
        nodes,
        """
import ctypes
libc = ctypes.PyDLL(None)
libc.__cxa_atexit(ctypes.cast(ctypes.pythonapi.Py_FinalizeEx, ctypes.c_void_p), None, None)
connect().lock("held by a host").acquire(keep=True)
print("held", flush=True)
libc.exit(0)
""",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "held\n", "")
    assert stored(nodes, "held by a host") == []


def test_forks_in_the_middle_of_work_hang_nothing(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q = connect()
stop = threading.Event()
def work(number):
    while not stop.is_set():
        with q.lock(f"busy {number}", wait=None):
            pass
threads = [threading.Thread(target=work, args=(number % 3,)) for number in range(6)]
for thread in threads: thread.start()
for number in range(30):
    child = os.fork()
    if child == 0:
        with q.lock(f"child {number}", wait=20) as lease:
            lease.check()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, number
stop.set()
for thread in threads: thread.join()
print("done")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n"


def test_a_fork_while_another_thread_looks_for_an_event_loop_hangs_no_child(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import builtins
del sys.modules["asyncio"]  # as in a program that does not use it
q = connect()
with q.lock("before"): pass
imports, inside = builtins.__import__, threading.Event()
def slowly(name, *rest):
    if name == "sys" and threading.current_thread() is not threading.main_thread():
        inside.set()
        time.sleep(1)
    return imports(name, *rest)
builtins.__import__ = slowly
def work():
    with q.lock("busy"): pass
thread = threading.Thread(target=work)
thread.start()
while thread.is_alive() and not inside.is_set(): time.sleep(0.001)
if (child := os.fork()) == 0:
    with q.lock("child"): pass
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
""",
    )
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr


def test_a_callback_that_no_thread_can_call_is_refused_and_not_kept(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
from quorlock import _events
q = connect()
lease = q.lock("without threads").acquire()
def refuse(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
try:
    lease.on_lost(print)
except RuntimeError as error:
    print(error, _events._state.callbacks)
lease.release()
""",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "can't start new thread {}\n", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works(nodes: Servers, method: str, tmp_path: Path) -> None:
    program = tmp_path / "work.py"
    program.write_text(
        """
import multiprocessing, sys
import quorlock
q = quorlock.connect(sys.argv[2:], restart_guard=False)
def work(number):
    with q.lock("pool", wait=60) as lease:
        return lease.fencing_token
if __name__ == "__main__":
    work(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        tokens = pool.map(work, range(20))
    assert len(set(tokens)) == 20, tokens
    print("done")
"""
    )
    ended = end(start_command([sys.executable, str(program), method, *nodes.urls]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n"
    eventually_gone(nodes, "pool")


@pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None, reason="gunicorn is not installed")
def test_gunicorn_with_preload_works(nodes: Servers, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        f"""
import os
import quorlock
q = quorlock.connect({nodes.urls!r}, restart_guard=False)
# The parent has used it before it forks.
with q.lock("preload"):
    pass
def app(environ, start_response):
    with q.lock("preload", wait=60) as lease:
        body = f"{{os.getpid()}} {{lease.fencing_token}}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--workers=3", "--bind=127.0.0.1:0", "shop:app"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr
    log = ""
    try:
        while "Listening at: " not in log:
            line = server.stderr.readline()
            assert line, log
            log += line
        address = log.split("Listening at: ")[1].split()[0]
        answers = []
        for _ in range(30):
            with urllib.request.urlopen(address, timeout=SOON) as answer:
                answers.append(answer.read().decode().split())
        assert len({token for _, token in answers}) == 30
        assert str(server.pid) not in {process for process, _ in answers}
        server.terminate()
        _, rest = server.communicate(timeout=SOON)
        assert server.returncode == 0, log + rest
    finally:
        server.kill()
        server.wait()


def test_an_exit_with_a_held_lease_releases_it(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
held = threading.Event()
def hold():
    with connect().lock("exit"):
        held.set()
        time.sleep(600)
# What a daemon thread has is never dropped.
threading.Thread(target=hold, daemon=True).start()
held.wait()
print("held")
""",
    )
    assert ended.returncode == 0
    assert (ended.stdout, ended.stderr) == ("held\n", "")
    assert not stored(nodes, "exit")


def test_an_exit_releases_what_is_kept_of_a_coordinator_that_no_variable_has(nodes: Servers) -> None:
    ended = run(nodes, 'connect().lock("kept until the exit").acquire(keep=True); print("held")')
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "held\n", "")
    assert not stored(nodes, "kept until the exit")


def test_what_runs_while_the_interpreter_ends_gets_the_exceptions_of_the_package(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q = connect()
def generate():
    with q.lock("generated"): yield
class Late:
    def __del__(self):
        try: self.lease.release()
        except quorlock.QuorlockError as error: print(type(error).__name__)
generator = generate()
next(generator)
late = Late()
late.lease = q.lock("late").acquire()
""",
    )
    assert (ended.returncode, ended.stdout) == (0, "Lost\n")
    assert ended.stderr.startswith("the lease of `generated` is over: its coordinator was closed")
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_an_error_exits_as_always_and_releases(nodes: Servers) -> None:
    ended = run(nodes, 'q = connect()\nwith q.lock("error"): raise SystemExit(7)')
    assert ended.returncode == 7
    assert not stored(nodes, "error")


def test_an_exit_with_threads_that_wait_does_not_abort(nodes: Servers) -> None:
    with nodes.connect() as q, q.lock("held elsewhere"):
        ended = run(
            nodes,
            """
q = connect()
def wait():
    try:
        q.lock("held elsewhere", wait=None).acquire()
    except quorlock.Closed:
        pass
for _ in range(20):
    threading.Thread(target=wait, daemon=True).start()
async def main():
    a = aio_connect()
    asyncio.create_task(a.lock("held elsewhere", wait=None).acquire())
    await asyncio.sleep(0.1)
asyncio.run(main())
print("exit")
""",
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "exit\n"


def test_a_thread_that_waited_when_the_exit_began_stays_out_of_the_interpreter(nodes: Servers) -> None:
    """It would be ended wherever it is, which a stack of other code may not survive."""
    code = """
import atexit, sys, threading, time
def at_the_end():
    thread.join(0.3)
    print(ran, thread.is_alive())
    try: quorlock.connect(sys.argv[1:])
    except quorlock.Closed: print("closed")
# Before the handler of the package, which is called first then.
atexit.register(at_the_end)
import quorlock
ran = []
q = quorlock.connect(sys.argv[1:], restart_guard=False)
def wait():
    try:
        q.lock("held elsewhere", wait=None).acquire()
    except quorlock.Closed:
        ran.append("in Python")
thread = threading.Thread(target=wait, daemon=True)
thread.start()
while not q.lock("held elsewhere").waiters(): time.sleep(0.01)
"""
    with nodes.connect() as q, q.lock("held elsewhere"):
        ended = end(start_command([sys.executable, "-c", code, *nodes.urls]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[] True\nclosed\n"


def test_an_exit_takes_a_second_in_all() -> None:
    with servers(3) as nodes:
        program = start(
            nodes,
            """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
coordinators = [connect(key_prefix=f"{number}/") for number in range(10)]
leases = [q.lock("held").acquire() for q in coordinators]
print("held")
signal.sigwait([signal.SIGUSR1])
""",
        )
        assert program.stdout
        assert program.stdout.readline() == "held\n"
        for index in range(3):
            nodes.freeze(index)
        began = time.monotonic()
        program.send_signal(signal.SIGUSR1)
        ended = end(program)
        assert time.monotonic() - began < 5
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "pass"])
def test_servers_end_with_the_process_that_started_them(nodes: Servers, how: str) -> None:
    if "built-in" in nodes.kind:
        pytest.skip("these servers are tasks of the process")
    ended = run(
        nodes,
        f"""
from quorlock.testing import servers
mine = servers(2)
q = mine.connect()
lease = q.lock("at exit").acquire()
for index in range(2):
    print(next(line for line in mine.command(index, "INFO", "server").splitlines() if "process_id" in line), flush=True)
{how}
""",
    )
    pids = [int(line.split(":")[1].strip().strip('"')) for line in ended.stdout.splitlines()]
    assert len(pids) == 2, ended
    eventually("the servers to end", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    if how == "pass":
        # The lock was released before its servers ended.
        assert ended.stderr == ""


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_green_threads_are_refused(nodes: Servers, library: str, when: str) -> None:
    """A wait would stop all of them, for ever."""
    pytest.importorskip(library)
    patch = "import gevent.monkey; gevent.monkey.patch_all()"
    if library == "eventlet":
        patch = "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()"
    ended = run(
        nodes,
        f"""
{"" if when == "after" else patch}
import quorlock
{"" if when == "before" else patch}
for connect in [quorlock.connect, quorlock.aio.connect]:
    try:
        connect(sys.argv[1:])
    except quorlock.ConfigError as error:
        print(error)
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"{library} has replaced the threads of this process") == 2
    assert "use workers that are threads or processes" in ended.stdout


def test_an_exit_without_any_server_is_quick_and_clean(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q = quorlock.connect("redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3", connect_timeout=0.2)
try:
    q.lock("nowhere", wait=0).acquire()
except quorlock.NoQuorum as error:
    print(len(error.report.votes))
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "3\n"


def test_a_killed_holder_s_key_expires_with_its_ttl(nodes: Servers) -> None:
    program = start(nodes, 'lease = connect().lock("killed", ttl=1).acquire(); print("held"); time.sleep(600)')
    assert program.stdout
    assert program.stdout.readline() == "held\n"
    program.kill()
    end(program)
    for index in range(5):
        assert int(nodes.command(index, "PTTL", "killed")) <= 1000
    eventually_gone(nodes, "killed")


@pytest.mark.parametrize("what", ["acquire()", "until_free()"])
def test_ctrl_c_ends_a_wait_at_once(nodes: Servers, what: str) -> None:
    with nodes.connect() as q, q.lock("interrupted"):
        program = start(
            nodes,
            f"""
lock = connect().lock("interrupted", wait=None)
try:
    print("waits")
    lock.{what}
except KeyboardInterrupt:
    print("interrupted", lock.waiters())
""",
        )
        assert program.stdout
        assert program.stdout.readline() == "waits\n"
        if what == "acquire()":
            eventually("a waiter", lambda: q.lock("interrupted").waiters())
        else:
            time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        ended = end(program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "interrupted []\n"


def test_sigterm_releases_with_the_handler_of_the_page(nodes: Servers) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))"
    assert handler in (Path(__file__).parents[2] / "docs/python.md").read_text()
    program = start(
        nodes,
        f"""
{handler}
q = connect()
kept = q.lock("kept until it is terminated").acquire(keep=True)
with q.lock("terminated"):
    print("held")
    sleep_until_a_signal()
""",
    )
    assert program.stdout
    assert program.stdout.readline() == "held\n"
    program.send_signal(signal.SIGTERM)
    ended = end(program)
    assert ended.returncode == 143, ended.stderr
    assert not stored(nodes, "terminated") + stored(nodes, "kept until it is terminated")


def test_ctrl_c_ends_a_wait_on_an_event_loop(nodes: Servers) -> None:
    with nodes.connect() as q, q.lock("interrupted loop"):
        program = start(
            nodes,
            """
async def main():
    async with aio_connect() as q:
        print("waits")
        async with q.lock("interrupted loop", wait=None): pass
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
""",
        )
        assert program.stdout
        assert program.stdout.readline() == "waits\n"
        eventually("a waiter", lambda: q.lock("interrupted loop").waiters())
        program.send_signal(signal.SIGINT)
        ended = end(program)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == "interrupted\n"
        eventually("no waiter", lambda: not q.lock("interrupted loop").waiters())


def test_a_signal_that_raises_nothing_keeps_the_place_in_the_queue(nodes: Servers) -> None:
    with nodes.connect() as q:
        lease = q.lock("signalled").acquire()
        program = start(
            nodes,
            """
signal.signal(signal.SIGUSR1, lambda *_: print("signal"))
print("waits")
with connect().lock("signalled", wait=None): print("acquired")
""",
        )
        assert program.stdout
        assert program.stdout.readline() == "waits\n"
        (before,) = eventually("a waiter", lambda: q.lock("signalled").waiters())
        for _ in range(3):
            program.send_signal(signal.SIGUSR1)
            assert program.stdout.readline() == "signal\n"
        (after,) = q.lock("signalled").waiters()
        assert after.id == before.id
        assert after.waited > before.waited
        lease.release()
        assert program.stdout.readline() == "acquired\n"
        assert end(program).returncode == 0


@pytest.mark.parametrize("what", ["lock.acquire()", "lock.until_free()", "[observer.changed(), observer.changed()]"])
def test_a_handler_that_closes_the_coordinator_ends_the_wait_that_it_interrupts(nodes: Servers, what: str) -> None:
    with nodes.connect() as q, q.lock("closed in a handler"):
        program = start(
            nodes,
            f"""
q = connect()
other = q.lock("held meanwhile").acquire()
def terminate(*_):
    began = time.monotonic()
    q.close(60)
    print("closed", time.monotonic() - began < 30)
signal.signal(signal.SIGTERM, terminate)
lock = q.lock("closed in a handler", wait=None)
observer = q.election("closed in a handler").observe()
print("waits")
try:
    {what}
except quorlock.Closed as error:
    print(error, other.lost.is_set())
signal.raise_signal(signal.SIGTERM)
""",
        )
        assert program.stdout
        assert program.stdout.readline() == "waits\n"
        if "acquire" in what:
            eventually("a waiter", lambda: q.lock("closed in a handler").waiters())
        else:
            time.sleep(0.2)
        program.send_signal(signal.SIGTERM)
        assert program.stdout.readline() == "closed True\n"
        assert q.lock("closed in a handler").waiters() == []
        assert program.stdout.readline() == "the coordinator is closed True\n"
        assert program.stdout.readline() == "closed True\n"
        ended = end(program)
    assert ended.returncode == 0, ended.stderr
    eventually_gone(nodes, "closed in a handler")
    eventually_gone(nodes, "held meanwhile")


def test_a_handler_that_closes_while_a_lock_is_acquired_leaves_it_held_by_no_one(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
lock = connect().lock("raced")
print("closes")
for q in [connect() for _ in range(50)]:
    signal.signal(signal.SIGALRM, lambda *_: q.close())
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    try:
        while True:
            with q.lock("raced"): pass
    except (quorlock.Closed, quorlock.Lost):
        pass
with lock: print("free")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "closes\nfree\n"


def test_a_busy_interpreter_delays_no_renewal(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
import logging
# Each round is logged.
logging.getLogger("quorlock").setLevel(5)
logging.getLogger("quorlock").addHandler(logging.NullHandler())
logging.getLogger("quorlock").propagate = False
began = time.perf_counter()
sum(range(10_000_000))
of_five_seconds = int(10_000_000 * 5 / (time.perf_counter() - began))
with connect().lock("busy", ttl=3) as lease:
    lease.on_lost(lambda reason: None)
    # One call of C code that never lets go of the interpreter.
    sum(range(of_five_seconds))
    lease.check()
print("held")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "held\n"


def test_an_extension_is_imported_without_starting_a_thread(nodes: Servers) -> None:
    ended = run(nodes, 'import quorlock.aio, quorlock.testing; print(len(os.listdir("/proc/self/task")))')
    if os.path.isdir("/proc/self/task"):
        assert ended.stdout == "1\n"


def test_modules_are_imported_when_they_are_used(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
quorlock.metrics.text()
q = quorlock.aio.connect(sys.argv[1:], restart_guard=False)
async def main():
    async with q.lock("imported"): print(quorlock.testing.__name__)
asyncio.run(main())
try:
    quorlock.nothing
except AttributeError as error:
    print(error)
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "quorlock.testing\nmodule 'quorlock' has no attribute 'nothing'\n"


def test_versions_agree() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert version("quorlock") == quorlock.__version__
    except PackageNotFoundError:
        pytest.skip("not installed as a package")


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_green_threads_that_come_after_the_coordinator_are_refused_at_each_wait(nodes: Servers, library: str) -> None:
    """As with `gunicorn --preload -k gevent`. A lease from before is released all the same."""
    pytest.importorskip(library)
    patch = "import gevent.monkey; gevent.monkey.patch_all()"
    if library == "eventlet":
        patch = "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()"
    ended = run(
        nodes,
        f"""
from quorlock import redis_lock
q = connect()
drop_in = redis_lock.Lock(q, "green")
lease = q.lock("green").acquire()
{patch}
refused = 0
for call in [
    q.lock("green", wait=5).acquire, q.lock("green").try_acquire, q.lock("green").__enter__, q.lock("green").inspect,
    q.lock("green").until_free, q.semaphore("green", 2).acquire, q.election("green").leader, lease.renew,
    drop_in.locked, drop_in.acquire, lease.release,
]:
    try:
        call()
    except quorlock.QuorlockError as error:
        assert "has replaced the threads of this process" in str(error), error
        refused += 1
print(refused)
q.close()
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "11\n"
    eventually_gone(nodes, "green")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_releases_at_its_end(nodes: Servers, method: str, tmp_path: Path) -> None:
    """It ends without `atexit`. The lease of its parent goes on."""
    program = tmp_path / "work.py"
    program.write_text(
        """
import multiprocessing, sys
import quorlock
q = quorlock.connect(sys.argv[2:], restart_guard=False)
kept = None
def work():
    global kept
    kept = q.lock("child", ttl=30).acquire()
    q.lock("child kept", ttl=30).acquire(keep=True)
if __name__ == "__main__":
    with q.lock("parent") as lease:
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
        for name in ["child", "child kept"]:
            with q.lock(name, wait=10):
                pass
        lease.check()
    print("done")
"""
    )
    ended = end(start_command([sys.executable, str(program), method, *nodes.urls]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n"


def test_a_child_may_make_its_first_lock_of_redis_py_while_a_thread_of_the_parent_does(nodes: Servers) -> None:
    pytest.importorskip("redis")
    ended = run(
        nodes,
        """
from quorlock import redis_lock
redis_lock._making.acquire()  # as another thread does
child = os.fork()
if child == 0:
    signal.alarm(20)
    redis_lock.Lock(sys.argv[1], "first")
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    )
    assert ended.stdout == "0\n", ended


def test_a_handler_that_raises_while_a_lock_is_acquired_leaves_none_held(nodes: Servers) -> None:
    """With `keep=True`, and in a stack of contexts, which both outlive the call."""
    ended = run(
        nodes,
        """
from contextlib import ExitStack
class Limit(Exception): pass
def limit(*_): raise Limit
signal.signal(signal.SIGALRM, limit)
q, other = connect(), connect()
lock = q.lock("raced", ttl=20)
def stacked():
    with ExitStack() as stack:
        stack.enter_context(lock)
        time.sleep(5)
def kept():
    lease = lock.acquire(keep=True)
    try: time.sleep(5)
    finally: lease.release()
held = 0
for number in range(60):
    try:
        # It arrives during the acquisition, or soon after.
        signal.setitimer(signal.ITIMER_REAL, .0002 + number % 10 * .0002)
        [stacked, kept][number % 2]()
    except Limit:
        try:
            with other.lock("raced", wait=5):
                pass
        except quorlock.Held:
            # Between the return and the next line of Python, as the page says.
            held += 1
            q.close()
            q = connect()
            lock = q.lock("raced", ttl=20)
print("free" if held <= 3 else held)
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "free\n"


def test_trio_is_refused_with_what_to_do_instead(nodes: Servers) -> None:
    pytest.importorskip("trio")
    ended = run(
        nodes,
        """
import trio, warnings
async def main():
    q = aio_connect()
    async def context():
        async with q.lock("in trio"): pass
    for call in [q.lock("in trio").acquire, context, q.election("in trio").leader, q.close]:
        try:
            await call()
        except RuntimeError as error:
            print(error)
    blocking = connect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        blocking.lock("blocks trio").acquire().release()
    print({str(warning.message) for warning in warned})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        def work():
            with blocking.lock("in a thread"): return "held"
        print(await trio.to_thread.run_sync(work))
trio.run(main)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    with connect() as q, q.lock("after trio"): print("after")
""",
    )
    assert ended.returncode == 0, ended.stderr
    *refusals, warning, held, after = ended.stdout.splitlines()
    assert len(refusals) == 4
    assert all('anyio.run(main, backend="asyncio")' in refusal for refusal in refusals), refusals
    assert "trio.to_thread.run_sync" in warning
    assert (held, after) == ("held", "after")


@pytest.mark.parametrize(("backend", "printed"), [("asyncio", "held"), ("trio", "needs a loop of asyncio")])
def test_under_anyio_the_backend_decides(nodes: Servers, backend: str, printed: str) -> None:
    pytest.importorskip("anyio")
    pytest.importorskip("trio")
    ended = run(
        nodes,
        f"""
import anyio
async def main():
    try:
        async with aio_connect() as q, q.lock("under anyio"), anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
            print("held")
    except RuntimeError as error:
        print(error)
anyio.run(main, backend="{backend}")
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert printed in ended.stdout


def test_a_subinterpreter_is_refused_and_leaves_the_main_one_alone(nodes: Servers) -> None:
    code = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(), '''
try:
    import quorlock
except ImportError as error:
    print(error, flush=True)
''')
import sys, quorlock
with quorlock.connect(sys.argv[1:], restart_guard=False) as q, q.lock("beside subinterpreters"):
    print("held")
"""
    ended = end(start_command([sys.executable, "-c", code, *nodes.urls]))
    assert ended.returncode == 0, ended.stderr
    refused, held = ended.stdout.splitlines()
    assert "this is a subinterpreter" in refused
    assert held == "held"
