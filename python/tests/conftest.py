from collections.abc import Iterator

import pytest

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
