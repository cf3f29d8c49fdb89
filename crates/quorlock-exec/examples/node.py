#!/usr/bin/env python3
"""A node of quorlock in Python, whose locks last as long as this process: exec:examples/node.py"""

import json
import sys
import time
import uuid

# By key: token of the holder, when it ends, and its number. By counter: its number. By token: until when late requests are
# refused.
locks, counters, cancelled = {}, {}, {}


def answer(do, key, token=None, ttl_ms=0, counter=None, number=None):
    now = time.monotonic()
    ends = now + ttl_ms / 1000
    if key in locks and locks[key][1] <= now:
        del locks[key]
    holder, until, its_number = locks.get(key, (None, 0, None))
    stands = counters.get(counter)
    held = {"is": "held", "token": holder, "left_ms": max(1, round((until - now) * 1000)), "number": stands}
    if do == "inspect":
        return held | {"number": its_number or stands} if holder else {"is": "free", "number": stands}
    if do in ("release", "cancel"):
        if do == "cancel":
            cancelled[token] = ends
        if holder == token:
            del locks[key]
        return {"is": "granted" if holder == token else "free"}
    if holder not in (None, token):
        return held
    if do == "write_back":
        if holder is None:
            return {"is": "free"}
        if (stands or 0) >= number:
            return {"is": "ahead", "number": stands}
        counters[counter], locks[key] = number, (token, until, number)
        return {"is": "granted", "number": number}
    if holder is None and cancelled.get(token, 0) > now:
        return {"is": "free"}
    if do == "renew":
        if number and holder is None:
            counters[counter] = max(stands or 0, number)
        locks[key] = (token, max(until, ends), its_number if holder else number)
        return {"is": "granted" if holder else "restored"}
    if number:
        number = counters[counter] = max((stands or 0) + 1, number)
    locks[key] = (token, until if holder else ends, number)
    return {"is": "granted", "number": number}


print(json.dumps({"quorlock": 1, "identity": uuid.uuid4().hex, "age_ms": 0}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    number = request.pop("id")
    print(json.dumps({"id": number} | answer(**request)), flush=True)
