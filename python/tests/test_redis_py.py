"""redis-py's own tests of its locks, unchanged, on quorlock's locks with the calls of redis-py.

Each that fails is named here, with the difference that `docs/python.md` names: none is a wait without an end, or a call
that did nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

import pytest

from quorlock.testing import servers

pytest.importorskip("redis")
pytest.importorskip("pytest_asyncio")

#: How the page begins each difference that makes a test fail.
TOKEN = "`acquire(token=)` is refused"
ENDLESS = "A lock without `timeout` has a TTL"

FAILURES = {
    "test_lock": ENDLESS,
    "test_lock_token": TOKEN,
    "test_lock_token_thread_local_false": TOKEN,
}
#: Each with how many pass, and how many there are.
FILES = {"tests/test_lock.py": (29, 32), "tests/test_asyncio/test_lock.py": (54, 60)}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of the installed redis-py, unpacked. `scripts/python` has downloaded it."""
    folder, version = tmp_path_factory.mktemp("redis-py"), metadata.version("redis")
    archive = Path(os.environ.get("REDIS_PY_SOURCES", "")) / f"redis-{version}.tar.gz"
    if not archive.exists():
        pytest.skip(f"no {archive.name}: run scripts/python")
    with tarfile.open(archive) as packed:
        # Early releases of 3.10 and 3.11 have no filters.
        packed.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    # Its own package is left out: the installed one is tested.
    unpacked = folder / f"redis-{version}"
    os.rename(unpacked / "redis", folder / "redis-source")
    return unpacked


@pytest.mark.parametrize("file", FILES)
def test_what_fails_of_redis_py_s_own_tests_is_on_the_page(suite: Path, file: str) -> None:
    results = suite / "results.xml"
    with servers(1) as nodes:
        path = os.pathsep.join([str(suite), str(Path(__file__).parent), *(entry for entry in sys.path if entry)])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "redis_py_locks"]
        command += ["-c", str(suite / "pyproject.toml"), "-o", "addopts=", f"--junit-xml={results}"]
        command += [f"--redis-url={nodes.urls[0]}", file]
        environment = {**os.environ, "PYTHONPATH": path, "REDIS_VERSION": ""}
        ended = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=300)
    said = ended.stdout[-6000:] + ended.stderr[-2000:]
    assert results.exists(), said
    cases = list(ElementTree.parse(results).iter("testcase"))
    failed: dict[str, str] = {}
    for case in cases:
        name = re.sub(r"\[.*", "", case.attrib["name"])
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        if wrong is not None:
            failed[name] = (wrong.text or "")[-1500:]
    assert failed.keys() <= FAILURES.keys(), {name: failed[name] for name in failed.keys() - FAILURES.keys()}
    # What has come to pass is taken off the list.
    assert failed.keys() == FAILURES.keys(), FAILURES.keys() - failed.keys()
    wrong = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    assert (len(cases) - wrong, len(cases)) == FILES[file], said


def test_the_page_names_each_difference() -> None:
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    figures = [f"{passed} of {all_}" for passed, all_ in FILES.values()]
    for difference in [*FAILURES.values(), *[f"`{name}`" for name in FAILURES], *figures]:
        assert difference in page, difference
