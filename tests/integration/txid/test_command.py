"""`manage.py txid`, and the one txid of each run of a command."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django.txid import is_txid, parse
from tests import processes

ROOT = Path(__file__).resolve().parents[3]


def run(*args: str, **options: Any) -> list[str]:
    output = io.StringIO()
    call_command("txid", *args, stdout=output, **options)
    return output.getvalue().splitlines()


def test_make_prints_a_txid() -> None:
    (first,) = run()
    (second,) = run("make")
    assert is_txid(first)
    assert is_txid(second)
    assert first != second
    assert abs(parse(first).time - datetime.now(UTC)).total_seconds() < 60


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("1700000000123", 1700000000123),
        ("1700000000123.9", 1700000000123),
        ("-1", 2**42 - 1),
        ("2023-11-14T22:13:20.123Z", 1700000000123),
        ("2023-11-14T23:13:20.123+01:00", 1700000000123),
        ("2023-11-14 23:13:20.123", 1700000000123),
        ("2023-11-14", 1699916400000),
    ],
)
def test_times_are_milliseconds_or_iso_texts_in_the_time_zone_of_the_site(time: str, ms: int) -> None:
    txid, least, most = run("make", time) + run("min", time) + run("max", time)
    assert parse(txid).ms == parse(least).ms == parse(most).ms == ms
    assert (parse(least).random, parse(most).random) == (0, 2**54 - 1)


def test_a_batch_has_the_requested_count() -> None:
    ids = run("batch", "2345")
    assert len(ids) == len(set(ids)) == 2345
    assert all(is_txid(txid) for txid in ids)
    assert run("batch", "0") == []


def test_parse_prints_the_contents() -> None:
    assert run("parse", "CBPVIMGUO4HKAPS9LF6G", "00000000000000000000") == [
        "cbpvimguo4hkaps9lf6g  2023-11-14T23:13:20.123+01:00  1700000000123 ms  random 0x0123456789abcd",
        "00000000000000000000  1970-01-01T01:00:00.000+01:00  0 ms  random 0x00000000000000",
    ]
    (line,) = run("parse", "cbpvimguo4hkaps9lf6g", "--json")
    assert json.loads(line) == {
        "txid": "cbpvimguo4hkaps9lf6g",
        "time": "2023-11-14T23:13:20.123+01:00",
        "ms": 1700000000123,
        "random": "0x0123456789abcd",
    }


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["parse", "x"], "has 20 characters"),
        (["parse"], "at least one ID"),
        (["min"], "at least one time"),
        (["make", "yesterday"], "'yesterday' is not a time"),
        (["make", "nan"], "'nan' is not a time"),
        (["batch"], "one whole number"),
        (["batch", "-5"], "one whole number"),
        (["batch", "1", "2"], "one whole number"),
        (["make", "--json"], "--json is only supported by parse"),
    ],
)
def test_wrong_arguments_are_explained(args: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        run(*args)


LOGGING_COMMAND = """
import logging
from concurrent.futures import ThreadPoolExecutor
log = logging.getLogger("project")
log.info("one")
with ThreadPoolExecutor() as pool:
    pool.submit(log.info, "two").result()
from resty_django.txid import bound
with bound():
    log.info("three")
log.info("four")
"""


def test_each_run_of_a_command_has_one_id(tmp_path: Path) -> None:
    env = {**os.environ, "RESTY_VAR": str(tmp_path), "DEMO_LOG": "json"}
    runs = []
    for _ in range(2):
        done = processes.run(
            [sys.executable, "manage.py", "shell", "-c", LOGGING_COMMAND],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [json.loads(line) for line in done.stderr.splitlines()]
        assert [row["message"] for row in rows] == ["one", "two", "three", "four"]
        first, second, third, fourth = (row["txid"] for row in rows)
        assert is_txid(first)
        assert first == second == fourth != third
        runs.append(first)
    assert runs[0] < runs[1]


def test_a_run_of_another_program_has_no_txid(tmp_path: Path) -> None:
    program = "import django; django.setup(); import logging; logging.getLogger('project').info('one')"
    env = {**os.environ, "RESTY_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "project.settings"}
    done = processes.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert re.search(r" INFO - project: one$", done.stderr)
