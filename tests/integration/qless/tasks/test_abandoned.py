"""Recurring jobs whose tasks are gone: told from those of people, shown, and canceled when asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django import health
from resty_django.qless import Client, client
from resty_django.qless.clients.recurring import RecurringJob
from resty_django.qless.tasks.abandoned import QUIET, of_tasks
from resty_django.qless.tasks.registry import discover, find
from resty_django.qless.tasks.schedule import declare, scheduled

pytestmark = pytest.mark.redis

SHOP = "declared_shop_tasks"
JID = f"every-{SHOP}.sweep"
TASK = "from resty_django.qless import task\n\n\n@task({})\ndef sweep():\n    pass\n"
EVERY = TASK.format('queue="mail", every=300')
NOTHING = "from resty_django.qless import task\n"

Deploy = Callable[[str | None], None]


@pytest.fixture
def deploy(site: Any, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Puts code of a module in place of what was there (None: no module), as a process that starts anew has it."""
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "MODULES": [SHOP]}}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for path in [path for path in scheduled if path.startswith(SHOP)]:
            del scheduled[path]
        sys.modules.pop(SHOP, None)
        find.cache_clear()
        importlib.invalidate_caches()

    def deploy(code: str | None) -> None:
        forget()
        path = tmp_path / f"{SHOP}.py"
        if code is None:
            path.unlink()
        else:
            path.write_text(code)

    yield deploy
    forget()


def work(*queues: str) -> None:
    """What a worker of these queues does every 20 seconds."""
    discover()
    declare(client, queues)


def later(seconds: float = QUIET + 1) -> None:
    """As if workers had declared so long ago what they have declared."""
    server = client.source.sync()
    for jid in server.zrange("ql:declared", 0, -1):
        server.zincrby("ql:declared", -seconds, jid)


def command(*options: str) -> str:
    output = StringIO()
    call_command("qless_recurring", *options, stdout=output, no_color=True)
    return output.getvalue()


def there(jid: str = JID) -> RecurringJob | None:
    job = client.jobs.get(jid)
    assert job is None or isinstance(job, RecurringJob)
    return job


def warnings() -> list[str]:
    return [finding.message for _, finding in health.run(["jobs"]) if finding.subject == f"recurring {JID}"]


def test_a_task_that_is_there_is_none_of_them(deploy: Deploy) -> None:
    deploy(EVERY)
    work("mail")
    later()
    row = command().splitlines()[1].split()
    assert row == [JID, f"{SHOP}.sweep", "mail", "300", "s", "0", "a", "task"]
    assert command("--prune") == "Nothing to cancel.\n"
    assert there()
    assert warnings() == []


def test_a_task_that_was_removed(deploy: Deploy) -> None:
    deploy(EVERY)
    work("mail")
    deploy(NOTHING)
    work("mail")  # of the new code
    later(QUIET - 60)
    assert "the task no longer exists; a worker declared it 540 s ago." in command()
    text = command("--prune")
    assert text.startswith(f"Kept {JID}: the task no longer exists")
    assert text.endswith("Nothing to cancel.\n")
    assert there()
    assert warnings() == []
    later(61)
    assert warnings() == [
        "No task declares it any more, but it creates jobs: the task no longer exists. See manage.py qless_recurring."
    ]
    assert command().splitlines()[1].endswith("a removed task")
    assert command().endswith("601 s ago. --prune cancels it.\n")
    line = f"{JID} of the queue mail: the task no longer exists.\n"
    assert command("--prune", "--dry-run") == f"Would cancel {line}"
    assert there()
    assert command("--prune") == f"Canceled {line}"
    assert there() is None
    assert warnings() == []
    assert command() == "No recurring jobs.\n"
    assert client.source.sync().zcard("ql:declared") == 0


def test_old_workers_keep_it_while_they_run(deploy: Deploy) -> None:
    deploy(EVERY)
    work("mail")
    later()
    work("mail")
    deploy(NOTHING)
    assert command("--prune").endswith("Nothing to cancel.\n")
    due = there().next()  # type: ignore[union-attr]
    deploy(EVERY)
    work("mail")
    assert there().next() == due  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (TASK.format('queue="mail"'), "the task no longer has every="),
        (TASK.format('queue="mail", cron="30 2 * * *"'), "the task has cron= instead of every="),
        ("def sweep():\n    pass\n", "the task no longer has every="),
        ("sweep = 7\n", "it is not a task that workers may run"),
        (None, "the task no longer exists"),
    ],
)
def test_what_else_may_become_of_a_task(deploy: Deploy, code: str | None, fault: str) -> None:
    deploy(EVERY)
    work("mail")
    deploy(code)
    work("mail")
    assert there()
    later()
    assert [(declared.job.jid, declared.fault, declared.abandoned) for declared in of_tasks(client)] == [
        (JID, fault, True)
    ]
    assert f"mail: {fault}.\n" in command("--prune")
    assert there() is None


