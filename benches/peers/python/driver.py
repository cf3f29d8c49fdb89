"""Drives pottery and redlock-py. See src/order.rs for what it is told and what it answers."""

import json
import platform
import sys
import threading
import time
from importlib.metadata import version

from redis import Redis


class Pottery:
    """A lock object for each acquisition: one holds the state of one holder."""

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
    """Three attempts, 200 ms apart, unless said otherwise; then again, as all subjects do."""

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


def now():
    return time.monotonic_ns() // 1000


def run_all(count, task):
    threads = [threading.Thread(target=task, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quantile(times, part):
    return times[min(len(times) - 1, int(len(times) * part))] if times else 0


def findings(times, shares=(), overlaps=0, **others):
    times.sort()
    p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
    return {**others, "shares": shares, "overlaps": overlaps, "p50": p50, "p99": p99}


def cycles(peer, order):
    start = now()
    end = start + order["millis"] * 1000
    times, failures = [], []

    def task(number):
        name = f"{order['name']}/{number}"
        while (began := now()) < end:
            try:
                peer.release(peer.acquire(name, order["ttl_millis"]))
                times.append(now() - began)
            except Exception as error:
                failures.append(error)

    run_all(order["tasks"], task)
    count = len(times)
    return findings(times, count=count, all=count, failures=len(failures), micros=now() - start)


def contend(peer, order):
    start = now()
    timed = order["work"] == "contend"
    end = start + order["millis"] * 1000 if timed else start
    # What several threads write is only appended to, or touched by the holder alone.
    hand_overs, failures, overlaps, late, field = [], [], [], [], {"held": False, "ended": 0}
    shares = [0] * order["tasks"]

    def task(number):
        while True:
            try:
                lock = peer.acquire(order["name"], order["ttl_millis"])
                if timed and now() >= end:
                    late.append(number)
                    return peer.release(lock)
                shares[number] += 1
                if field["held"]:
                    overlaps.append(number)
                field["held"] = True
                if field["ended"]:
                    hand_overs.append(now() - field["ended"])
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
    return findings(hand_overs, shares, len(overlaps), count=sum(shares), all=sum(shares) + len(late),
                    failures=len(failures), micros=micros)


def main():
    subject, *nodes = sys.argv[1:]
    peer = {"pottery": Pottery, "redlock-py": RedlockPy}[subject](nodes)
    versions = f"{subject} {version(subject)}, redis {version('redis')}, Python {platform.python_version()}"
    print(json.dumps({"version": versions}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        work = cycles if order["work"] == "cycles" else contend
        print(json.dumps(work(peer, order)), flush=True)


main()
