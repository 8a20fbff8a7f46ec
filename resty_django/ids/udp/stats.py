"""Statistics of a UDP server: counts by cause, and a histogram of handling times that can be summed over processes."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Any

_BUCKETS_PER_DOUBLING = 8
"""Histogram buckets per factor of two of time: each is about 9 % wide."""


class UdpStats:
    """The statistics of one server process. Times are sampled: one request in sixteen."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors: Tally[str] = Tally()
        self.dropped: Tally[str] = Tally()
        self.buckets = [0] * (32 * _BUCKETS_PER_DOUBLING)

    def took(self, nanoseconds: int) -> None:
        """Record the handling time of a request."""
        bucket = int(math.log2(max(nanoseconds, 1)) * _BUCKETS_PER_DOUBLING)
        self.buckets[min(bucket, len(self.buckets) - 1)] += 1

    def snapshot(self) -> dict[str, Any]:
        """Return the statistics as plain data."""
        return {
            "requests": self.requests,
            "errors": dict(self.errors),
            "dropped": dict(self.dropped),
            "buckets": list(self.buckets),
        }


def merge(snapshots: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of several processes' snapshots, including their ID services' figures."""
    total = UdpStats()
    issued: Tally[str] = Tally()
    remaining: Tally[str] = Tally()
    reserved = failed = 0
    for snapshot in snapshots:
        total.requests += snapshot["requests"]
        total.errors.update(snapshot["errors"])
        total.dropped.update(snapshot["dropped"])
        total.buckets = [a + b for a, b in zip(total.buckets, snapshot["buckets"], strict=True)]
        service = snapshot.get("service", {})
        reserved += service.get("reservations", 0)
        failed += service.get("reservation_failures", 0)
        for name, rule in service.get("rules", {}).items():
            issued[name] += rule["issued"]
            remaining[name] += rule["remaining"]
    return {
        **total.snapshot(),
        "issued": dict(issued),
        "remaining": dict(remaining),
        "reservations": reserved,
        "reservation_failures": failed,
    }


def percentile(buckets: list[int], share: float) -> float:
    """Return the time in microseconds below which `share` of the samples are; 0 without samples."""
    total = sum(buckets)
    target, cumulated = share * total, 0
    for index, count in enumerate(buckets):
        cumulated += count
        if count and cumulated >= target:
            return round(float(2 ** ((index + 1) / _BUCKETS_PER_DOUBLING)) / 1000, 1)
    return 0.0


def line(now: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> str:
    """Return one line of text: rate since `before`, totals, times, reserved numbers left.

    `seconds` is the time between the two snapshots.
    """
    buckets = now["buckets"]
    if before:
        buckets = [a - b for a, b in zip(buckets, before["buckets"], strict=True)]
    rate = (now["requests"] - (before["requests"] if before else 0)) / max(seconds, 1e-9)
    parts = [
        f"{rate:,.0f} requests/s",
        f"{now['requests']:,} requests",
        f"{sum(now['issued'].values()):,} IDs",
        f"errors {_causes(now['errors'])}",
        f"dropped {_causes(now['dropped'])}",
        f"p50 {percentile(buckets, 0.5)} us",
        f"p99 {percentile(buckets, 0.99)} us",
        "reserved " + (", ".join(f"{k} {v:,}" for k, v in sorted(now["remaining"].items())[:4]) or "none yet"),
    ]
    if now["reservation_failures"]:
        parts.append(f"{now['reservation_failures']} failed reservations")
    return " | ".join(parts)


def _causes(tally: Mapping[str, int]) -> str:
    if not tally:
        return "0"
    return f"{sum(tally.values()):,} ({', '.join(f'{k} {v:,}' for k, v in sorted(tally.items()))})"
