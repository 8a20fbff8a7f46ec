"""The state of the archive: health, metrics and the command."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError

from resty_django.conf import conf
from resty_django.qless import Client, health, overview
from resty_django.qless.archive import writer
from resty_django.qless.checks import check_qless
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import complete, configure, rows, states, write

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]


def findings() -> list[tuple[str, str]]:
    return [(finding.level, finding.message) for finding in health.probe() if finding.subject == "job archive"]


def run(*arguments: str) -> str:
    output = io.StringIO()
    call_command("qless_archive", *arguments, stdout=output, stderr=output)
    return output.getvalue()


def test_the_probe_warns_of_an_archive_that_is_late(site: Client, clock: Clock) -> None:
    complete(site, "c1")
    ((level, message),) = findings()
    assert level == "warning"
    assert "No process writes it" in message
    write(site)
    assert findings() == [("ok", "1 jobs written; 0 complete jobs are not archived yet.")]
    site.config.set("jobs-history", 100)
    complete(site, "c2")
    clock.skew = 60
    ((level, message),) = findings()
    assert level == "warning"
    assert "The oldest one ended 60 s ago, and Redis keeps 100 s" in message
    clock.skew = 200
    complete(site, "c3")
    ((_, message),) = findings()
    assert "1 jobs were deleted before they were archived." in message


def test_a_site_without_an_archive_has_no_finding(site: Client, settings: Any) -> None:
    configure(settings, RETENTION=None)
    assert not conf.qless.archive.enabled
    assert findings() == []
    with pytest.raises(CommandError, match="ARCHIVE"):
        run()


def figures() -> dict[str, float]:
    return {family.name: family.samples[0].value for family in overview.families() if "archive" in family.name}


def test_metrics_report_lag_and_counts(site: Client) -> None:
    complete(site, "c1")
    before = figures()
    assert before["resty_jobs_archive_behind"] == 1
    assert 0 < before["resty_jobs_archive_lag_seconds"] < 60
    write(site)
    assert figures() == {
        "resty_jobs_archive_lag_seconds": 0,
        "resty_jobs_archive_behind": 0,
        "resty_jobs_archive_written": 1,
        "resty_jobs_archive_lost": 0,
    }


def test_a_retention_shorter_than_the_time_in_redis_is_a_warning(site: Client, settings: Any) -> None:
    for retention, ids in (("2d", ["resty_qless.W002"]), ("365d", []), (None, [])):
        configure(settings, RETENTION=retention)
        assert [message.id for message in check_qless()] == ids


def test_the_command_writes_and_reports(site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(site, "c1")
    assert "1 complete" in run("--status")
    assert states() == {}
    assert "1 jobs written, 0 old rows deleted." in run()
    assert set(states()) == {"c1"}
    assert json.loads(run("--status", "--json"))["written"] == 1
    clock.skew = 120
    complete(site, "c2")
    run()
    rows()["c1"].delete()
    assert "0 jobs written" in run()
    assert "1 jobs written" in run("--again")

    def down(*args: Any) -> Any:
        raise OperationalError("down")

    complete(site, "c3")
    monkeypatch.setattr(writer, "upsert", down)
    with pytest.raises(CommandError, match="down") as caught:
        run()
    assert caught.value.returncode == 2
    site.config.set("jobs-history", 10)
    clock.skew += 8
    with pytest.raises(CommandError, match="late") as caught:
        run("--status")
    assert caught.value.returncode == 1
