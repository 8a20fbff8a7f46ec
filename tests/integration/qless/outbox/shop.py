"""Processes that accept orders and deliver the outbox, and the count of the jobs that come of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection

from resty_django.qless import Client
from tests import processes
from tests.forkserver import ROOT
from tests.integration.qless.outbox.victim import jobs_of

ORDERS = "tests.integration.qless.outbox.orders"


def settings_for(url: str) -> dict[str, Any]:
    """Return the settings of the job queue of the shop."""
    worker = {"QUEUES": ["orders"], "PROCESSES": 1, "CONCURRENCY": 2}
    return {"URL": url, "MODULES": [ORDERS], "OUTBOX": True, "WORKER": worker}


def start(url: str, log: Path, options: dict[str, Any], *arguments: str) -> processes.Process:
    """Start `victim` on the database of the test."""
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
        "TEST_QLESS": json.dumps(settings_for(url)),
        "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "tests.integration.qless.outbox.victim", json.dumps(options), *arguments]
    with log.open("ab") as output:
        return processes.Process(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def accepted() -> set[int]:
    """Return the orders that were committed."""
    return {int(name) for name in Group.objects.values_list("name", flat=True)}


def expected() -> Counter[tuple[Any, ...]]:
    """Return the jobs that the accepted orders need: function, order, and part."""
    return Counter(job for order in accepted() for job in jobs_of(order))


def puts(client: Client) -> Counter[tuple[Any, ...]]:
    """Return how often each job was put, over all jobs of the server and their histories."""
    keys = [key.decode() for key in client.source.sync().scan_iter("ql:j:*", count=1000)]
    jids = [key.removeprefix("ql:j:") for key in keys if re.fullmatch("ql:j:[0-9a-f]{32}", key)]
    counts: Counter[tuple[Any, ...]] = Counter()
    for job in client.jobs.multiget(*jids):
        order, part = (*job.data["args"], 0)[:2]
        counts[job.klass.rpartition(".")[2], order, part] += sum(
            entry["what"] == "put" for entry in job.raw_queue_history
        )
    return counts
