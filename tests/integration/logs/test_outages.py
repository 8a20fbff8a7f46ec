"""Log servers that are killed, come back, stand still, or never come."""

from __future__ import annotations

import contextlib
import itertools
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resty_django.logs import SocketHandler
from tests.logserver import LogServer, until

from .conftest import Ship

pytestmark = pytest.mark.slow

LONG = 60_000
"""Milliseconds that no test waits for. As `resend` it makes a test right on a machine where a server may get no
processor time for more than a second."""


class Load:
    """A thread that logs numbered messages until it is stopped."""

    def __init__(self, logger: logging.Logger) -> None:
        self.count = 0
        self._logger = logger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in itertools.count():
            self._logger.info("message %06d %s", number, "x" * (number % 50))
            self.count = number + 1
            if number % 20 == 0 and self._stop.wait(0.002):
                return

    def run_for(self, messages: int) -> None:
        end = self.count + messages
        until(lambda: self.count >= end)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def check(lines: list[str], count: int) -> int:
    """Check that every message arrived whole and in order. Return how many arrived twice."""
    numbers = [int(line.split()[1]) for line in lines]
    assert all(
        line == f"message {number:06d} {'x' * (number % 50)}" for line, number in zip(lines, numbers, strict=True)
    )
    assert list(dict.fromkeys(numbers)) == list(range(count))
    return len(numbers) - count


def test_a_server_killed_and_back_under_load_loses_nothing(stream: LogServer, ship: Ship) -> None:
    logger, handler = ship(stream, resend=LONG, drop_limit=16 * 1024 * 1024)
    with Load(logger) as load:
        for _ in range(2):
            load.run_for(1500)
            stream.kill()
            load.run_for(1500)
            stream.start()
        load.run_for(1500)
    handler.flush()
    until(lambda: stream.lines()[-1:] == [f"message {load.count - 1:06d} {'x' * ((load.count - 1) % 50)}"])
    repeated = check(stream.lines(), load.count)
    figures = handler.stats()
    assert (figures.dropped, figures.waiting, figures.sent) == (0, 0, load.count)
    assert repeated <= figures.resent


def test_a_server_that_is_killed_in_the_middle_of_a_send_loses_nothing(stream: LogServer, ship: Ship) -> None:
    logger, handler = ship(stream, resend=LONG, timeout=LONG, drop_limit=64 * 1024 * 1024)
    process = stream.process
    assert process is not None
    logger.info("0 first")
    handler.flush()
    process.send_signal(signal.SIGSTOP)
    for number in range(1, 300):
        logger.info("%d %s", number, "x" * 100_000)
    until(lambda: 1 < handler.stats().sent < 300)
    sent = -1
    while sent != (sent := handler.stats().sent):  # until both systems' buffers are full
        time.sleep(0.2)
    assert sent < 300
    stream.kill()
    stream.start()
    handler.flush()
    numbers = until(lambda: stream.lines()[-1:] and stream.lines()[-1].startswith("299 ") and stream.lines())
    assert list(dict.fromkeys(int(line.split()[0]) for line in numbers)) == list(range(300))
    assert all(len(line) > 100_000 for line in numbers if not line.startswith("0 "))


@pytest.mark.parametrize(("resend", "again"), [(LONG, ["one", "two"]), (0, [])], ids=["resent", "lost"])
def test_messages_sent_just_before_a_kill_are_resent_unless_that_is_switched_off(
    stream: LogServer, ship: Ship, resend: int, again: list[str]
) -> None:
    """They were unread in the memory of the system, which causes no error."""
    logger, handler = ship(stream, resend=resend)
    logger.info("one")
    handler.flush()
    until(lambda: stream.lines() == ["one"])
    process = stream.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    logger.info("two")
    handler.flush()
    assert handler.stats().sent == 2
    stream.kill()
    assert stream.lines() == ["one"]
    stream.start()
    logger.info("three")
    handler.flush()
    until(lambda: stream.lines() == ["one", *again, "three"])
    assert (handler.stats().resent, handler.stats().error) == (len(again), None)


def test_a_connection_that_the_server_has_closed_is_noticed_before_more_is_sent(stream: LogServer, ship: Ship) -> None:
    logger, handler = ship(stream, resend=100)
    logger.info("one")
    handler.flush()
    until(lambda: stream.lines() == ["one"])
    time.sleep(0.5)  # the connection is seen alive, later than `resend`
    stream.kill()
    stream.start()
    logger.info("two")
    handler.flush()
    until(lambda: "two" in stream.lines())
    assert handler.stats().failures == 0


