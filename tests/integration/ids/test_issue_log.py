"""The issue log: it contains every issued ID, and survives failures of its file."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test.utils import override_settings

from resty_django.ids import anext_id, next_id, next_ids, stop
from resty_django.ids.models import IdRule
from resty_django.ids.service.issue_log import IssueLog, open_log
from tests.threads import together

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]+)")


@pytest.fixture
def path(tmp_path: Path) -> Any:
    file = tmp_path / "issued.log"
    with override_settings(RESTY_DJANGO={"IDS": {"ISSUE_LOG": str(file)}}):
        stop()
        yield file
        stop()


def entries(*paths: Path) -> list[tuple[str, ...]]:
    """(rule, name, ID) of every line, all of which must be whole."""
    parsed = []
    for path in paths:
        for line in path.read_text().splitlines():
            match = LINE.fullmatch(line)
            assert match, line
            parsed.append(match.groups())
    return parsed


def test_every_id_is_in_the_log(order: IdRule, path: Path) -> None:
    ids = [next_id("order") for _ in range(20)]
    ids += next_ids("order", 30)
    ids.append(str(asyncio.run(anext_id("order"))))
    foreign_id = next_id("order", "日本")
    stop()
    assert entries(path) == [("order", "", issued_id) for issued_id in ids] + [("order", "日本", foreign_id)]
    assert path.stat().st_mode & 0o777 == 0o640


def test_lines_are_written_within_a_second_or_so(order: IdRule, path: Path, eventually: Callable[..., bool]) -> None:
    next_id("order")
    assert eventually(lambda: path.exists() and len(entries(path)) == 1, 3.0)


def test_a_gapless_id_is_logged_when_it_is_committed(make_rule: Callable[..., IdRule], path: Path) -> None:
    make_rule("invoice", "R{counter:09d}", gapless=True)
    with transaction.atomic():
        next_id("invoice")
    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
        next_id("invoice")
        1 / 0  # noqa: B018
    stop()
    assert entries(path) == [("invoice", "", "R000000000")]


def test_rotation_by_renaming_loses_no_line(order: IdRule, path: Path) -> None:
    ids: list[str] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            ids.extend(next_ids("order", 100))

    thread = threading.Thread(target=ask)
    thread.start()
    rotated = []
    for n in range(10):
        while not path.exists():
            pass
        rotated.append(path.rename(path.with_suffix(f".{n}")))
    ended.set()
    thread.join()
    stop()
    files = [*rotated, *([path] if path.exists() else [])]
    assert [line[2] for line in entries(*files)] == ids


def test_a_full_disk_is_reported_once_and_stops_nothing(order: IdRule, caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"ISSUE_LOG": "/dev/full"}}):
        stop()
        with caplog.at_level(logging.ERROR, "resty_django.ids"):
            ids = [issued_id for _ in range(5) for issued_id in next_ids("order", 1000)]
            stop()
    assert len(set(ids)) == 5000
    reports = [record.getMessage() for record in caplog.records]
    assert len(reports) == 1
    assert "/dev/full" in reports[0]
    assert "No space left" in reports[0]


def test_a_log_that_cannot_be_opened_is_reported_again_after_it_worked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    log = IssueLog(str(folder / "issued.log"))
    with caplog.at_level(logging.ERROR, "resty_django.ids"):
        for _ in range(3):
            log.write("r", "", ["lost"])
            log.flush()
        assert len(caplog.records) == 1
        folder.mkdir()
        log.write("r", "a", ["kept"])
        log.flush()
        (folder / "issued.log").unlink()
        folder.rmdir()
        log.write("r", "", ["lost"])
        log.flush()
        assert len(caplog.records) == 2
    log.close()


def test_two_processes_may_share_a_file(order: IdRule, path: Path, worker: Callable[..., Any]) -> None:
    others = [worker("flood", "order", "", "0.3", str(batch), ids={"ISSUE_LOG": str(path)}) for batch in (1, 300)]
    ids: list[str] = []
    while any(process.process.poll() is None for process in others):
        ids += next_ids("order", 70, "")
        time.sleep(0.001)
    stop()
    for process in others:
        assert process.end(None) == ""
        ids += process.lines
    assert sorted(line[2] for line in entries(path)) == sorted(ids)


def test_a_log_closed_under_load_has_all_that_was_written_before(tmp_path: Path) -> None:
    log = IssueLog(str(tmp_path / "log"))
    together(*[lambda n=n: [log.write("r", f"{n}", [f"{n}-{k}"]) for k in range(2000)] for n in range(4)])
    log.close()
    logged = entries(tmp_path / "log")
    assert len(logged) == 8000
    for n in range(4):
        assert [line[2] for line in logged if line[1] == str(n)] == [f"{n}-{k}" for k in range(2000)]


def test_without_a_path_there_is_no_log() -> None:
    assert open_log(None) is None
