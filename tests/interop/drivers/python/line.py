"""Shared by all drivers in Python: README.md describes the protocol."""

import logging
import platform
import sys
from importlib.metadata import version

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def clients(nodes):
    """One client for each node. By default, redis-py tries a dead node ten times, for half a minute."""
    return [Redis.from_url(node, retry=Retry(NoBackoff(), 0), socket_timeout=5) for node in nodes]


def serve(connect, *packages):
    """Runs the library that `connect` creates for the nodes' addresses, until stdin ends."""
    logging.disable()
    library, held = connect(sys.argv[1:]), {}
    versions = [f"{package} {version(package)}" for package in packages]
    say("ready", ", ".join([*versions, f"Python {platform.python_version()}"]))
    for line in sys.stdin:
        verb, resource, *ttl = line.split()
        try:
            say(*obey(library, held, verb, resource, *map(int, ttl)))
        except Exception as error:
            say("refused", f"{type(error).__name__}: {error}")


def obey(library, held, verb, resource, ttl_ms=None):
    if verb == "acquire":
        lock = library.acquire(resource, ttl_ms)
        if not lock:
            return "refused", "held by another client"
        held[resource] = lock
        return "acquired", library.token(lock).hex()
    if verb == "extend":
        done = library.extend(held[resource], ttl_ms)
        return ("refused", "it said no") if done is False else ("extended",)
    if verb == "release":
        library.release(held.pop(resource))
        return ("released",)
    raise ValueError(f"{verb} is none of acquire, extend and release")


def say(*words):
    print(" ".join(words).replace("\n", " "), flush=True)
