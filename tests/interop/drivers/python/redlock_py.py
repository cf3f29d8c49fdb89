"""Drives redlock-py."""

from line import clients, serve
from redlock import Redlock


class Driver:
    def __init__(self, nodes):
        self.redlock = Redlock(clients(nodes), retry_count=1, retry_delay=0.001)

    def acquire(self, resource, ttl_ms):
        return self.redlock.lock(resource, ttl_ms)

    def token(self, lock):
        return lock.key

    def extend(self, lock, ttl_ms):
        raise NotImplementedError("redlock-py cannot extend a lock")

    def release(self, lock):
        self.redlock.unlock(lock)


serve(Driver, "redlock-py", "redis")