def test_drops_begin_at_the_limit_and_are_counted_and_logged(
    tcp: LogServer, ship: Ship, caplog: pytest.LogCaptureFixture
) -> None:
    logger, handler = ship(tcp, flush_limit=1000, drop_limit=10_000, retry_interval=1, timeout=LONG)
    tcp.kill()
    for number in range(150):
        logger.info("%099d", number)
    assert (handler.stats().dropped, handler.stats().size, handler.stats().waiting) == (50, 10_000, 100)
    handler.flush()
    tcp.start()
    handler.flush()
    until(lambda: len(tcp.lines()) == 100)
    assert tcp.lines() == [f"{number:099d}" for number in range(100)]
    until(lambda: len(caplog.records) == 4)
    address = handler.options.address
    assert caplog.messages[0].startswith(
        f"{address} does not accept log messages; they are buffered: connecting failed"
    )
    assert caplog.messages[1:] == [
        f"log messages for {address} are dropped, because the buffer has reached drop_limit",
        f"{address} accepts log messages again",
        f"50 log messages for {address} were dropped",
    ]
    assert {record.name for record in caplog.records} == {"resty_django.logs"}
    assert {record.threadName for record in caplog.records} == {"resty-logs"}


def test_the_shipped_messages_report_the_outage(tcp: LogServer, ship: Ship, caplog: pytest.LogCaptureFixture) -> None:
    handler = ship(tcp, retry_interval=1)[1]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        tcp.kill()
        logging.getLogger("shop").warning("one")
        handler.flush()
        until(lambda: handler.stats().waiting == 2)
        tcp.start()
        handler.flush()
        until(lambda: len(caplog.records) == 3)  # the last one is logged after the flush
        handler.flush()
        lines = until(lambda: len(tcp.lines()) == 3 and tcp.lines())
    finally:
        root.removeHandler(handler)
    assert lines[0] == "one"
    assert [" does not accept log messages" in lines[1], " accepts log messages again" in lines[2]] == [True, True]


def test_messages_that_wait_are_shipped_when_the_server_is_back_even_if_none_follows(
    tcp: LogServer, ship: Ship
) -> None:
    logger, handler = ship(tcp, retry_interval=1)
    tcp.kill()
    logger.info("one")
    handler.flush()
    assert handler.stats().failures == 1
    tcp.start()
    until(lambda: tcp.lines() == ["one"])


@contextlib.contextmanager
def deaf(folder: Path) -> Iterator[LogServer]:
    with LogServer("deaf", folder) as server:
        yield server


def test_logging_never_waits_for_a_server_that_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resty_django.logs.handler.EXIT_SECONDS", 0)
    count, text = 10_000, "x" * 1000
    plain = logging.Logger("plain")
    plain.addHandler(FormattingHandler())
    started = time.perf_counter()
    for _ in range(count):
        plain.info("%s", text)
    baseline = time.perf_counter() - started
    with deaf(tmp_path) as server:
        handler = SocketHandler(**server.options, timeout=LONG)
        logger = logging.Logger("shop")
        logger.addHandler(handler)
        slowest = 0.0
        started = time.perf_counter()
        for _ in range(count):
            before = time.perf_counter()
            logger.info("%s", text)
            slowest = max(slowest, time.perf_counter() - before)
        took = time.perf_counter() - started
        figures = handler.stats()
        server.kill()
    assert took < 20 * baseline + 2  # a single wait would be a minute
    assert slowest < 10
    assert figures.size <= handler.options.drop_limit
    assert figures.dropped + figures.waiting + figures.sent == count
    assert figures.dropped > 0
    handler.close()


class FormattingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        self.format(record)


def test_a_server_that_does_not_read_is_given_up_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resty_django.logs.handler.EXIT_SECONDS", 0)
    with deaf(tmp_path) as server:
        handler = SocketHandler(
            **server.options, timeout=50, max_retry_times=1, retry_interval=1, drop_limit=32 * 1024 * 1024
        )
        logger = logging.Logger("shop")
        logger.addHandler(handler)
        for _ in range(200):
            logger.info("x" * 100_000)
        error = until(lambda: handler.stats().error)
        assert error == "sending failed: TimeoutError: timed out"
        server.kill()
    handler.close()


def test_udp_never_waits_for_a_missing_server(ship: Ship) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    handler = SocketHandler(host="127.0.0.1", port=port, sock_type="udp", retry_interval=1)
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    for _ in range(20):
        logger.info("one")
        handler.flush()
    assert handler.stats().dropped == 0
    handler.close()
