"""W3C Trace Context: the headers `traceparent` and `tracestate`. Pure.

A trace passes through several services under one trace ID. Each service has its own span ID and sends it to the
services that it calls. https://www.w3.org/TR/trace-context-2/
"""

from __future__ import annotations

import re
from random import Random
from typing import Final, NamedTuple

from resty_django.processes.forks import after_fork

from .codec import number

SAMPLED: Final = 1
RANDOM: Final = 2
"""The trace ID ends in at least 56 random bits."""

_TRACEPARENT: Final = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE: Final = re.compile(r"[\x20-\x7e\t]{0,8192}")
_random: Final = Random()  # noqa: S311 - IDs, not secrets; separate from the global generator, which a site may seed
after_fork(_random.seed)


class Trace(NamedTuple):
    """The trace of a request, seen from this service.

    `trace_id` is common to all services, `span_id` is this service's, `parent_id` the caller's (empty where
    the trace begins here). `state` is the caller's `tracestate`, unchanged.
    """

    trace_id: str
    span_id: str
    flags: int
    parent_id: str = ""
    state: str = ""

    @property
    def traceparent(self) -> str:
        """Return the header for services that this service calls."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def headers(self) -> dict[str, str]:
        """Return `traceparent`, and `tracestate` unless it is empty."""
        return {"traceparent": self.traceparent, **({"tracestate": self.state} if self.state else {})}


def begin_trace(txid: str) -> Trace:
    """Return a new trace. Its ID begins with the 24 hexadecimal digits of the txid, which must be valid, so it sorts by
    time too.

    It is marked as sampled, because services that follow the caller's decision would otherwise record nothing.
    """
    # `| 1`, because the standard forbids the span ID 0
    digits = (number(txid) << 96 | _random.getrandbits(96) | 1).to_bytes(24, "big").hex()
    return Trace(digits[:32], digits[32:], SAMPLED | RANDOM)


def continue_trace(traceparent: str, tracestate: str = "") -> Trace | None:
    """Return the caller's trace with a new span ID; None if `traceparent` is invalid.

    For versions after 00, only the fields of version 00 are read. Flags unknown to version 00 are dropped, as is a
    `tracestate` that is longer than 8192 characters or contains anything but printable ASCII.
    """
    match = _TRACEPARENT.fullmatch(traceparent.strip(" \t"))
    if match is None:
        return None
    version, trace_id, parent_id, flags, suffix = match.groups()
    if version == "ff" or (version == "00" and suffix) or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    # The standard requires that at least 512 characters are propagated.
    state = tracestate if _TRACESTATE.fullmatch(tracestate) else ""
    return Trace(trace_id, f"{_random.getrandbits(64) | 1:016x}", int(flags, 16) & (SAMPLED | RANDOM), parent_id, state)
