"""Messages of failures: error line, location in the site's code, and lines of libraries."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import resty_django
from resty_django.qless.admin.jobs.tracebacks import is_library, report_of
from resty_django.qless.outcomes.error_text import message_of

OURS = Path(resty_django.__file__).parent
SITE = "/srv/shop/orders/tasks.py"
CHAINED = f"""\
PaymentError: payment refused
second line

Traceback (most recent call last):
  File "{SITE}", line 10, in charge
    bank.pay(order)
    ~~~~~~~~^^^^^^^
  File "/srv/venv/lib/python3.12/site-packages/bank/api.py", line 3, in pay
    raise Timeout
bank.Timeout

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/app/resty_django/qless/tasks/base.py", line 42, in run
    result = chain.run(middleware, job, function)
  File "{SITE}", line 12, in charge
    raise PaymentError("payment refused") from error
  File "/usr/lib/python3/dist-packages/orders.py", line 9, in __init__
    check(
      text)
  [Previous line repeated 3 more times]
PaymentError: payment refused
second line"""


def raised(function: object) -> str:
    try:
        function()  # type: ignore[operator]
    except BaseException as error:
        return message_of(error)
    pytest.fail("nothing was raised")


def test_location_is_the_last_frame_of_the_sites_own_code() -> None:
    report = report_of(CHAINED)
    assert report.error == "PaymentError: payment refused"
    assert report.location is not None
    assert (report.location.path, report.location.number, report.location.function) == (SITE, 12, "charge")
    assert report.location.source == 'raise PaymentError("payment refused") from error'
    assert not report.location.library
    assert "\n".join(line.text for line in report.lines) == CHAINED
    assert [line.text.strip() for line in report.lines if line.library] == [
        'File "/srv/venv/lib/python3.12/site-packages/bank/api.py", line 3, in pay',
        "raise Timeout",
        'File "/srv/app/resty_django/qless/tasks/base.py", line 42, in run',
        "result = chain.run(middleware, job, function)",
        'File "/usr/lib/python3/dist-packages/orders.py", line 9, in __init__',
        "check(",
        "text)",
        "[Previous line repeated 3 more times]",
    ]


def test_messages_of_workers_are_read() -> None:
    report = report_of(raised(lambda: json.loads("{")))
    assert report.error.startswith("JSONDecodeError: Expecting property name")
    assert report.location is not None
    assert (report.location.path, report.location.function) == (__file__, "<lambda>")
    assert report.location.short_path == "tests/unit/qless/test_tracebacks.py"
    assert any(line.library and "raw_decode" in line.text for line in report.lines)


def test_exception_groups_are_read() -> None:
    async def fail() -> None:
        raise KeyError("order")

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    report = report_of(raised(lambda: asyncio.run(both())))
    assert report.error.startswith("ExceptionGroup: unhandled errors in a TaskGroup")
    assert report.location is not None
    assert (report.location.path, report.location.function) == (__file__, "fail")
    assert report.location.source == 'raise KeyError("order")'


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("Traceback (most recent call last):\n  File \"/a.py\", line 1, in f\n    x\nKeyError: 'a'\n", "KeyError: 'a'"),
        ('  File "/a.py", line 1, in f\n    x\n    ^\nValueError: no\nmore', "ValueError: no"),
        ("\n\nonly this\n", "only this"),
        ("Timeout::Error\nlib/a.rb:7:in `pay'", "Timeout::Error"),
        ("x" * 900, "x" * 500),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_the_error_line_of_any_message_is_found(message: str, error: str) -> None:
    report = report_of(message)
    assert report.error == error
    assert "\n".join(line.text for line in report.lines) == message.strip("\n")


def test_without_own_frames_the_last_one_is_the_location() -> None:
    library = "/usr/lib/python3.11/json/decoder.py"
    report = report_of(f'ValueError: no\n\nTraceback (most recent call last):\n  File "{library}", line 5, in decode\n')
    assert report.location is not None
    assert report.location.library
    assert report.location.source == ""
    assert report_of("nothing to see").location is None


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (f"{OURS}/qless/tasks/base.py", True),
        ("/opt/resty_django/qless/client.py", True),
        ("/srv/resty_django/project/shop/tasks.py", False),
        ("/srv/resty_django/manage.py", False),
        ("admin/tasks.py", False),
        ("/srv/shop/python/tasks.py", False),
        ("<frozen importlib._bootstrap>", True),
        ("<string>", True),
        ("C:\\Python311\\Lib\\json\\decoder.py", True),
        ("C:\\site\\.venv\\Lib\\site-packages\\django\\db\\models.py", True),
        ("C:\\site\\shop\\tasks.py", False),
        ("/usr/lib64/python3.13/asyncio/tasks.py", True),
        (asyncio.__file__, True),
        (pytest.__file__, True),
        (__file__, False),
    ],
)
def test_libraries_are_recognized(path: str, library: bool) -> None:
    assert is_library(path) is library
