"""Runs what the pages show of Python: code blocks, and cells of tables.

Later blocks of a page see what earlier ones have imported. `Given` has the names that a block or cell uses without
defining them, such as `order` and `store`. Addresses are replaced by those of servers of the test.
"""

import ast
import asyncio
import builtins
import functools
import inspect
import json
import os
import re
import sqlite3
import subprocess
import symtable
import sys
import textwrap
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

import quorlock
import quorlock.aio
import quorlock.metrics
from programs import accounts, set_up_django
from quorlock.testing import Servers

ROOT = Path(__file__).parents[2]
FENCING = (ROOT / "docs/fencing-checks.md").read_text()
#: A block that follows a state never ends.
A_WHILE = 1.0


class Piece(NamedTuple):
    """A code block, or a cell."""

    place: str
    section: str
    code: str

    def compile(self) -> CodeType:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(self.code, self.place, "exec", flags=flags, dont_inherit=True)
        return code

    @property
    def missing(self) -> set[str]:
        """The names that it reads, and does not define."""
        tables = [symtable.symtable(self.code, self.place, "exec")]
        defined = {
            symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()
        }
        read: set[str] = set()
        while tables:
            table = tables.pop()
            read |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
            tables += table.get_children()
        return read - defined - set(dir(builtins))


def blocks(page: str) -> list[Piece]:
    """The blocks of Python of a page."""
    text = (ROOT / page).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Piece(f"{page}:{line_of(text, block.start())}", "", block[1]) for block in found]


def line_of(text: str, offset: int) -> int:
    return 1 + text.count("\n", 0, offset)


def cells(page: str, heading: str) -> list[Piece]:
    """The code in the second column of the tables whose second heading is this."""
    found, section, wanted = [], "", False
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            wanted = False
            continue
        # A bar in the code is escaped in the table.
        row = [cell.replace("\x01", "|").strip() for cell in line.replace("\\|", "\x01").strip("|").split("|")]
        if row[1] == heading:
            wanted = True
        elif wanted and row[1].strip("-"):
            assert row[1].count("`") == 2, f"{page}:{number}: {row[1]!r} is not one piece of code"
            assert row[1][0] == row[1][-1] == "`", f"{page}:{number}: {row[1]!r} is more than code"
            found.append(Piece(f"{page}:{number}", section, row[1].strip("`")))
    return found


class Anything:
    """What helpers in examples return. It may be awaited."""

    def __await__(self) -> Generator[Any, None, "Anything"]:
        yield from asyncio.sleep(0).__await__()
        return self


def helper(*_arguments: object, **_keywords: object) -> Anything:
    return Anything()


