"""Compares quorlock with other lock libraries for Python, on the same servers and in one process.

    cd python && maturin build --release --out dist
    python -m venv peers && peers/bin/pip install dist/quorlock-*.whl redis hiredis redlock-py pottery aioredlock
    peers/bin/python benches/peers.py            # about eight minutes
    peers/bin/python benches/peers.py --quick    # about one, and less exact

It starts five servers (`QUORLOCK_SERVER` names another program than those of `quorlock.testing.servers`), and prints
Markdown. A peer that is not installed, or does not run on this Python, is left out, with the reason.

In each round every library takes its turn, in another order each time. A ratio is the median of the ratios within the
rounds, so that a machine that is busy for a while slows both sides. Spreads are the smallest and the largest round.

A cycle acquires a lock and releases it, as a user would write it. `fresh` is another name for each cycle, `own` is one
name for each thread or task, `one` is the same name for all. The defaults of each library apply, but for the TTL of
30 s: quorlock also draws a fencing token, renews in the background, and waits until a quorum has confirmed a release.
Part (c) has it without fencing tokens as well, which the others do not have.
CPU is that of this process, without the servers. The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from statistics import median
from typing import Any

import quorlock
import quorlock.aio
from quorlock.testing import servers

TTL = 30
WORKERS = 64

#: At most so many times the cycle of redis-py on one server.
MOST_OF_REDIS_PY = 1.3
#: At least so many times the locks per second of the others.
LEAST_OF_THREADS = 10.0
LEAST_OF_ASYNCIO = 3.0

#: Acquires and releases a name. Gives up at the time given, and returns whether it had the lock.
Cycle = Callable[[str, float], bool]
AsyncCycle = Callable[[str, float], Awaitable[bool]]


@dataclass
class Peer:
    """A library in one setting."""

    name: str
    cycle: Cycle | None = None
    async_cycle: AsyncCycle | None = None
    close: Callable[[], Any] = lambda: None
    #: Figures of each round, by mode.
    figures: dict[str, list[float]] = field(default_factory=dict)
    #: Seconds of CPU for each cycle, likewise.
    cpu: dict[str, list[float]] = field(default_factory=dict)


def quorlock_threads(urls: list[str], fencing: bool = True) -> Peer:
    coordinator = quorlock.connect(urls, restart_guard=False, ttl=TTL)

    def cycle(name: str, until: float) -> bool:
        with coordinator.lock(name, fencing=fencing):
            return True

    return Peer("quorlock" if fencing else "quorlock, `fencing=False`", cycle, close=coordinator.close)


async def quorlock_asyncio(urls: list[str], fencing: bool = True) -> Peer:
    coordinator = quorlock.aio.connect(urls, restart_guard=False, ttl=TTL)

    async def cycle(name: str, until: float) -> bool:
        async with coordinator.lock(name, fencing=fencing):
            return True

    return Peer(
        "quorlock.aio" if fencing else "quorlock.aio, `fencing=False`", async_cycle=cycle, close=coordinator.close
    )


def redis_py(urls: list[str], hiredis: bool) -> Peer:
    import redis
    from redis import _parsers

    if hiredis:
        # Raises if that is not installed.
        client = redis.Redis.from_url(urls[0], parser_class=_parsers._HiredisParser)
    else:
        # A connection takes the one for its version of the protocol.
        client = redis.Redis.from_url(urls[0], parser_class=_parsers._RESP2Parser)

    def cycle(name: str, until: float) -> bool:
        with client.lock(name, timeout=TTL):
            return True

    return Peer(f"redis-py `Lock`, {'hiredis' if hiredis else 'without hiredis'}", cycle, close=client.close)


def redlock_py(urls: list[str]) -> Peer:
    from redlock import Redlock

    manager = Redlock(urls)

    def cycle(name: str, until: float) -> bool:
        while not (lock := manager.lock(name, TTL * 1000)):
            if time.perf_counter() > until:
                return False
        manager.unlock(lock)
        return True

    return Peer("redlock-py", cycle)


def pottery(urls: list[str]) -> Peer:
    from pottery import Redlock
    from redis import Redis

    masters = {Redis.from_url(url) for url in urls}

    def cycle(name: str, until: float) -> bool:
        lock = Redlock(key=name, masters=masters, auto_release_time=TTL)
        if not lock.acquire(timeout=max(until - time.perf_counter(), 0.0)):
            return False
        lock.release()
        return True

    return Peer("pottery `Redlock`", cycle)


async def pottery_asyncio(urls: list[str]) -> Peer:
    from pottery import AIORedlock
    from redis.asyncio import Redis

    masters = {Redis.from_url(url) for url in urls}

    async def cycle(name: str, until: float) -> bool:
        lock = AIORedlock(key=name, masters=masters, auto_release_time=TTL)
        if not await lock.acquire(timeout=max(until - time.perf_counter(), 0.0)):
            return False
        await lock.release()
        return True

    async def close() -> None:
        for master in masters:
            await master.aclose()

    return Peer("pottery `AIORedlock`", async_cycle=cycle, close=close)


async def aioredlock(urls: list[str]) -> Peer:
    from aioredlock import Aioredlock, LockError

    manager = Aioredlock(urls)

    async def cycle(name: str, until: float) -> bool:
        while True:
            try:
                lock = await manager.lock(name, lock_timeout=TTL)
                break
            except LockError:
                if time.perf_counter() > until:
                    return False
        await manager.unlock(lock)
        return True

    return Peer("aioredlock", async_cycle=cycle, close=manager.destroy)


async def redis_asyncio(urls: list[str]) -> Peer:
    from redis.asyncio import Redis

    client = Redis.from_url(urls[0])

    async def cycle(name: str, until: float) -> bool:
        lock = client.lock(name, timeout=TTL, blocking_timeout=max(until - time.perf_counter(), 0.0))
        if not await lock.acquire():
            return False
        await lock.release()
        return True

    return Peer("redis.asyncio `Lock`, one server", async_cycle=cycle, close=client.aclose)


class Bench:
    """The servers, an event loop, and what was left out."""

    def __init__(self, urls: list[str], rounds: int, cycles: int, seconds: float) -> None:
        self.urls = urls
        self.rounds = rounds
        self.cycles = cycles
        self.seconds = seconds
        self.loop = asyncio.new_event_loop()
        self.numbers = count()
        self.left_out: list[str] = []

    def peers(self, *makers: tuple[Any, ...]) -> list[Peer]:
        """Those that run here, of functions with arguments. Each has done some cycles, which have connected it."""
        peers = []
        for make, *arguments in makers:
            try:
                peer = make(*arguments)
                if asyncio.iscoroutine(peer):
                    peer = self.loop.run_until_complete(peer)
                self.one(peer, "fresh", 20)
            except Exception as error:
                self.left_out.append(f"{make.__name__}, {type(error).__name__}: {error}")
            else:
                peers.append(peer)
        return peers

    def turns(self, peers: list[Peer]) -> Iterator[Peer]:
        for turn in range(self.rounds):
            shift = turn % len(peers)
            yield from peers[shift:] + peers[:shift]

    def end(self, peers: list[Peer]) -> None:
        for peer in peers:
            closing = peer.close()
            if asyncio.iscoroutine(closing):
                self.loop.run_until_complete(closing)

    def names(self, mode: str) -> Callable[[int], str]:
        """Names for a worker."""
        run = next(self.numbers)
        if mode == "fresh":
            return lambda worker: f"bench/{run}/{worker}/{next(self.numbers)}"
        if mode == "own":
            return lambda worker: f"bench/{worker}"
        return lambda worker: "bench/one"

    def one(self, peer: Peer, mode: str, cycles: int) -> list[float]:
        """The seconds of so many cycles, one after another."""
        name, until = self.names(mode), time.perf_counter() + 600
        times = []
        clock = time.perf_counter
        if (cycle := peer.cycle) is not None:
            for _ in range(cycles):
                started = clock()
                assert cycle(name(0), until)
                times.append(clock() - started)
            return times
        async_cycle = peer.async_cycle
        assert async_cycle is not None

        async def run() -> None:
            for _ in range(cycles):
                started = clock()
                assert await async_cycle(name(0), until)
                times.append(clock() - started)

        self.loop.run_until_complete(run())
        return times

    def latencies(self, peers: list[Peer]) -> None:
        """Median cycles of one thread or task."""
        for peer in self.turns(peers):
            for mode in ("fresh", "one"):
                cpu = time.process_time()
                times = self.one(peer, mode, self.cycles)
                peer.cpu.setdefault(mode, []).append((time.process_time() - cpu) / self.cycles)
                peer.figures.setdefault(mode, []).append(median(times))

    def many(self, peer: Peer, mode: str) -> int:
        """How many cycles many workers end in time."""
        name = self.names(mode)
        ended = [0] * WORKERS
        until = time.perf_counter() + self.seconds
        if (cycle := peer.cycle) is not None:

            def work(worker: int) -> None:
                while time.perf_counter() < until:
                    if cycle(name(worker), until) and time.perf_counter() <= until:
                        ended[worker] += 1

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sum(ended)
        async_cycle = peer.async_cycle
        assert async_cycle is not None

        async def run(worker: int) -> None:
            while time.perf_counter() < until:
                if await async_cycle(name(worker), until) and time.perf_counter() <= until:
                    ended[worker] += 1

        async def run_all() -> None:
            await asyncio.gather(*(run(worker) for worker in range(WORKERS)))

        self.loop.run_until_complete(run_all())
        return sum(ended)

    def throughputs(self, peers: list[Peer], modes: tuple[str, ...]) -> None:
        """Locks per second of many threads or tasks."""
        seconds, self.seconds = self.seconds, 0.3
        for peer in peers:
            # Connects all workers.
            self.many(peer, "own")
        self.seconds = seconds
        for peer in self.turns(peers):
            for mode in modes:
                cpu = time.process_time()
                ended = self.many(peer, mode)
                peer.cpu.setdefault(mode, []).append((time.process_time() - cpu) / max(ended, 1))
                peer.figures.setdefault(mode, []).append(ended / self.seconds)


def paired(mine: Peer, other: Peer, mode: str) -> float:
    """The median of the ratios within the rounds."""
    pairs = zip(mine.figures[mode], other.figures[mode], strict=True)
    return median(a / b if b else float("inf") for a, b in pairs)


def table(peers: list[Peer], modes: tuple[str, ...], unit: str, scale: float, digits: int) -> None:
    print("|  | " + " | ".join(f"`{mode}`: {unit} (spread) | CPU, µs" for mode in modes) + " |")
    print("|---" + "|---:|---:" * len(modes) + "|")
    for peer in peers:
        cells = []
        for mode in modes:
            figures = [figure * scale for figure in peer.figures[mode]]
            middle, least, most = (f"{figure:,.{digits}f}" for figure in (median(figures), min(figures), max(figures)))
            cells.append(f"{middle} ({least} to {most}) | {median(peer.cpu[mode]) * 1e6:,.0f}")
        print(f"| {peer.name} | " + " | ".join(cells) + " |")
    print()


class Goals:
    def __init__(self) -> None:
        self.rows: list[str] = []
        self.missed: list[str] = []

    def check(self, what: str, ratio: float, goal: float, at_most: bool) -> None:
        met = ratio <= goal if at_most else ratio >= goal
        self.rows.append(
            f"| {what} | {ratio:.2f} | {'at most' if at_most else 'at least'} {goal:g} | {'met' if met else 'MISSED'} |"
        )
        if not met:
            self.missed.append(what)


def versions(kind: str) -> None:
    packages = []
    for package in ("quorlock", "redis", "hiredis", "redlock-py", "pottery", "aioredlock", "aioredis"):
        with suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    print(f"- Date: {subprocess.run(['date'], capture_output=True, text=True, check=True).stdout.strip()}")
    print(f"- {platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.release()}")
    print(f"- CPU: {cpu()}, {os.cpu_count()} of them; load before: {os.getloadavg()[0]:.1f}")
    print(f"- Server: {kind.split(' (')[0]}, on the same machine")
    print(f"- Libraries: {', '.join(packages)}")


def cpu() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def one_server(bench: Bench, goals: Goals) -> None:
    """Part (a)."""
    urls = bench.urls
    print("(a) One thread, one server: median cycle\n", flush=True)
    peers = bench.peers((quorlock_threads, urls[:1]), (redis_py, urls, True), (redis_py, urls, False))
    bench.latencies(peers)
    table(peers, ("fresh", "one"), "µs", 1e6, 0)
    for other in peers[1:]:
        for mode in ("fresh", "one"):
            ratio = paired(peers[0], other, mode)
            goals.check(f"(a) quorlock to {other.name}, `{mode}`", ratio, MOST_OF_REDIS_PY, at_most=True)
    bench.end(peers)


def five_servers(bench: Bench) -> None:
    """Part (b)."""
    urls = bench.urls
    print("(b) One thread or task, five servers: median cycle\n", flush=True)
    peers = bench.peers(
        (quorlock_threads, urls),
        (redlock_py, urls),
        (pottery, urls),
        (quorlock_asyncio, urls),
        (aioredlock, urls),
        (pottery_asyncio, urls),
    )
    bench.latencies(peers)
    table(peers, ("fresh", "one"), "µs", 1e6, 0)
    bench.end(peers)


def many_workers(bench: Bench, goals: Goals) -> None:
    """Part (c)."""
    urls, modes = bench.urls, ("fresh", "own", "one")
    print(f"(c) {WORKERS} threads or tasks, five servers: locks per second\n", flush=True)
    threads = bench.peers((quorlock_threads, urls), (redlock_py, urls), (pottery, urls))
    tasks = bench.peers((quorlock_asyncio, urls), (aioredlock, urls), (pottery_asyncio, urls))
    # The peers draw no fencing tokens. Without them a lock passes to a waiter in this process without a round.
    unfenced = bench.peers((quorlock_threads, urls, False), (quorlock_asyncio, urls, False))
    # Without a quorum: a figure, and no goal.
    alone = bench.peers((redis_asyncio, urls))
    peers = threads + tasks + unfenced + alone
    bench.throughputs(peers, modes)
    table(peers, modes, "locks/s", 1, 0)
    for mine, others, goal in (
        (threads[0], threads[1:], LEAST_OF_THREADS),
        (unfenced[0], threads[1:], LEAST_OF_THREADS),
        (tasks[0], threads[1:], LEAST_OF_THREADS),
        (unfenced[1], threads[1:], LEAST_OF_THREADS),
        (tasks[0], tasks[1:], LEAST_OF_ASYNCIO),
        (unfenced[1], tasks[1:], LEAST_OF_ASYNCIO),
    ):
        for other in others:
            for mode in modes:
                goals.check(
                    f"(c) {mine.name} to {other.name}, `{mode}`", paired(mine, other, mode), goal, at_most=False
                )
    bench.end(peers)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares quorlock with other lock libraries for Python.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--rounds", type=int, help="how many rounds")
    parser.add_argument("--only", choices=["a", "b", "c"], help="one part")
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    goals = Goals()
    with servers(5) as nodes:
        bench = Bench(
            nodes.urls, arguments.rounds or (3 if quick else 7), 300 if quick else 1000, 0.6 if quick else 1.5
        )
        versions(nodes.kind)
        print(f"- {bench.rounds} rounds, of {bench.cycles} cycles each in (a) and (b), of {bench.seconds:g} s in (c)\n")
        if only in (None, "a"):
            one_server(bench, goals)
        if only in (None, "b"):
            five_servers(bench)
        if only in (None, "c"):
            many_workers(bench, goals)
        bench.loop.close()
        # Coordinators that are still there would report that the servers are gone.
        gc.collect()

    for reason in bench.left_out:
        print(f"Left out: {reason}")
    if goals.rows:
        print("| ratio | measured | goal |  |\n|---|---:|---|---|")
        print("\n".join(goals.rows))
        print(f"\nMissed: {'; '.join(goals.missed) or 'none'}")
    return 1 if goals.missed else 0


if __name__ == "__main__":
    sys.exit(main())
