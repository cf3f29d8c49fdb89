"""What the pages show for other libraries does what it says: their blocks, as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quorlock
import quorlock.aio
from programs import accounts, set_up_django
from quorlock.testing import Servers
from test_docs import FENCING, Given, blocks


@pytest.fixture
def shown(q: quorlock.Coordinator, nodes: Servers, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs the block of a page that has these words, with a coordinator on the servers, and returns its names."""
    monkeypatch.setenv("QUORLOCK_NODES", ",".join(nodes.urls))
    monkeypatch.setenv("QUORLOCK_RESTART_GUARD", "off")
    monkeypatch.setattr(
        quorlock, "connect", lambda nodes=None, _connect=quorlock.connect, **settings: _connect(**settings)
    )
    monkeypatch.setattr(
        quorlock.aio, "connect", lambda nodes=None, _connect=quorlock.aio.connect, **settings: _connect(**settings)
    )

    def shown(page: str, words: str, **given: Any) -> dict[str, Any]:
        (block,) = [block for block in blocks(page) if words in block.code]
        namespace: dict[str, Any] = {"quorlock": quorlock, **given}
        exec(block.compile(), namespace)
        return namespace

    return shown


Shown = Callable[..., dict[str, Any]]


def stale(q: quorlock.Coordinator, name: str) -> tuple[quorlock.Lease, quorlock.Lease]:
    """The leases of a former holder and of the next."""
    former = q.lock(name, ttl=3).acquire()
    q.lock(name).revoke(former.token)
    return former, q.lock(name).acquire()


def test_the_guard_refuses_a_former_holder_in_sqlite(shown: Shown, q: quorlock.Coordinator, nodes: Servers) -> None:
    db = Given(nodes, {}, "").db()
    former, newest = stale(q, "guarded in SQLite")
    guard = shown("docs/fencing-checks.md", "def guard", db=db, lease=newest)["guard"]
    db.execute("INSERT INTO account (id, balance) VALUES (7, 1)")
    db.commit()
    with pytest.raises(RuntimeError, match="later holder"), db:
        db.execute("UPDATE account SET balance = 2 WHERE id = 7")
        guard(db, former)
    assert db.execute("SELECT balance FROM account").fetchall() == [(1,)], "it was not rolled back"
    with db:
        guard(db, newest)
    with q.lock("unfenced", fencing=False) as unfenced, pytest.raises(sqlite3.IntegrityError):
        guard(db, unfenced)


