"""Metrics for Prometheus: the same that the program `quorlock` has.

Call `enable()` before `quorlock.connect()`: a coordinator counts from its start or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quorlock import _events, _quorlock

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["Collector", "enable", "text"]


def enable() -> None:
    """Counts in coordinators that are made from now on."""
    _events.enable_metrics()


def text() -> str:
    """The metrics of this process, in the text format of Prometheus."""
    return _quorlock.metrics_text()


class Collector:
    """For `prometheus_client`: `REGISTRY.register(Collector())`. Enables the metrics."""

    def __init__(self) -> None:
        enable()

    def collect(self) -> Iterator[Metric]:
        """The metrics of this process."""
        from prometheus_client.parser import text_string_to_metric_families

        yield from text_string_to_metric_families(text())
