"""Fixtures of pytest, which finds them by itself where this package is installed.

def test_it_runs_once(quorlock_nodes):
    with quorlock.connect() as q, q.lock("import"):
        assert my_program.main() == 75  # the lock is held
        quorlock_nodes.kill(0)
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import quorlock

__all__ = ["quorlock_nodes", "quorlock_q"]


@pytest.fixture
def quorlock_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[quorlock.testing.Servers]:
    """Five servers of this test alone, which it may `kill`, `restart`, `freeze` and `thaw`. `quorlock.connect()`
    without addresses uses them, in this process and in those that it starts; so does the command `quorlock`. Other
    settings of the project, in its `quorlock.toml` or in variables, do not apply."""
    with quorlock.testing.servers(5) as nodes:
        for name in [name for name in os.environ if name.startswith("QUORLOCK_") and name != "QUORLOCK_SERVER"]:
            monkeypatch.delenv(name)
        # A file of the project may have a quorum or a password of other nodes.
        monkeypatch.setenv("QUORLOCK_CONFIG", os.devnull)
        monkeypatch.setenv("QUORLOCK_NODES", ",".join(nodes.urls))
        # They are new, and have forgotten nothing.
        monkeypatch.setenv("QUORLOCK_RESTART_GUARD", "off")
        yield nodes


@pytest.fixture
def quorlock_q(quorlock_nodes: quorlock.testing.Servers) -> Iterator[quorlock.Coordinator]:
    """A coordinator on the servers of `quorlock_nodes`."""
    with quorlock_nodes.connect() as q:
        yield q
