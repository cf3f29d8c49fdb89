"""A password that changes while tasks hold and want locks."""

from __future__ import annotations

import asyncio
import pathlib
import re

import pytest

import quorlock
from quorlock import aio
from quorlock.testing import Servers, servers

TASKS = 64
ROTATIONS = 5
EVERY = 2.0
PATIENCE = 60.0


def _password(number: int) -> str:
    return f"number-{number}"


def _allow(nodes: Servers, *passwords: str) -> None:
    """Lets the user log in with these passwords alone, and ends all connections."""
    user = ["ACL", "SETUSER", "locks", "reset", "on", "~*", "&*", "+@all", *(f">{word}" for word in passwords)]
    for index in range(3):
        assert nodes.command(index, *user) == "OK"
        nodes.command(index, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _change(file: pathlib.Path, number: int) -> None:
    following = file.with_name("next")
    following.write_text(_password(number))
    following.replace(file)


def test_a_password_that_rotates_every_two_seconds_under_64_tasks_costs_no_lock(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    done, over = 0, False

    async def cycles(q: aio.Coordinator, name: str) -> None:
        nonlocal done
        while not over:
            async with q.lock(name, ttl=10, wait=PATIENCE):
                pass
            done += 1

    async def more_than(count: int) -> None:
        while done <= count:
            await asyncio.sleep(0.05)

    async def main(nodes: Servers, urls: list[str]) -> None:
        nonlocal over
        async with aio.connect(urls, username="locks", password_file=file, restart_guard=False) as q:
            held = [await q.lock(f"held/{number}", ttl=10).acquire() for number in range(TASKS // 2)]
            # Two tasks for each name, so that some wait.
            tasks = [asyncio.create_task(cycles(q, f"wanted/{number // 2}")) for number in range(TASKS // 2)]
            for number in range(1, ROTATIONS + 1):
                _change(file, number)
                await asyncio.to_thread(_allow, nodes, _password(number - 1), _password(number))
                await asyncio.wait_for(more_than(done + TASKS), PATIENCE)
                for lease in held:
                    lease.check()
                await asyncio.sleep(EVERY)
            over = True
            await asyncio.gather(*tasks)
            for lease in held:
                await lease.release()

    with servers(3) as nodes:
        urls = [re.sub("//.*@", "//", url) for url in nodes.urls]
        _change(file, 0)
        _allow(nodes, _password(0))
        asyncio.run(main(nodes, urls))
        with (
            quorlock.connect(urls, username="locks", password=_password(0), restart_guard=False) as stale,
            pytest.raises(quorlock.AcquireError, match="rejects the password"),
        ):
            stale.lock("held/0", wait=0).acquire()
