"""The job queue in a terminal, on the overview and in the metrics, on a real server."""

from __future__ import annotations

import json
import threading
import time
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from resty_django import metrics, overview
from resty_django.qless import Client
from resty_django.qless.figures import figures
from resty_django.qless.management.commands import qless_stats

pytestmark = pytest.mark.redis


def fill(jobs: Client) -> None:
    """Two jobs that wait and one that runs in `mail`, one that failed and one that is complete in `pdf`."""
    for _ in range(3):
        jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    for _ in range(2):
        jobs.queues["pdf"].put("shop.jobs.Pdf")
    done, failed = jobs.queues["pdf"].pop(2)
    done.complete()
    failed.fail("pdf-OSError", "OSError: full")
    jobs.queues["pdf"].pause()


def stats(*args: str) -> str:
    out = StringIO()
    call_command("qless_stats", *args, stdout=out, no_color=True)
    return out.getvalue()


def test_tables_tell_queues_failures_and_workers(jobs: Client) -> None:
    fill(jobs)
    lines = [line.split() for line in stats().splitlines()]
    table = dict(zip(lines[0], lines[1], strict=False))
    assert (table["queue"], table["waiting"], table["running"]) == ("mail", "2", "1")
    assert lines[1][-1] == "open"
    assert lines[2][0] == "pdf"
    assert lines[2][-1] == "paused"
    assert ["pdf-OSError", "1"] in lines
    assert ["w1", "1", "0"] in lines


def test_an_empty_server_is_told(jobs: Client) -> None:
    assert stats().splitlines() == ["There is no queue yet.", "No job has failed.", "There is no worker."]


def test_json_tells_the_same(jobs: Client) -> None:
    fill(jobs)
    told = json.loads(stats("--json"))
    mail, pdf = told["queues"]
    assert (mail["name"], mail["waiting"], mail["paused"]) == ("mail", 2, False)
    assert (pdf["failures"], pdf["run"]["count"], pdf["paused"]) == (1, 1, True)
    assert told["failed"] == {"pdf-OSError": 1}
    assert told["workers"] == [{"name": "w1", "running": 1, "stalled": 0}]
    assert told["exceeded"] == []


def test_one_queue_alone(jobs: Client) -> None:
    fill(jobs)
    assert [queue["name"] for queue in json.loads(stats("--json", "--queue", "pdf"))["queues"]] == ["pdf"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--max-waiting", "1"], "The queue mail has 2 waiting jobs, more than 1."),
        (["--max-failed", "0"], "1 jobs have failed, more than 0."),
        (["--min-workers", "2"], "There are 1 workers, fewer than 2."),
        (["--queue", "never"], "There is no queue never."),
        (["--max-waiting", "2", "--max-failed", "1", "--min-workers", "1", "--max-stalled", "0"], None),
        (["--max-scheduled", "0", "--max-wait", "1000", "--queue", "mail"], None),
    ],
)
def test_thresholds_give_the_exit_code_1(jobs: Client, options: list[str], sentence: str | None) -> None:
    fill(jobs)
    if sentence is None:
        stats(*options)
        return
    out = StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("qless_stats", *options, "--json", stdout=out)
    assert (str(raised.value), raised.value.returncode) == (sentence, 1)
    assert json.loads(out.getvalue())["exceeded"] == [sentence]


def test_a_server_that_is_down_gives_the_exit_code_2() -> None:
    with (
        override_settings(RESTY_DJANGO={"QLESS": {"URL": "redis://127.0.0.1:1/0"}}),
        pytest.raises(CommandError) as raised,
    ):
        stats()
    assert raised.value.returncode == 2


def test_names_that_others_made_cannot_write_to_the_terminal(jobs: Client) -> None:
    jobs.queues["a\x1b[2Jb\nc" + "x" * 100].put("shop.jobs.Mail")
    shown = stats()
    assert "\x1b" not in shown
    assert "a\\x1b[2Jb c" in shown


def test_watching_prints_again_and_goes_on_after_a_threshold(jobs: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(jobs)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(qless_stats.time, "sleep", nap)
    out, err = StringIO(), StringIO()
    call_command("qless_stats", "--watch", "5", "--max-waiting", "1", stdout=out, stderr=err, no_color=True)
    assert naps == [5.0, 5.0, 5.0]
    assert out.getvalue().count("pdf-OSError") == 3
    assert err.getvalue().count("more than 1") == 3
    with pytest.raises(CommandError, match="more than 0"):
        stats("--watch", "0")


def test_the_panel_tells_jobs(jobs: Client) -> None:
    fill(jobs)
    panel = next(panel for panel in overview.panels() if panel.name == "jobs")
    (answer,) = overview.answers([panel])
    assert answer.tile is not None, answer.error
    told = {figure.name: figure.value for figure in answer.tile.figures}
    assert told == {"waiting": 2, "running": 1, "failed": 1, "workers": 1, "per_minute": 0}
    assert [row.subject for row in answer.tile.rows] == ["mail", "pdf"]
    assert sum(answer.tile.bars) == 1
    assert answer.tile.notes == ["Paused: pdf."]


def test_the_metrics_tell_jobs(jobs: Client) -> None:
    fill(jobs)
    found = {(family.name, *sample.labels): sample for family in metrics.collected() for sample in family.samples}
    assert found["resty_source_up", "jobs"].value == 1
    assert found["resty_jobs", "mail", "waiting"].value == 2
    assert found["resty_jobs_failed", "pdf-OSError"].value == 1
    assert found["resty_jobs_run_seconds", "pdf"].count == 1
    assert found["resty_jobs_failures", "pdf"].value == 1
    assert found["resty_jobs_queue_paused", "pdf"].value == 1
    assert found[("resty_jobs_workers",)].value == 1


def test_a_server_that_hangs_holds_up_nobody(settings: Any) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        with override_settings(RESTY_DJANGO={"QLESS": {"URL": url}}):
            started = time.monotonic()
            families = metrics.collected(0.2)
            took = time.monotonic() - started
    up = {sample.labels: sample.value for sample in families[0].samples}
    assert up["jobs",] == 0
    assert up["dictionaries",] == 1
    assert took < 30
    for thread in threading.enumerate():
        if thread.name == "resty-ask-metrics jobs":
            thread.join(60)


def test_figures_ask_two_things_of_each_queue(jobs: Client, valkey: Any) -> None:
    for number in range(50):
        jobs.queues[f"q{number}"].put("shop.jobs.Mail")
    figures(jobs)
    before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
    found = figures(jobs)
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 3 + 2 * 50
    assert len(found.queues) == 50
    assert found.total("waiting") == 50
