"""W3C Trace Context: the headers `traceparent` and `tracestate`. Pure.

A trace goes through several services under one trace id; each service has its own span id, and sends it to the
services that it calls. https://www.w3.org/TR/trace-context-2/
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from .codec import parse

SAMPLED: Final = 1
RANDOM: Final = 2
"""The trace id ends in at least 56 random bits."""
LONGEST_STATE: Final = 8192
"""Characters of `tracestate` that are passed on; the standard asks for 512 at least."""

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class Trace:
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
        """The header for those that this service calls."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def begin(txid: str) -> Trace:
    """Return a new trace. Its id begins with the 24 hexadecimal digits of the txid, so it sorts by time too.

    It is marked as sampled, since services that follow the caller's decision would otherwise record nothing.
    """
    trace_id = f"{parse(txid).number:024x}{os.urandom(4).hex()}"
    return Trace(trace_id, _new_span(), SAMPLED | RANDOM)


def continue_trace(traceparent: str, tracestate: str = "") -> Trace | None:
    """Return the caller's trace with a new span id; None where `traceparent` does not follow the standard.

    Of versions after 00, what 00 has is read. Flags that 00 does not know are dropped, and so is a `tracestate` that is
    longer than 8192 characters or not printable ASCII.
    """
    match = _FORM.fullmatch(traceparent.strip(" \t"))
    if match is None:
        return None
    version, trace_id, parent_id, flags, suffix = match.groups()
    if version == "ff" or (version == "00" and suffix) or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    state = tracestate if len(tracestate) <= LONGEST_STATE and _STATE.fullmatch(tracestate) else ""
    return Trace(trace_id, _new_span(), int(flags, 16) & (SAMPLED | RANDOM), parent_id, state)


def _new_span() -> str:
    while True:
        span = os.urandom(8)
        if any(span):
            return span.hex()
