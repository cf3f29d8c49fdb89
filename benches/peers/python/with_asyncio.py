"""Drives aioredlock, pottery's AIORedlock and the lock of redis-py: tasks on one uvloop event loop."""

import asyncio
import json
import sys
from itertools import count

from findings import findings, now, wall_clock


class Aioredlock:
    """Three attempts, 100 to 300 ms apart by default; then retries, like all subjects. With more attempts
    it would not end: each client keeps the keys it got on a minority until its last attempt."""

    packages = ("aioredlock", "aioredis", "hiredis", "uvloop")

    def __init__(self, nodes):
        from aioredlock import Aioredlock as Manager, LockError

        self.manager = Manager(nodes)
        self.refused = LockError

    async def acquire(self, name, ttl_millis):
        while True:
            try:
                return await self.manager.lock(name, lock_timeout=ttl_millis / 1000)
            except self.refused:
                continue

    async def release(self, lock):
        await self.manager.unlock(lock)


class Pottery:
    """One lock object per acquisition, because an object stores the state of its holder."""

    packages = ("pottery", "redis", "hiredis", "uvloop")

    def __init__(self, nodes):
        from pottery import AIORedlock
        from redis.asyncio import Redis

        self.redlock = AIORedlock
        self.masters = {Redis.from_url(node) for node in nodes}

    async def acquire(self, name, ttl_millis):
        lock = self.redlock(key=name, masters=self.masters, auto_release_time=ttl_millis / 1000)
        if not await lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    async def release(self, lock):
        await lock.release()


class RedisPy:
    """On one server, since it has no quorum; 100 ms between attempts by default."""

    packages = ("redis", "hiredis", "uvloop")

    def __init__(self, nodes):
        from redis.asyncio import Redis

        self.client = Redis.from_url(nodes[0])

    async def acquire(self, name, ttl_millis):
        lock = self.client.lock(name, timeout=ttl_millis / 1000)
        if not await lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    async def release(self, lock):
        await lock.release()


SUBJECTS = {"aioredlock": Aioredlock, "pottery-asyncio": Pottery, "redis-py-asyncio": RedisPy}


async def run_all(count, task):
    await asyncio.gather(*(task(number) for number in range(count)))


async def cycles(peer, order):
    start = now()
    end = start + order["millis"] * 1000
    times, failures = [], []

    async def task(number):
        for fresh in count():
            if (began := now()) >= end:
                return
            try:
                name = f"{order['name']}/{number}/{fresh}"
                await peer.release(await peer.acquire(name, order["ttl_millis"]))
                times.append(now() - began)
            except Exception as error:
                failures.append(error)

    await run_all(order["tasks"], task)
    return findings(times, count=len(times), all=len(times), failures=len(failures), micros=now() - start)


async def contend(peer, order):
    start = now()
    timed = order["work"] == "contend"
    end = start + order["millis"] * 1000 if timed else start
    handoffs, failures, overlaps, late, held, ended = [], 0, 0, 0, False, 0
    grants = [[] for _ in range(order["tasks"])]

    async def task(number):
        nonlocal failures, overlaps, late, held, ended
        while True:
            try:
                lock = await peer.acquire(order["name"], order["ttl_millis"])
                if timed and now() >= end:
                    late += 1
                    return await peer.release(lock)
                grants[number].append(wall_clock())
                overlaps += held
                held = True
                if ended:
                    handoffs.append(now() - ended)
                await asyncio.sleep(order["hold_millis"] / 1000)
                ended = now()
                held = False
                await peer.release(lock)
            except Exception:
                failures += 1
                continue
            if now() >= end:
                return

    await run_all(order["tasks"], task)
    micros = order["millis"] * 1000 if timed else now() - start
    all_held = sum(map(len, grants))
    return findings(handoffs, grants, overlaps, count=all_held, all=all_held + late,
                    failures=failures, micros=micros)


async def obey(subject, nodes, versions):
    peer = SUBJECTS[subject](nodes)
    print(json.dumps({"version": versions}), flush=True)
    loop = asyncio.get_running_loop()
    # Read in a separate thread: tasks that a library leaves behind keep running between orders.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        work = cycles if order["work"] == "cycles" else contend
        print(json.dumps(await work(peer, order)), flush=True)


def drive(subject, nodes, versions):
    import uvloop

    uvloop.run(obey(subject, nodes, versions))
