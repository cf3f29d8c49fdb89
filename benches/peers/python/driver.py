"""Drives pottery and redlock-py in threads, and the asyncio libraries through with_asyncio.py.
The protocol is described in src/order.rs."""

import json
import platform
import sys
import threading
import time
from importlib.metadata import version
from itertools import count

from redis import Redis

import with_asyncio
from findings import findings, now, wall_clock


class Pottery:
    """One lock object per acquisition, because an object stores the state of its holder."""

    packages = ("pottery", "redis", "hiredis")

    def __init__(self, nodes):
        from pottery import Redlock

        self.redlock = Redlock
        self.masters = {Redis.from_url(node) for node in nodes}

    def acquire(self, name, ttl_millis):
        lock = self.redlock(key=name, masters=self.masters, auto_release_time=ttl_millis / 1000)
        if not lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    def release(self, lock):
        lock.release()


class RedlockPy:
    """Three attempts, 200 ms apart by default; then retries, like all subjects."""

    packages = ("redlock-py", "redis", "hiredis")

    def __init__(self, nodes):
        from redlock import Redlock

        self.redlock = Redlock(nodes)

    def acquire(self, name, ttl_millis):
        while True:
            lock = self.redlock.lock(name, ttl_millis)
            if lock:
                return lock

    def release(self, lock):
        self.redlock.unlock(lock)


def run_all(count, task):
    threads = [threading.Thread(target=task, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cycles(peer, order):
    start = now()
    end = start + order["millis"] * 1000
    times, failures = [], []

    def task(number):
        for fresh in count():
            if (began := now()) >= end:
                return
            try:
                peer.release(peer.acquire(f"{order['name']}/{number}/{fresh}", order["ttl_millis"]))
                times.append(now() - began)
            except Exception as error:
                failures.append(error)

    run_all(order["tasks"], task)
    return findings(times, count=len(times), all=len(times), failures=len(failures), micros=now() - start)


def contend(peer, order):
    start = now()
    timed = order["work"] == "contend"
    end = start + order["millis"] * 1000 if timed else start
    # Data shared by threads is either append-only or touched by the holder alone.
    handoffs, failures, overlaps, late, field = [], [], [], [], {"held": False, "ended": 0}
    grants = [[] for _ in range(order["tasks"])]

    def task(number):
        while True:
            try:
                lock = peer.acquire(order["name"], order["ttl_millis"])
                if timed and now() >= end:
                    late.append(number)
                    return peer.release(lock)
                grants[number].append(wall_clock())
                if field["held"]:
                    overlaps.append(number)
                field["held"] = True
                if field["ended"]:
                    handoffs.append(now() - field["ended"])
                time.sleep(order["hold_millis"] / 1000)
                field["ended"] = now()
                field["held"] = False
                peer.release(lock)
            except Exception as error:
                failures.append(error)
                continue
            if now() >= end:
                return

    run_all(order["tasks"], task)
    micros = order["millis"] * 1000 if timed else now() - start
    held = sum(map(len, grants))
    return findings(handoffs, grants, len(overlaps), count=held, all=held + len(late),
                    failures=len(failures), micros=micros)


def main():
    subject, *nodes = sys.argv[1:]
    kind = {"pottery": Pottery, "redlock-py": RedlockPy, **with_asyncio.SUBJECTS}[subject]
    versions = ", ".join([*(f"{name} {version(name)}" for name in kind.packages), f"Python {platform.python_version()}"])
    if subject in with_asyncio.SUBJECTS:
        return with_asyncio.drive(subject, nodes, versions)
    peer = kind(nodes)
    print(json.dumps({"version": versions}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        work = cycles if order["work"] == "cycles" else contend
        print(json.dumps(work(peer, order)), flush=True)


main()
