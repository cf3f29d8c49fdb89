"""Drives aioredlock, whose tasks need a loop that also runs between orders."""

import asyncio
import threading

from aioredlock import Aioredlock
from line import serve


class Driver:
    def __init__(self, nodes):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.manager = self.run(self.connect(nodes))

    async def connect(self, nodes):
        return Aioredlock(nodes, retry_count=1)

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def acquire(self, resource, ttl_ms):
        return self.run(self.manager.lock(resource, lock_timeout=ttl_ms / 1000))

    def token(self, lock):
        return lock.id.encode()

    def extend(self, lock, ttl_ms):
        self.run(self.manager.extend(lock, lock_timeout=ttl_ms / 1000))

    def release(self, lock):
        self.run(self.manager.unlock(lock))


serve(Driver, "aioredlock", "aioredis")