def test_its_module_is_allowed_no_longer(deploy: Deploy, site: Any, valkey_url: str) -> None:
    deploy(EVERY)
    work("mail")
    later()
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    assert "it is not a task that workers may run" in command("--prune")
    assert there() is None


def test_another_queue(deploy: Deploy) -> None:
    """It moves with the first worker of the new queue; before that it is not abandoned."""
    deploy(EVERY)
    work("mail")
    deploy(TASK.format('queue="post", every=300'))
    work("mail")
    later()
    assert command("--prune") == "Nothing to cancel.\n"
    assert there().queue_name == "mail"  # type: ignore[union-attr]
    work("post")
    assert there().queue_name == "post"  # type: ignore[union-attr]
    assert [client.queues[name].counts().recurring for name in ("mail", "post")] == [0, 1]
    assert command("--prune") == "Nothing to cancel.\n"


def test_a_queue_that_nobody_serves(deploy: Deploy) -> None:
    """Its jobs are not declared anew, and neither they nor the notes of other queues are touched."""
    deploy(EVERY)
    work("mail")
    later()
    work("other")
    assert there()
    (declared,) = of_tasks(client)
    assert declared.ago > QUIET
    assert not declared.abandoned
    assert command("--prune") == "Nothing to cancel.\n"
    assert there()


@pytest.mark.parametrize(
    "code",
    [
        "import no_such_package\n",
        "from resty_django.qless.tasks.base import nothing\n",
        'raise ImportError("cron= needs the package cronsim")\n',
        "1 / 0\n",
        "def sweep(:\n",
    ],
)
def test_a_module_that_cannot_be_imported_says_nothing(deploy: Deploy, code: str) -> None:
    deploy(EVERY)
    work("mail")
    later()
    deploy(code)
    assert f"{JID}: its module cannot be imported: " in command()
    assert command("--prune").endswith("Nothing to cancel.\n")
    assert there()
    assert warnings() == []


@pytest.mark.parametrize("how", ["by hand", "declared", "changed", "canceled", "class"])
def test_what_people_have_made_is_never_touched(deploy: Deploy, how: str) -> None:
    """Even with the jid, the class and the arguments of a task."""
    path, data = f"{SHOP}.sweep", {"args": [], "kwargs": {}}
    client.queues["mail"].recur("shop.jobs.Digest", {}, 60, jid="every-digest")
    client.queues["mail"].recur(path, data, 60, jid="daily sweep")
    deploy(EVERY)
    if how != "by hand":
        work("mail")
        later()
    deploy(NOTHING)
    if how == "changed":
        there().update(interval=60)  # type: ignore[union-attr]
    elif how == "class":
        client.source.sync().hset(f"ql:r:{JID}", "klass", "shop.jobs.Sweep")  # another client, with a core of its own
    else:
        if how == "canceled":
            there().cancel()  # type: ignore[union-attr]
        client.queues["mail"].recur(path, data, 60, jid=JID)
    assert of_tasks(client) == []
    assert warnings() == []
    assert command("--prune") == "Nothing to cancel.\n"
    assert sorted(client.queues["mail"].jobs.recurring()) == sorted(["daily sweep", "every-digest", JID])
    assert [line.rsplit(maxsplit=1)[1] for line in command().splitlines()[1:]] == ["people"] * 3


def test_what_a_person_has_changed_a_worker_declares_again(deploy: Deploy) -> None:
    deploy(EVERY)
    work("mail")
    there().update(interval=60)  # type: ignore[union-attr]
    assert of_tasks(client) == []
    work("mail")
    (declared,) = of_tasks(client)
    assert declared.job.interval == 300
    assert declared.ago < 60


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols(deploy: Deploy, valkey_url: str, protocol: int) -> None:
    deploy(EVERY)
    work("mail")
    protocol_client = Client(f"{valkey_url}?protocol={protocol}")
    (declared,) = of_tasks(protocol_client)
    assert declared.job.jid == JID
    assert 0 <= declared.ago < 60
    protocol_client.close()


def test_a_worker_whose_clock_is_ahead(deploy: Deploy) -> None:
    deploy(EVERY)
    work("mail")
    later(-3600)
    deploy(NOTHING)
    assert "a worker declared it 0 s ago" in command("--prune")
    assert there()


def test_texts_of_others_do_not_steer_the_terminal(site: Any) -> None:
    client.queues["q\x1b[2J"].recur("K\x1b[31m", {}, 60, jid="j\x1b\n")
    assert "\x1b" not in command()
    assert len(command().splitlines()) == 2


def test_what_the_command_refuses(site: Any) -> None:
    with pytest.raises(CommandError, match="needs --prune"):
        command("--dry-run")
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "QLESS": {"URL": "redis://127.0.0.1:1"}}
    with pytest.raises(CommandError, match="does not answer") as raised:
        command()
    assert raised.value.returncode == 2
