"""Drives pottery."""

from line import clients, serve
from pottery import Redlock


class Driver:
    def __init__(self, nodes):
        self.masters = set(clients(nodes))

    def acquire(self, resource, ttl_ms):
        lock = Redlock(key=resource, masters=self.masters, auto_release_time=ttl_ms / 1000)
        return lock if lock.acquire(blocking=False) else None

    def token(self, lock):
        return lock._uuid.encode()

    def extend(self, lock, ttl_ms):
        lock.auto_release_time = ttl_ms / 1000
        lock.extend()

    def release(self, lock):
        lock.release()


serve(Driver, "pottery", "redis")
