"""Fixtures: servers for all tests, which no test kills, and a coordinator on them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

import quorlock
from programs import Face
from quorlock.testing import Servers, servers


@pytest.fixture(scope="session")
def nodes() -> Iterator[Servers]:
    with servers(5) as nodes:
        yield nodes


@pytest.fixture
def q(nodes: Servers) -> Iterator[quorlock.Coordinator]:
    with nodes.connect() as q:
        yield q


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest, nodes: Servers) -> Iterator[Face]:
    """A coordinator, and what waits for the result of a call of it."""
    if request.param == "threads":
        with nodes.connect() as q:
            yield q, lambda result: result
    else:
        with asyncio.Runner() if hasattr(asyncio, "Runner") else Loop() as runner:
            q = nodes.aio_connect()
            yield q, lambda result: runner.run(result) if inspect.iscoroutine(result) else result
            runner.run(q.close())


class Loop:
    """As `asyncio.Runner`, which Python 3.10 has not."""

    def __enter__(self) -> Loop:
        self.loop = asyncio.new_event_loop()
        return self

    def run(self, awaited: Any) -> Any:
        return self.loop.run_until_complete(awaited)

    def __exit__(self, *raised: object) -> None:
        self.loop.close()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints the figures as `cargo test` does, for the sum of `scripts/check`."""
    counts = {kind: len(terminalreporter.stats.get(kind, [])) for kind in ["passed", "failed", "error", "skipped"]}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"skipped: {report.nodeid}: {str(reason).removeprefix('Skipped: ')}")
    failed = counts["failed"] + counts["error"]
    terminalreporter.write_line(
        f"test result: {'FAILED' if failed else 'ok'}. {counts['passed']} passed; {failed} failed; "
        f"{counts['skipped']} ignored; 0 measured; 0 filtered out"
    )
