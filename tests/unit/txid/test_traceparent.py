"""W3C Trace Context: what is taken, what is refused, what goes on."""

from __future__ import annotations

import random
import re

import pytest

from resty_django.txid import parse, traceparent, txid
from resty_django.txid.traceparent import begin_trace, continue_trace

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_continued_trace_keeps_its_id_and_gets_a_new_span() -> None:
    trace = continue_trace(f"00-{TRACE}-{PARENT}-01", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")
    assert trace is not None
    assert (trace.trace_id, trace.parent_id, trace.flags) == (TRACE, PARENT, 1)
    assert re.fullmatch("[0-9a-f]{16}", trace.span_id)
    assert trace.span_id not in (PARENT, "0" * 16)
    assert trace.traceparent == f"00-{TRACE}-{trace.span_id}-01"
    assert trace.state == "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"


def test_spans_differ() -> None:
    spans = {trace.span_id for _ in range(1000) if (trace := continue_trace(f"00-{TRACE}-{PARENT}-00"))}
    assert len(spans) == 1000


def test_spans_differ_in_a_site_that_seeds_its_random_numbers() -> None:
    def span() -> str:
        random.seed(7)
        return begin_trace(txid()).span_id

    assert span() != span()


def test_no_span_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceparent, "_random", Zeros())
    id_ = txid()
    assert begin_trace(id_).traceparent == f"00-{parse(id_).number:024x}{0:08x}-{1:016x}-03"
    trace = continue_trace(f"00-{TRACE}-{PARENT}-00")
    assert trace is not None
    assert trace.span_id == f"{1:016x}"


class Zeros(random.Random):
    """Random bits as they may come, too."""

    def getrandbits(self, count: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("flags", "remaining"), [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fc", "00")]
)
def test_flags_that_are_known_are_kept(flags: str, remaining: str) -> None:
    trace = continue_trace(f"00-{TRACE}-{PARENT}-{flags}")
    assert trace is not None
    assert trace.traceparent.endswith(f"-{remaining}")


@pytest.mark.parametrize("header", [f" 00-{TRACE}-{PARENT}-01\t", f"01-{TRACE}-{PARENT}-01-what.the-future-brings"])
def test_spaces_around_and_later_versions_are_read(header: str) -> None:
    trace = continue_trace(header)
    assert trace is not None
    assert trace.traceparent.startswith(f"00-{TRACE}-")


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-001",
        f"00-{TRACE}-{PARENT}-01-more",
        f"01-{TRACE}-{PARENT}-01more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"0x-{TRACE}-{PARENT}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01,00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00_{TRACE}_{PARENT}_01",
    ],
)
def test_headers_that_violate_the_standard_are_refused(header: str) -> None:
    assert continue_trace(header) is None


@pytest.mark.parametrize("state", ["a=1\r\nSet-Cookie: x=y", "a=\x00", "a=é", "a=" + "x" * 8192])
def test_an_invalid_state_is_dropped_without_the_trace(state: str) -> None:
    trace = continue_trace(f"00-{TRACE}-{PARENT}-01", state)
    assert trace is not None
    assert trace.state == ""


def test_a_trace_that_begins_here_has_the_txid_in_its_id() -> None:
    request_id = txid()
    trace = begin_trace(request_id)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-03", trace.traceparent)
    assert int(trace.trace_id[:24], 16) == parse(request_id).number
    assert trace.parent_id == trace.state == ""
    assert begin_trace(request_id).trace_id != trace.trace_id
