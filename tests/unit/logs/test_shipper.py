"""One flush over a scripted connection, under a clock that moves when the test says so."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from resty_django.logs.options import LogOptions
from resty_django.logs.sender import FlushTimer, OutageLog
from resty_django.logs.shipper import Shipper


class Script:
    """A connection that does what the test says: which connects and which sends fail, by their number from 0."""

    def __init__(self, chunk: int = 1000) -> None:
        self.chunk = chunk
        self.is_open = False
        self.is_alive = self.is_settled = True
        self.opens = self.sends = 0
        self.bad_opens: set[int] = set()
        self.bad_sends: set[int] = set()
        self.too_long = 10**9
        self.got: list[bytes] = []
        self.before_send: Callable[[], None] = lambda: None

    def open(self) -> None:
        self.opens += 1
        if self.opens - 1 in self.bad_opens:
            raise ConnectionRefusedError("nobody there")
        self.is_open = self.is_alive = True

    def alive(self) -> bool:
        return self.is_alive

    def settled(self) -> bool:
        return self.is_settled

    def send(self, data: bytes) -> None:
        assert self.is_open
        self.before_send()
        self.sends += 1
        if self.sends - 1 in self.bad_sends:
            raise BrokenPipeError("gone")
        if len(data) > self.too_long:
            raise OSError(errno.EMSGSIZE, "too long")
        self.got.append(data)

    def close(self) -> None:
        self.is_open = False


class Setting:
    def __init__(self, chunk: int = 1000, **options: Any) -> None:
        self.script = Script(chunk)
        self.now = 100.0
        self.pauses: list[float] = []
        all_options = {"host": "a", "port": 1, "flush_limit": 10, "drop_limit": 1000, **options}
        self.shipper = Shipper(LogOptions.of(all_options), self.script, lambda: self.now, self.pauses.append)

    def flush(self, *messages: bytes) -> str | None:
        for message in messages:
            self.shipper.buffer.add(message)
        return self.shipper.flush()


def test_a_flush_sends_all_in_one_and_the_connection_stays() -> None:
    it = Setting()
    assert it.flush(b"a\n", b"b\n") is None
    assert it.flush(b"c\n") is None
    assert it.script.got == [b"a\nb\n", b"c\n"]
    assert (it.script.opens, it.shipper.buffer.size, it.shipper.stats().sent) == (1, 0, 3)


def test_nothing_to_do_needs_no_connection() -> None:
    it = Setting()
    assert it.flush() is None
    assert it.script.opens == 0


def test_connecting_is_retried_and_the_messages_stay() -> None:
    it = Setting(max_retry_times=2, retry_interval=250)
    it.script.bad_opens = {0, 1, 2}
    assert it.flush(b"a\n") == "connecting failed: ConnectionRefusedError: nobody there"
    assert (it.script.opens, it.pauses, it.shipper.buffer.size) == (3, [0.25, 0.25], 2)
    assert (it.shipper.stats().failures, it.shipper.stats().error is None) == (1, False)
    assert it.flush(b"b\n") is None
    assert it.script.got == [b"a\nb\n"]
    assert it.shipper.stats().error is None


def test_the_last_attempt_to_connect_may_be_the_one_that_works() -> None:
    it = Setting(max_retry_times=2)
    it.script.bad_opens = {0, 1}
    assert it.flush(b"a\n") is None


def test_each_attempt_to_send_uses_a_new_connection_and_includes_newer_messages() -> None:
    it = Setting(max_retry_times=3)
    it.script.bad_sends = {0, 1, 2}
    newer = iter([b"b\n", b"c\n", b"d\n", b"e\n"])
    it.script.before_send = lambda: it.shipper.buffer.add(next(newer))  # type: ignore[assignment, return-value]
    assert it.flush(b"a\n") is None
    assert it.script.got == [b"a\nb\nc\nd\n"]
    assert (it.script.opens, len(it.pauses), len(it.shipper.buffer)) == (4, 3, 1)


def test_after_the_last_attempt_to_send_the_messages_stay() -> None:
    it = Setting(max_retry_times=1)
    it.script.bad_sends = {0, 1}
    assert it.flush(b"a\n") == "sending failed: BrokenPipeError: gone"
    assert (it.shipper.buffer.size, it.script.opens, it.script.is_open) == (2, 2, False)
    assert it.flush(b"b\n") is None
    assert it.script.got == [b"a\nb\n"]


def test_size_falls_chunk_by_chunk_and_chunks_before_a_failure_are_resent_first() -> None:
    it = Setting(chunk=4, max_retry_times=0)
    it.script.bad_sends = {1}
    assert it.flush(b"a\n", b"b\n", b"c\n", b"d\n", b"e\n") == "sending failed: BrokenPipeError: gone"
    assert it.shipper.buffer.size == 6
    it.script.got.clear()
    assert it.flush(b"f\n") is None
    assert it.script.got == [b"a\nb\n", b"c\nd\n", b"e\nf\n"]
    figures = it.shipper.stats()
    assert (figures.sent, figures.resent, figures.waiting) == (6, 2, 0)


def test_a_connection_that_has_ended_is_noticed_before_more_is_sent() -> None:
    it = Setting()
    it.flush(b"a\n")
    it.script.is_alive = False
    it.flush(b"b\n")
    assert it.script.got == [b"a\n", b"a\n", b"b\n"]
    assert it.script.opens == 2


def test_confirmed_chunks_are_not_resent() -> None:
    it = Setting(resend=1000)
    it.flush(b"a\n")
    assert it.shipper.due == 101.0
    it.now = 101.0
    it.shipper.look()
    assert it.shipper.due is None
    it.script.is_alive = False
    it.flush(b"b\n")
    assert it.script.got == [b"a\n", b"b\n"]


def test_a_chunk_that_is_still_on_this_machine_counts_as_not_read() -> None:
    it = Setting(resend=1000)
    it.flush(b"a\n")
    it.script.is_settled, it.now = False, 105.0
    it.shipper.look()
    assert it.shipper.due is not None
    assert it.shipper.due > it.now
    it.script.is_alive = False
    it.shipper.look()
    it.flush()
    assert it.script.got == [b"a\n", b"a\n"]


def test_a_server_that_ends_each_connection_gets_each_message_four_times() -> None:
    it = Setting()
    it.flush(b"a\n")
    for _ in range(10):
        it.script.is_alive = False
        it.flush()
    assert it.script.got == [b"a\n"] * 4


def test_a_datagram_that_is_too_long_is_dropped_and_counted_and_the_others_go() -> None:
    it = Setting(chunk=4, sock_type="udp")
    it.script.too_long = 8
    assert it.flush(b"a\n", b"long message\n", b"b\n", b"c\n") is None
    assert it.script.got == [b"a\n", b"b\nc\n"]
    figures = it.shipper.stats()
    assert (figures.sent, figures.dropped, figures.size) == (3, 1, 0)


def test_datagrams_are_not_resent() -> None:
    it = Setting(sock_type="udp")
    it.flush(b"a\n")
    it.script.is_alive = False
    it.flush(b"b\n")
    assert it.script.got == [b"a\n", b"b\n"]


# --- when ---


def test_a_periodic_flush_is_due_at_each_interval() -> None:
    schedule = FlushTimer(5.0, now=100.0)
    assert schedule.next == 105.0
    assert [now for now in range(100, 120) if schedule.must_flush(now)] == [105, 110, 115]


def test_a_flush_by_size_skips_one_periodic_flush() -> None:
    schedule = FlushTimer(5.0, now=100.0)
    schedule.flushed(ok=True, by_size=True, now=101.0)
    schedule.flushed(ok=True, by_size=True, now=102.0)
    assert [now for now in range(103, 120) if schedule.must_flush(now)] == [110, 115]
    schedule.flushed(ok=True, by_size=False, now=119.0)
    assert schedule.must_flush(120.0)


def test_without_an_interval_there_is_no_periodic_flush() -> None:
    for interval in (None, 0):
        schedule = FlushTimer(interval, now=100.0)
        assert (schedule.next, schedule.must_flush(1e9)) == (None, False)


def test_a_flush_that_failed_is_tried_again_until_one_works() -> None:
    schedule = FlushTimer(None, now=100.0)
    schedule.flushed(ok=False, by_size=True, now=101.0)
    assert schedule.next == 101.0 + FlushTimer.RETRY_SECONDS
    assert not schedule.must_flush(101.0)
    assert schedule.must_flush(101.0 + FlushTimer.RETRY_SECONDS)
    schedule.flushed(ok=True, by_size=False, now=105.0)
    assert schedule.next is None


# --- what is said ---


def test_an_outage_is_logged_once_and_its_end_with_the_count_of_drops() -> None:
    reports = OutageLog("tcp://a:1")
    messages = [
        list(reports.after(error, dropped, now))
        for error, dropped, now in (
            (None, 0, 0.0),
            ("refused", 0, 1.0),
            ("refused", 0, 2.0),
            ("refused", 5, 3.0),
            ("refused", 7, 4.0),
            (None, 8, 5.0),
            (None, 8, 6.0),
        )
    ]
    assert messages == [
        [],
        ["tcp://a:1 does not accept log messages; they are buffered: refused"],
        [],
        ["log messages for tcp://a:1 are dropped, because the buffer has reached drop_limit"],
        [],
        ["tcp://a:1 accepts log messages again", "8 log messages for tcp://a:1 were dropped"],
        [],
    ]


def test_drops_without_an_outage_are_logged_at_intervals() -> None:
    reports = OutageLog("tcp://a:1")
    assert list(reports.after(None, 3, 0.0)) == ["3 log messages for tcp://a:1 were dropped"]
    assert list(reports.after(None, 4, 0.1)) == []
    assert list(reports.after(None, 9, OutageLog.REPORT_SECONDS)) == ["6 log messages for tcp://a:1 were dropped"]


def test_messages_lost_at_the_end_are_logged() -> None:
    reports = OutageLog("tcp://a:1")
    assert list(reports.at_the_end(0, 0)) == []
    list(reports.after(None, 3, 0.0))
    assert list(reports.at_the_end(2, 4)) == ["3 log messages for tcp://a:1 are lost"]
