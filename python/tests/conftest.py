"""Fixtures: servers for all tests, which no test kills, and a coordinator on them."""

from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

import quorlock
from quorlock.testing import Servers, servers


@pytest.fixture(scope="session")
def nodes() -> Iterator[Servers]:
    with servers(5) as nodes:
        yield nodes


@pytest.fixture
def q(nodes: Servers) -> Iterator[quorlock.Coordinator]:
    with nodes.connect() as q:
        yield q


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
