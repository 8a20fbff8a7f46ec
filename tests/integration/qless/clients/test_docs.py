"""The page of the client: its code runs, and it describes all calls and fields."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import Redis

from resty_django.conf import conf
from resty_django.qless import Client, Events, Job, Queue, RecurringJob, client
from resty_django.qless.clients.client import Config
from resty_django.qless.clients.groups import Groups
from resty_django.qless.clients.jobs import Jobs
from resty_django.qless.clients.queue import QueueJobs
from tests.docs_reader import execute, page

pytestmark = pytest.mark.contract

PAGE = "docs/reference/jobs/client.md"
UNTOLD = {
    "add_hook",
    "run",
    "arun",
    "acall",
    "acall_many",
    "client",
    "call",
    "raw_data",
    "stopped",
    "state",
}


@pytest.mark.redis
def test_the_code_runs_as_the_page_says(settings: Any, valkey: Redis, valkey_url: str) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    namespace: dict[str, Any] = {"__name__": "docs"}
    snippets = 0
    for block in page(PAGE).blocks:
        if block.language == "python" and "RESTY_DJANGO" not in block.text:
            snippets += execute(block.text, block.place, namespace)
    assert snippets > 15
    client.close()


def test_the_settings_are_right(settings: Any) -> None:
    (block,) = (block for block in page(PAGE).blocks if "RESTY_DJANGO" in block.text)
    namespace: dict[str, Any] = {}
    execute(block.text, block.place, namespace)
    settings.RESTY_DJANGO = namespace["RESTY_DJANGO"]
    try:
        assert conf.qless.alias == "default"
    except ImproperlyConfigured as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("kind", [Client, Queue, Job, RecurringJob, Jobs, QueueJobs, Config, Events, Groups])
def test_the_page_describes_all_calls(kind: type) -> None:
    names = {name for name in dir(kind) if name[0] != "_"} - UNTOLD
    names -= {name for name in names if name[0] == "a" and name[1:] in names}  # twins
    names -= {name for name in names if re.match("(before|after)_|get_", name)}
    if kind is not Client:
        names -= {"config_get_all"}
    documented = set(re.findall(r"\w+", " ".join(page(PAGE).spans))) | page(PAGE).members
    assert names - documented == set()


def test_a_table_of_members_has_calls_and_attributes_with_whole_docstrings() -> None:
    members: Any = importlib.import_module("members")
    table = members.members("resty_django.qless.Queue", {"omit": "stats"}).splitlines()
    peek = "Return the job that a pop would return, or None; with `count` a list of at most that many."
    assert f"| `peek(count=None)` | {peek} |" in table
    assert any(line.startswith("| `pause(stop_jobs=False, *, reason='', by='')` | Stop handing out") for line in table)
    assert any(line.startswith("| `heartbeat` | The duration of a job's lock") for line in table)
    assert not any("`stats" in line or "`apop" in line or "`name`" in line for line in table)
    assert "| `restore(id, client=None)` |" in members.members("resty_django.qless.GroupResult", {})
    assert "result=...)` |" in members.members("resty_django.qless.Job", {})
