"""The fixtures of pytest, in a project that has installed the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PROJECT = {
    "shop.py": """
import quorlock

def sell():
    with quorlock.connect() as q:
        lease = q.lock("shop", wait=0).try_acquire()
        return None if lease is None else lease.fencing_token
""",
    "test_shop.py": """
import os, subprocess, sys
import pytest
import quorlock
import shop

def test_the_code_under_test_uses_the_servers(quorlock_nodes, quorlock_q):
    assert shop.sell() > 0
    with quorlock_q.lock("shop"):
        assert shop.sell() is None

def test_so_does_a_process_that_it_starts(quorlock_q):
    with quorlock_q.lock("shop"):
        sold = subprocess.run([sys.executable, "-c", "import shop; print(shop.sell())"], capture_output=True, text=True)
        assert sold.stdout == "None\\n", sold.stderr

def test_a_test_may_break_them(quorlock_nodes):
    for index in range(3):
        quorlock_nodes.kill(index)
    with pytest.raises(quorlock.NoQuorum):
        shop.sell()

def test_the_next_has_its_own(quorlock_nodes):
    assert shop.sell() > 0

def test_without_the_fixture_nothing_is_set():
    assert "QUORLOCK_NODES" not in os.environ
""",
}


def _run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # The same package as here, wherever it is installed; and none of this suite's settings.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {name: value for name, value in os.environ.items() if name != "QUORLOCK_NODES"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, **variables, "PYTHONPATH": path},
    )


def test_a_project_that_has_installed_the_package_has_its_fixtures(tmp_path: Path) -> None:
    for name, code in _PROJECT.items():
        (tmp_path / name).write_text(code)
    ended = _run(tmp_path, "-q")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout


@pytest.mark.parametrize(
    "setting", ["quorum = 2", "password-file = '/nowhere'", "username = 'me'", "key-prefix = 'shop/'"]
)
def test_settings_of_the_project_do_not_apply_to_its_test_servers(tmp_path: Path, setting: str) -> None:
    for name, code in _PROJECT.items():
        (tmp_path / name).write_text(code)
    (tmp_path / "quorlock.toml").write_text(f"nodes = ['redis://a', 'redis://b', 'redis://c']\n{setting}\n")
    ended = _run(tmp_path, "-q", "-k", "uses_the_servers or starts", QUORLOCK_QUORUM="2", QUORLOCK_TTL="40")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def test_the_fixtures_are_listed_with_what_they_are(tmp_path: Path) -> None:
    listed = _run(tmp_path, "--fixtures", "-q").stdout
    for name in ["quorlock_nodes", "quorlock_q"]:
        assert re.search(rf"^{name}\b.*\n +\w", listed, re.MULTILINE), listed
