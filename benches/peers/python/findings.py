"""Shared by both kinds of drivers: the clock and the latency report."""

import time


def now():
    return time.monotonic_ns() // 1000


def wall_clock():
    return time.time_ns() // 1000


def quantile(times, part):
    return times[min(len(times) - 1, int(len(times) * part))] if times else 0


def findings(times, grants=(), overlaps=0, **others):
    times.sort()
    p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
    return {**others, "grants": grants, "overlaps": overlaps, "p50": p50, "p99": p99}
