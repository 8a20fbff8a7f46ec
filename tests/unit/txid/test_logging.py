"""Log records with the txid of what is under way."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import logging.handlers
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from resty_django.txid import bound, carry
from resty_django.txid.logging import JsonFormatter, TxidFilter
from resty_django.txid.traceparent import begin_trace

ID = "cbpvimguo4hkaps9lf6g"
REQUEST_ID = "f058ebd6-02f7-4d3f-942e-904344e8cde5"


class Log:
    """A separate logger with a handler that writes into memory."""

    def __init__(self, formatter: logging.Formatter, *filters: logging.Filter) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        for filter_ in filters:
            self.handler.addFilter(filter_)
        self.logger = logging.Logger("shop", logging.DEBUG)
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def plain() -> Log:
    return Log(logging.Formatter("%(txid)s %(trace_id)s %(message)s"), TxidFilter())


@pytest.fixture
def as_json() -> Log:
    return Log(JsonFormatter(["status_code", "request", "took"]))


def test_each_line_has_the_txid(plain: Log) -> None:
    plain.logger.info("before")
    trace = begin_trace(ID)
    with bound(ID, trace):
        plain.logger.info("within")
    assert plain.lines == ["-  before", f"{ID} {trace.trace_id} within"]


def test_a_line_about_a_request_has_the_txid_of_that_request(plain: Log) -> None:
    """Django logs a status of 404 with the request, after the middleware is done."""
    trace = begin_trace(ID)
    plain.logger.warning("Not Found", extra={"request": SimpleNamespace(txid=ID, trace=trace)})
    with bound():
        plain.logger.warning("Not Found", extra={"request": SimpleNamespace(txid=ID, trace=trace)})
    assert plain.lines == [f"{ID} {trace.trace_id} Not Found"] * 2


def test_a_line_about_a_request_without_one_is_written(plain: Log) -> None:
    plain.logger.warning("broken pipe", extra={"request": SimpleNamespace()})
    assert plain.lines == ["-  broken pipe"]


def test_lines_have_the_request_id_of_the_caller(as_json: Log) -> None:
    log = Log(logging.Formatter("%(request_id)s %(message)s"), TxidFilter())
    log.logger.info("before")
    with bound(ID, request_id=REQUEST_ID):
        log.logger.info("within")
        as_json.logger.info("within")
        log.logger.info("other", extra={"request_id": "mine"})
    log.logger.warning("Not Found", extra={"request": SimpleNamespace(txid=ID, trace=None, request_id=REQUEST_ID)})
    as_json.logger.info("after")
    assert log.lines == ["- before", f"{REQUEST_ID} within", "mine other", f"{REQUEST_ID} Not Found"]
    assert [row.get("request_id") for row in as_json.rows] == [REQUEST_ID, None]


@pytest.mark.parametrize(
    "forged", ["1\n2026-11-21 INFO - forged", "12345678\n", "a\x1b[2Jbcdefgh", "x" * 129, "<b>bold</b>"]
)
def test_no_request_id_can_forge_a_line(plain: Log, forged: str) -> None:
    log = Log(logging.Formatter("%(request_id)s %(message)s"), TxidFilter())
    with bound(ID, request_id=forged):
        log.logger.info("within")
    log.logger.info("of another middleware", extra={"request": SimpleNamespace(request_id=forged)})
    assert log.lines == ["- within", "- of another middleware"]


def test_lines_of_threads_have_the_txid_that_they_carry(plain: Log) -> None:
    with bound(ID):
        thread = threading.Thread(target=carry(plain.logger.info), args=("from a thread",))
    thread.start()
    thread.join()
    assert plain.lines == [f"{ID}  from a thread"]


def test_a_queue_keeps_the_txid_of_the_caller() -> None:
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    first = logging.handlers.QueueHandler(lines)
    first.addFilter(TxidFilter())
    logger = logging.Logger("shop")
    logger.addHandler(first)
    last = Log(JsonFormatter(), TxidFilter())
    trace = begin_trace(ID)
    with bound(ID, trace):
        logger.warning("later")
    listener = logging.handlers.QueueListener(lines, last.handler)
    listener.start()
    listener.stop()
    (row,) = last.rows
    assert (row["message"], row["txid"], row["trace_id"]) == ("later", ID, trace.trace_id)


def test_a_line_of_json_describes_the_record(as_json: Log) -> None:
    before = datetime.now(UTC)
    with bound(ID, begin_trace(ID)) as block_id:
        as_json.logger.warning("%s of %d", "one", 2, extra={"status_code": 404, "took": 0.5, "password": "hunter2"})
    (row,) = as_json.rows
    assert row.pop("txid") == block_id
    assert abs((datetime.fromisoformat(row.pop("time")) - before).total_seconds()) < 60
    assert len(row.pop("trace_id")) == 32
    assert len(row.pop("span_id")) == 16
    assert isinstance(row.pop("process"), int)
    assert row == {
        "level": "WARNING",
        "logger": "shop",
        "message": "one of 2",
        "thread": threading.current_thread().name,
        "status_code": 404,
        "took": 0.5,
    }
    assert "hunter2" not in as_json.stream.getvalue()


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\u2028b", "a\x85b", "ä\x00\x1b[31m", "\udc80", '"}, {"level": 1'])
def test_each_record_is_one_line_of_ascii(as_json: Log, text: str) -> None:
    as_json.logger.error("%s", text)
    assert as_json.stream.getvalue().isascii()
    (row,) = as_json.rows
    assert row["message"] == text
    assert row["txid"] == "-"


def test_exceptions_and_stacks_are_texts(as_json: Log) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        as_json.logger.exception("failed", stack_info=True)
    (row,) = as_json.rows
    assert row["exception"].startswith("Traceback (most recent call last):\n")
    assert row["exception"].endswith("ValueError: two\nlines")
    assert row["stack"].startswith("Stack (most recent call last):\n")


class Anything:
    def __str__(self) -> str:
        return "GET /orders/"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Anything(), "GET /orders/"), (None, None), (float("nan"), "nan"), ({("a",): 1}, "{('a',): 1}"), (True, True)],
)
def test_values_without_a_json_type_become_text(as_json: Log, value: object, expected: object) -> None:
    as_json.logger.info("x", extra={"took": value})
    assert as_json.rows[0]["took"] == expected


@pytest.fixture
def _keep_logging() -> Iterator[None]:
    logger = logging.getLogger("docs.shop")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = before


@pytest.mark.usefixtures("_keep_logging")
def test_logging_is_set_up_by_a_dict(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"txid": {"()": "resty_django.txid.logging.TxidFilter"}},
            "formatters": {"json": {"()": "resty_django.txid.logging.JsonFormatter", "extra": ["order"]}},
            "handlers": {"out": {"class": "logging.StreamHandler", "filters": ["txid"], "formatter": "json"}},
            "loggers": {"docs.shop": {"handlers": ["out"], "level": "INFO", "propagate": False}},
        }
    )
    with bound(ID):
        logging.getLogger("docs.shop.orders").info("placed", extra={"order": 7})
    row = json.loads(capsys.readouterr().err)
    assert (row["txid"], row["order"], row["logger"]) == (ID, 7, "docs.shop.orders")
