"""Figures of the job queue in `qless_stats`, the overview and the metrics, on a real server."""

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
from resty_django.qless.clients.statistics import collect_statistics
from resty_django.qless.management.commands import qless_stats

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_tasks")]


def fill(jobs: Client) -> None:
    """Enqueue two waiting jobs and a running one in `mail`, a failed and a complete one in `pdf`."""
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
    output = StringIO()
    call_command("qless_stats", *args, stdout=output, no_color=True)
    return output.getvalue()


def test_tables_show_queues_failures_and_workers(jobs: Client) -> None:
    fill(jobs)
    lines = [line.split() for line in stats().splitlines()]
    table = dict(zip(lines[0], lines[1], strict=False))
    assert (table["queue"], table["waiting"], table["running"]) == ("mail", "2", "1")
    assert lines[1][-1] == "open"
    assert lines[2][0] == "pdf"
    assert lines[2][-1] == "paused"
    assert ["pdf-OSError", "1"] in lines
    assert ["w1", "1", "0"] in lines


def test_empty_server_has_empty_tables(jobs: Client) -> None:
    assert stats().splitlines() == ["No queues yet.", "No failed jobs.", "No workers."]


def test_json_has_the_same_figures(jobs: Client) -> None:
    fill(jobs)
    document = json.loads(stats("--json"))
    mail, pdf = document["queues"]
    assert (mail["name"], mail["waiting"], mail["paused"]) == ("mail", 2, False)
    assert (pdf["failures"], pdf["run"]["count"], pdf["paused"]) == (1, 1, True)
    assert document["failed"] == {"pdf-OSError": 1}
    assert document["workers"] == [{"name": "w1", "state": None, "running": 1, "stalled": 0}]
    assert document["exceeded"] == []


def test_one_queue_alone(jobs: Client) -> None:
    fill(jobs)
    assert [queue["name"] for queue in json.loads(stats("--json", "--queue", "pdf"))["queues"]] == ["pdf"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--max-waiting", "1"], "The queue mail has 2 waiting jobs, more than 1."),
        (["--max-failed", "0"], "1 jobs have failed, more than 0."),
        (["--min-workers", "2"], "There are 1 workers, fewer than 2."),
        (["--queue", "never"], "The queue never does not exist."),
        (["--max-latency", "1000", "--queue", "mail"], None),
        (["--max-waiting", "2", "--max-failed", "1", "--min-workers", "1", "--max-stalled", "0"], None),
        (["--max-scheduled", "0", "--max-wait", "1000", "--queue", "mail"], None),
    ],
)
def test_thresholds_give_the_exit_code_1(jobs: Client, options: list[str], sentence: str | None) -> None:
    fill(jobs)
    if sentence is None:
        stats(*options)
        return
    output = StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("qless_stats", *options, "--json", stdout=output)
    assert (str(raised.value), raised.value.returncode) == (sentence, 1)
    assert json.loads(output.getvalue())["exceeded"] == [sentence]


def test_an_old_job_exceeds_the_latency(jobs: Client) -> None:
    jobs.queues["mail"].put("K")
    jobs.source.sync().zadd("ql:q:mail-work", {"old": -(time.time() - 90) / 1e10})
    with pytest.raises(
        CommandError, match=r"The oldest runnable job of the queue mail is 9\d\.\d s old, more than 60 s\."
    ):
        stats("--max-latency", "60")
    jobs.queues["mail"].pause()
    stats("--max-latency", "60")


def test_a_server_that_is_down_gives_the_exit_code_2() -> None:
    with (
        override_settings(RESTY_DJANGO={"QLESS": {"URL": "redis://127.0.0.1:1/0"}}),
        pytest.raises(CommandError) as raised,
    ):
        stats()
    assert raised.value.returncode == 2


def test_names_are_escaped_in_the_terminal(jobs: Client) -> None:
    jobs.queues["a\x1b[2Jb\nc" + "x" * 100].put("shop.jobs.Mail")
    output = stats()
    assert "\x1b" not in output
    assert "a\\x1b[2Jb c" in output


def test_watch_repeats_and_continues_after_a_threshold(jobs: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(jobs)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(qless_stats.time, "sleep", nap)
    output, errors = StringIO(), StringIO()
    call_command("qless_stats", "--watch", "5", "--max-waiting", "1", stdout=output, stderr=errors, no_color=True)
    assert naps == [5.0, 5.0, 5.0]
    assert output.getvalue().count("pdf-OSError") == 3
    assert errors.getvalue().count("more than 1") == 3
    with pytest.raises(CommandError, match="greater than 0"):
        stats("--watch", "0")


def test_panel_counts_jobs(jobs: Client) -> None:
    fill(jobs)
    panel = next(panel for panel in overview.panels() if panel.name == "jobs")
    (answer,) = overview.answers([panel])
    assert answer.tile is not None, answer.error
    values = {figure.name: figure.value for figure in answer.tile.figures}
    assert 0 <= values.pop("latency") < 600
    assert values == {"waiting": 2, "running": 1, "failed": 1, "workers": 1, "per_minute": 0}
    assert [row.subject for row in answer.tile.rows] == ["mail", "pdf"]
    assert sum(answer.tile.bars) == 1
    assert answer.tile.notes == ["Paused: pdf."]


def test_metrics_count_jobs(jobs: Client) -> None:
    fill(jobs)
    samples = {(family.name, *sample.labels): sample for family in metrics.collected() for sample in family.samples}
    assert samples["resty_source_up", "jobs"].value == 1
    assert samples["resty_jobs", "mail", "waiting"].value == 2
    assert samples["resty_jobs_failed", "pdf-OSError"].value == 1
    assert samples["resty_jobs_run_seconds", "pdf"].count == 1
    assert samples["resty_jobs_failures", "pdf"].value == 1
    assert samples["resty_jobs_queue_paused", "pdf"].value == 1
    assert 0 < samples["resty_jobs_latency_seconds", "mail"].value < 600
    assert samples["resty_jobs_latency_seconds", "pdf"].value == 0
    assert samples[("resty_jobs_workers",)].value == 1


def test_hanging_server_does_not_block_other_metrics(settings: Any) -> None:
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


def test_figures_make_one_call_per_queue(jobs: Client, valkey: Any) -> None:
    for number in range(50):
        jobs.queues[f"q{number}"].put("shop.jobs.Mail")
    collect_statistics(jobs)
    before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
    statistics = collect_statistics(jobs)
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 4 + 50 + 1 + 4
    assert len(statistics.queues) == 50
    assert statistics.total("waiting") == 50
    before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
    statistics = collect_statistics(jobs, of_today=False)
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 4 + 1 + 4
    assert {queue.stats for queue in statistics.queues} == {None}