class Given:
    """Makes the names that a piece uses and does not define."""

    def __init__(self, nodes: Servers, namespace: dict[str, Any], prefix: str) -> None:
        self.nodes, self.namespace, self.prefix = nodes, namespace, prefix
        self.ends = ExitStack()

    def add(self, missing: set[str]) -> None:
        for name in sorted(missing - self.namespace.keys()):
            make = getattr(self, name, None)
            assert make is not None, f"`{name}` is neither defined on the page nor given by the test"
            self.namespace[name] = make()

    @functools.cached_property
    def coordinator(self) -> quorlock.Coordinator:
        """Of its own for each page and cell, so that no two of them want the same lock."""
        return self.ends.enter_context(self.nodes.connect(key_prefix=self.prefix))

    def q(self) -> quorlock.Coordinator:
        return self.coordinator

    def lock(self) -> quorlock.Lock:
        return self.coordinator.lock("orders/42")

    def lease(self) -> quorlock.Lease:
        return self.coordinator.lock("orders/43").acquire()

    def error(self) -> quorlock.Held:
        self.namespace["_other"] = self.lease()
        with pytest.raises(quorlock.Held) as raised:
            self.coordinator.lock("orders/43", wait=0).acquire()
        return raised.value

    def Account(self) -> object:
        pytest.importorskip("django")
        return accounts()

    def holder(self) -> quorlock.Holder | None:
        self.namespace["_other"] = self.lock().acquire()
        return self.lock().inspect().holder

    def urls(self) -> list[str]:
        return self.nodes.urls

    def quorlock(self) -> object:
        return quorlock

    def timedelta(self) -> object:
        return timedelta

    def order(self) -> object:
        return object()

    def store(self) -> Callable[..., Anything]:
        return helper

    load = work = stop = store

    def db(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
        for first in ["ALTER", "CREATE"]:
            found = re.search(rf"```sql\n({first}.*?)```", FENCING, re.DOTALL)
            assert found
            db.execute(found[1])
        return db

    def client(self) -> Any:
        client = pytest.importorskip("redis").Redis.from_url(self.nodes.urls[0])
        self.ends.callback(client.close)
        return client

    def script(self) -> str:
        found = re.search(r"```lua\n(.*?)```", FENCING, re.DOTALL)
        assert found
        return found[1]


class GivenToLoops(Given):
    """The same for code with `await`."""

    async def add_awaited(self, missing: set[str]) -> None:
        q = self.nodes.aio_connect(key_prefix=self.prefix)
        made: dict[str, Any] = {"q": q, "lock": q.lock("orders/42")}
        if "lease" in missing:
            made["lease"] = await q.lock("orders/43").acquire()
        for name, value in made.items():
            self.namespace.setdefault(name, value)
        self.add(missing)


def run(piece: Piece, nodes: Servers, namespace: dict[str, Any], prefix: str) -> None:
    """Runs a piece, and raises what it raises."""
    code = piece.compile()
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(run_awaited(piece, code, nodes, namespace, prefix))
        return
    given = Given(nodes, namespace, prefix)
    with given.ends:
        given.add(piece.missing)
        exec(code, namespace)
    if "scheduler" in namespace and hasattr(namespace["scheduler"], "shutdown"):
        # Its threads would go on in the tests of schedulers.
        namespace["scheduler"].shutdown()


async def run_awaited(piece: Piece, code: CodeType, nodes: Servers, namespace: dict[str, Any], prefix: str) -> None:
    given = GivenToLoops(nodes, namespace, prefix)
    with given.ends:
        await given.add_awaited(piece.missing)
        running = asyncio.ensure_future(eval(code, namespace))
        endless = "async for" in piece.code
        done, _ = await asyncio.wait([running], timeout=A_WHILE if endless else 60)
        if not done and endless:
            running.cancel()
            return
        assert done, f"{piece.place} does not end"
        await running


@pytest.fixture
def environment(nodes: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers are new, and have forgotten nothing."""
    monkeypatch.setenv("QUORLOCK_NODES", ",".join(nodes.urls))
    monkeypatch.setenv("QUORLOCK_RESTART_GUARD", "off")
    for module in [quorlock, quorlock.aio]:
        monkeypatch.setattr(module, "connect", functools.partial(module.connect, restart_guard=False))


#: The sections of docs/migration.md for users of Python, and how many cells they have at least.
SECTIONS = {"redlock-py": 9, "pottery": 15, "redis-py's `Lock`": 15}
MIGRATION = cells("docs/migration.md", "from Python")
OVERVIEW = cells("docs/python.md", "write")


def test_every_section_for_users_of_python_has_its_cells() -> None:
    for section, least in SECTIONS.items():
        found = [cell for cell in MIGRATION if cell.section == section]
        assert len(found) >= least, f"{section} has {len(found)} cells with code"
    assert {cell.section for cell in MIGRATION} == SECTIONS.keys()
    assert len(OVERVIEW) >= 14


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("cell", MIGRATION + OVERVIEW, ids=lambda cell: cell.place)
def test_a_cell_runs(cell: Piece, nodes: Servers) -> None:
    run(cell, nodes, {}, f"{cell.place}/")


PAGES = {"docs/python.md": 12, "docs/fencing-checks.md": 2, "python/README.md": 2, "README.md": 1}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_blocks(page: str) -> None:
    assert len(blocks(page)) >= PAGES[page]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, nodes: Servers, tmp_path: Path) -> None:
    if find_spec("django"):
        set_up_django()
    namespace: dict[str, Any] = {}
    imported = ""
    for block in blocks(page):
        with_real_nodes = Piece(block.place, "", replace_addresses(block.code, nodes.urls))
        imported += block.code
        for module in re.findall(r"\bquorlock\.(aio|metrics|testing|celery|apscheduler|redis_lock)\b", block.code):
            wanted = rf"import quorlock\.{module}\b|from quorlock import .*\b{module}\b|from quorlock\.{module} import"
            assert re.search(wanted, imported), f"{block.place}: quorlock.{module} is not imported"
        try:
            if "def test_" in block.code:
                run_with_pytest(with_real_nodes.code, tmp_path)
            else:
                run(with_real_nodes, nodes, namespace, f"{page}/")
                namespace = {name: value for name, value in namespace.items() if isinstance(value, ModuleType)}
        except Exception as error:
            raise AssertionError(f"{block.place}: {error!r}") from error


def replace_addresses(code: str, urls: list[str]) -> str:
    """Replaces the hosts of examples, each by another server."""
    hosts: dict[str, str] = {}
    left: Iterator[str] = iter(urls)

    def real(address: re.Match[str]) -> str:
        if address[0] not in hosts:
            hosts[address[0]] = next(left)
        return hosts[address[0]]

    return re.sub(r"rediss?://[\w.:-]+", real, code)


def run_with_pytest(code: str, folder: Path) -> None:
    """Runs a block that is a test."""
    test = folder / "test_block.py"
    test.write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
    # The same package as here, wherever it is installed.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


#: The types of the names that `Given` makes, for threads and for event loops.
TYPES = {
    "q": ("q: quorlock.Coordinator", "q: quorlock.aio.Coordinator"),
    "lock": ("lock: quorlock.Lock", "lock: quorlock.aio.Lock"),
    "lease": ("lease: quorlock.Lease", "lease: quorlock.aio.Lease"),
    "error": ("error: quorlock.Held",) * 2,
    "holder": ("holder: quorlock.Holder",) * 2,
    "order": ("order: object",) * 2,
    "Account": ("Account: Any",) * 2,
    "urls": ("urls: list[str]",) * 2,
    "db": ("db: sqlite3.Connection",) * 2,
    "client": ("client: redis.Redis",) * 2,
    "script": ("script: str",) * 2,
    "timedelta": ("from datetime import timedelta",) * 2,
    "store": (
        "def store(order: object, fence: int | None) -> None: ...",
        "async def store(order: object, fence: int | None) -> None: ...",
    ),
    "load": ("def load(*a: object) -> int: ...", "async def load(*a: object) -> int: ..."),
    "work": ("def work(*a: object) -> None: ...", "async def work(*a: object) -> None: ..."),
    "stop": ("def stop() -> None: ...", "async def stop() -> None: ..."),
}


def typed(piece: Piece, imports: list[str]) -> str:
    """A module with the piece as a reader would paste it, after the imports of earlier ones."""
    on_a_loop = bool(piece.compile().co_flags & inspect.CO_COROUTINE)
    known = {name.split(".")[0] for line in imports for name in re.findall(r"[\w.]+", line.split("import", 1)[1])}
    given = [TYPES[name][on_a_loop] for name in sorted(piece.missing - known - {"quorlock"})]
    given = [f"{line} = _given" if re.fullmatch(r"\w+: .*", line) else line for line in given]
    code = piece.code
    if on_a_loop:
        code = "async def main() -> None:\n" + textwrap.indent(code, "    ")
    imported = "\n".join([*imports, code])
    untyped = [
        line for packages, line in UNTYPED.items() if re.search(rf"^from ({packages})\b", imported, re.MULTILINE)
    ]
    head = [
        *untyped,
        "from typing import Any",
        "import sqlite3, redis",
        "import quorlock, quorlock.aio",
        *imports,
        "_given: Any = None",
    ]
    return "\n".join([*head, *given, "", code])


def imports_of(code: str) -> list[str]:
    statements = ast.parse(code).body
    return [ast.unparse(one) for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]


@pytest.fixture(scope="module")
def pasted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module for each example."""
    folder = tmp_path_factory.mktemp("pasted")
    for page in PAGES:
        imports: list[str] = []
        for number, block in enumerate(blocks(page)):
            (folder / f"{re.sub('[^a-z]', '_', page.lower())}_{number}.py").write_text(typed(block, imports))
            imports += imports_of(block.code)
    for number, piece in enumerate(OVERVIEW + MIGRATION):
        (folder / f"cell_{number}.py").write_text(typed(piece, []))
    (folder / "stack.py").write_text(STACK)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return folder


#: pyright takes a context for one only if `__aenter__` is an `async def`.
STACK = """
from contextlib import AsyncExitStack
from quorlock import aio

async def main(lock: aio.Lock, semaphore: aio.Semaphore, stack: AsyncExitStack) -> None:
    (await stack.enter_async_context(lock)).check()
    (await stack.enter_async_context(semaphore)).check()
"""

#: A piece has the imports of the whole page, and need not use all.
PYRIGHT = {
    "typeCheckingMode": "strict",
    **dict.fromkeys(
        [
            "reportDuplicateImport",
            "reportUnusedExpression",
            "reportUnusedImport",
            "reportUnusedVariable",
            "reportUnusedFunction",
        ],
        False,
    ),
}
#: Packages without types. What Django's `atomic` returns depends on its arguments.
UNTYPED = {
    "celery|apscheduler|django|django_celery_beat": (
        "# pyright: reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false, "
        + ", ".join(f"reportUnknown{what}Type=false" for what in ["Argument", "Member", "Variable"])
    ),
    "django": "# pyright: reportGeneralTypeIssues=false",
}
CHECKERS = {
    "mypy": [
        "--strict",
        "--no-incremental",
        "--ignore-missing-imports",
        "--allow-untyped-decorators",
        "--allow-subclassing-any",
    ],
    "pyright": ["--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_examples_pass_the_type_checkers_as_a_reader_would_paste_them(pasted: Path, checker: str) -> None:
    pytest.importorskip(checker)
    command = [sys.executable, "-m", checker, *CHECKERS[checker], str(pasted)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=pasted)
    assert ended.returncode == 0, ended.stdout + ended.stderr
