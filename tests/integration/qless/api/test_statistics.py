"""Figures of the job queue in the overview and the metrics, on a real server."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from django.test import override_settings

from resty_django import metrics, overview
from resty_django.qless import Client
from resty_django.qless.facts import job_queue_facts

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_tasks")]


def fill(jobs: Client) -> None:
    """Enqueue two waiting jobs and a running one in `mail`; a failed, a complete and a waiting one in `pdf`, paused."""
    for _ in range(3):
        jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    for _ in range(2):
        jobs.queues["pdf"].put("shop.jobs.Pdf")
    done, failed = jobs.queues["pdf"].pop(2)
    done.complete()
    failed.fail("pdf-OSError", "OSError: full")
    jobs.queues["pdf"].put("shop.jobs.Pdf")
    jobs.queues["pdf"].pause(by="ann")


def test_panel_counts_jobs(jobs: Client) -> None:
    fill(jobs)
    panel = next(panel for panel in overview.panels() if panel.name == "jobs")
    (answer,) = overview.answers([panel])
    assert answer.tile is not None, answer.error
    values = {figure.name: figure.value for figure in answer.tile.figures}
    assert 0 <= values.pop("latency") < 600
    assert values == {"waiting": 3, "running": 1, "failed": 1, "workers": 1, "per_minute": 0}
    assert [row.subject for row in answer.tile.rows] == ["mail", "pdf"]
    assert sum(answer.tile.bars) == 1
    (latency,) = [figure for figure in answer.tile.figures if figure.name == "latency"]
    assert re.fullmatch(r"pdf: paused since \d\d:\d\d by ann, 1 waiting, oldest .*s", latency.note)
    assert latency.level == "ok"
    jobs.config.set("pdf-paused-since", time.time() - 4000)
    (answer,) = overview.answers([panel])
    assert answer.tile is not None
    assert {figure.name for figure in answer.tile.figures if figure.level == "warning"} == {"failed", "latency"}


def test_metrics_count_jobs(jobs: Client) -> None:
    fill(jobs)
    samples = {(family.name, *sample.labels): sample for family in metrics.collected() for sample in family.samples}
    assert samples["resty_source_up", "jobs"].value == 1
    assert samples["resty_jobs", "mail", "waiting"].value == 2
    assert samples["resty_jobs_failed", "pdf-OSError"].value == 1
    assert samples["resty_jobs_run_seconds", "pdf"].count == 1
    assert samples["resty_jobs_failures", "pdf"].value == 1
    assert samples["resty_jobs_queue_paused", "pdf"].value == 1
    assert time.time() - 600 < samples["resty_jobs_queue_paused_since_seconds", "pdf"].value <= time.time()
    assert ("resty_jobs_queue_paused_since_seconds", "mail") not in samples
    for name in ("mail", "pdf"):
        assert 0 < samples["resty_jobs_latency_seconds", name].value < 600
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
    job_queue_facts(jobs, of_today=True)
    before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
    statistics = job_queue_facts(jobs, of_today=True)
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 4 + 50 + 1 + 4
    assert len(statistics.queues) == 50
    assert statistics.total("waiting") == 50
    before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
    statistics = job_queue_facts(jobs)
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 4 + 1 + 4
    assert {queue.stats for queue in statistics.queues} == {None}