@pytest.fixture
def postgres() -> Iterator[Any]:
    """A connection to a PostgreSQL server of this test alone, at a socket in its folder."""
    psycopg = pytest.importorskip("psycopg")
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *map(Path, filter(None, [shutil.which("initdb")]))]
    if not found:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory() as folder:
        data, user = f"{folder}/data", None
        if os.geteuid() == 0:
            # The server refuses to run as root.
            user = "postgres"
            shutil.chown(folder, user)
        run = partial(subprocess.run, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        programs = found[0].resolve().parent
        run([programs / "initdb", "--no-sync", "--auth=trust", "--username=postgres", data])
        options = f"-F -k {folder} -c listen_addresses="
        run([programs / "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start"])
        try:
            with psycopg.connect(host=folder, user="postgres") as db:
                yield db
        finally:
            run([programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"])


def test_the_guard_refuses_a_former_holder_in_postgresql(shown: Shown, q: quorlock.Coordinator, postgres: Any) -> None:
    former, newest = stale(q, "guarded in PostgreSQL")
    for statement in re.findall(r"```sql\n(CREATE.*?)```", FENCING, re.DOTALL)[:1]:
        postgres.execute(statement)
    postgres.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
    postgres.execute("INSERT INTO account VALUES (7, 1)")
    postgres.commit()
    (block,) = [block for block in blocks("docs/fencing-checks.md") if "def guard" in block.code]
    # As the page says.
    code = block.code.replace("?, ?", "%s, %s").partition("with db:")[0]
    names: dict[str, Any] = {"quorlock": quorlock}
    exec(code, names)
    with postgres.transaction():
        names["guard"](postgres, newest)
    with pytest.raises(RuntimeError, match="later holder"), postgres.transaction():
        postgres.execute("UPDATE account SET balance = 2 WHERE id = 7")
        names["guard"](postgres, former)
    assert postgres.execute("SELECT balance FROM account").fetchall() == [(1,)], "it was not rolled back"


def test_the_script_refuses_a_former_holder_in_redis(shown: Shown, q: quorlock.Coordinator, nodes: Servers) -> None:
    pytest.importorskip("redis")
    given = Given(nodes, {}, "")
    with given.ends:
        client = given.client()
        former, newest = stale(q, "guarded in Redis")
        write = shown("docs/fencing-checks.md", "def write", client=client, script=given.script(), lease=newest)[
            "write"
        ]
        with pytest.raises(RuntimeError, match="later holder"):
            write("account:7", former, {"balance": "4"})
        assert client.hget("account:7", "balance") == b"3"
        write("account:7", newest, {"balance": "5", "owner": "anna"})
        assert client.hgetall("account:7")[b"owner"] == b"anna"


def test_a_task_of_celery_tries_again_while_another_process_runs_it(shown: Shown, q: quorlock.Coordinator) -> None:
    exceptions = pytest.importorskip("celery.exceptions")
    ran: list[int] = []

    def store(order: None, fence: int) -> None:
        ran.append(fence)
        q.lock("warehouse", wait=0).acquire().release()

    names = shown("docs/python.md", "class Alone", order=None, store=store)
    task = names["rebuild"]
    assert task.name.endswith("rebuild")
    task.apply(("books",)).get()
    assert len(ran) == 1
    with q.lock(f"{task.name}/('books',){{}}"):
        with pytest.raises(exceptions.Retry) as raised:
            task.apply(("books",), throw=True).get()
        assert raised.value.when == 30
        # However long it takes.
        with pytest.raises(exceptions.Retry):
            task.apply(("books",), throw=True, retries=50).get()
        assert len(ran) == 1
        task.apply(("toys",)).get()
    assert len(ran) == 2
    # Work that has begun is not begun again because of another lock.
    with q.lock("warehouse"), pytest.raises(quorlock.Held):
        task.apply(("books",), throw=True).get()
    names["q"].close()


def test_a_command_of_django_runs_on_one_host_at_a_time(shown: Shown, q: quorlock.Coordinator) -> None:
    management = pytest.importorskip("django.core.management")
    set_up_django()
    ran: list[int] = []
    command = shown("docs/python.md", "BaseCommand", order=None, store=lambda order, fence: ran.append(fence))[
        "Command"
    ]
    management.call_command(command())
    assert len(ran) == 1
    with q.lock("orders/import"), pytest.raises(management.CommandError, match="another host") as raised:
        management.call_command(command())
    assert raised.value.returncode == 75
    assert len(ran) == 1


def test_a_transaction_of_django_ends_before_its_lock(shown: Shown, q: quorlock.Coordinator) -> None:
    pytest.importorskip("django")
    model = accounts()
    from django.db import connection, transaction

    pay = shown("docs/python.md", "transaction.atomic", q=q, Account=model)["pay"]
    model.objects.create(pk=7, balance=10)
    held: list[bool] = []

    def note(execute: Callable[..., Any], sql: str, *others: Any) -> Any:
        if sql.startswith("UPDATE"):
            transaction.on_commit(lambda: held.append(q.lock("accounts/7").inspect().holder is not None))
        return execute(sql, *others)

    with connection.execute_wrapper(note):
        pay(7, 3)
    assert held == [True], "the lock was released before the commit"
    assert q.lock("accounts/7").inspect().holder is None
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        pay(7, 3)
    paid = model.objects.get(pk=7)
    assert (paid.balance, paid.fencing_token > 0) == (7, True)
    model.objects.update(fencing_token=2**62)
    for number in [7, 8]:
        with pytest.raises(RuntimeError, match="later holder"):
            pay(number, 3)
    assert model.objects.get(pk=7).balance == 7


_LOST = """
@app.post("/lost/{number}")
async def lost(lease: Annotated[quorlock.aio.Lease, Depends(order_lease, scope="function")]) -> None:
    await asyncio.to_thread(lose)

@app.post("/busy/{number}")
async def busy(lease: Annotated[quorlock.aio.Lease, Depends(order_lease, scope="function")]) -> None:
    await q.lock("warehouse", wait=0).acquire()
"""


def test_a_dependency_of_fastapi_lets_one_request_work(shown: Shown, q: quorlock.Coordinator) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    names = shown("docs/python.md", "FastAPI()")
    with testclient.TestClient(names["app"], raise_server_exceptions=False) as client:
        first = client.post("/orders/42").json()
        assert client.post("/orders/42").json() > first
        with q.lock("orders/42"):
            assert client.post("/orders/42").status_code == 409
            assert client.post("/orders/43").status_code == 200

        def lose() -> None:
            holder = q.lock("orders/44").inspect().holder
            assert holder is not None
            q.lock("orders/44").revoke(holder.token)

        # It is lost while the request works, which does not look.
        names |= {"asyncio": asyncio, "lose": lose}
        exec(_LOST, names)
        assert client.post("/lost/44").status_code == 500, "the response was sent although the lock was lost"
        with q.lock("warehouse"):
            assert client.post("/busy/45").status_code == 500, "another lock was held, not that of the order"


def test_the_text_of_the_guard_is_that_of_the_page() -> None:
    (block,) = [block for block in blocks("docs/fencing-checks.md") if "def guard" in block.code]
    statement = block.code.split('"""')[1].strip().replace("(?, ?)", "($1, $2)")
    assert f"```sql\n{statement}\n```" in FENCING
