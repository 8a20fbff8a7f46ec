"""Recurring jobs whose tasks are gone: distinguished from jobs of people, shown, and canceled on request."""

from __future__ import annotations

import re
from contextlib import closing
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django import health
from resty_django.qless import Client, client
from resty_django.qless.tasks.abandoned import ABANDONED_SECONDS, of_tasks
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks.conftest import Deploy, recurring_job, work

pytestmark = pytest.mark.redis

SHOP = "declared_shop_tasks"
JID = f"every-{SHOP}.sweep"
TASK = "@task({})\ndef sweep():\n    pass\n"
EVERY = TASK.format('queue="mail", every=300')


@pytest.fixture
def deploy(deploy: Deploy) -> Deploy:
    """Puts code of the module in place of what was there; then a worker of these queues does its work, if any."""

    def deploy_shop(code: str | None, *queues: str) -> None:
        deploy(**{SHOP: code})
        if queues:
            work(*queues)

    return deploy_shop


def later(seconds: float = ABANDONED_SECONDS + 1) -> None:
    """Move the last declaration of all jobs into the past."""
    server = client.source.sync()
    for jid in server.zrange("ql:declared", 0, -1):
        server.zincrby("ql:declared", -seconds, jid)


def command(*options: str) -> str:
    output = StringIO()
    call_command("qless_recurring", *options, stdout=output, no_color=True)
    return output.getvalue()


def exists() -> bool:
    return client.jobs.get(JID) is not None


def warnings() -> list[str]:
    return [finding.message for _, finding in health.run(["jobs"]) if finding.subject == f"recurring {JID}"]


def test_a_task_that_exists_is_not_abandoned(deploy: Deploy) -> None:
    deploy(EVERY, "mail")
    later()
    row = command().splitlines()[1].split()
    assert row == [JID, f"{SHOP}.sweep", "mail", "300", "s", "0", "a", "task"]
    assert command("--prune") == "Nothing to cancel.\n"
    assert exists()
    assert warnings() == []


def test_the_recurring_job_of_a_removed_task_is_canceled_on_request(deploy: Deploy) -> None:
    deploy(EVERY, "mail")
    deploy("", "mail")  # of the new code
    later(ABANDONED_SECONDS - 60)
    assert re.search(r"the task no longer exists; a worker declared it 54\d s ago\.", command())
    text = command("--prune")
    assert text.startswith(f"Kept {JID}: the task no longer exists")
    assert text.endswith("Nothing to cancel.\n")
    assert exists()
    assert warnings() == []
    later(61)
    assert warnings() == [
        "No task declares it any more, but it creates jobs: the task no longer exists. See manage.py qless_recurring."
    ]
    assert command().splitlines()[1].endswith("a removed task")
    assert re.search(r" 60\d s ago\. --prune cancels it\.\n$", command())
    line = f"{JID} of the queue mail: the task no longer exists.\n"
    assert command("--prune", "--dry-run") == f"Would cancel {line}"
    assert exists()
    assert command("--prune") == f"Canceled {line}"
    assert not exists()
    assert warnings() == []
    assert command() == "No recurring jobs.\n"
    assert client.source.sync().zcard("ql:declared") == 0


def test_old_workers_keep_it_while_they_run(deploy: Deploy) -> None:
    deploy(EVERY, "mail")
    later()
    work("mail")
    deploy("")
    assert command("--prune").endswith("Nothing to cancel.\n")
    due = recurring_job(JID).next()
    deploy(EVERY, "mail")
    assert recurring_job(JID).next() == due


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
def test_a_task_that_is_not_periodic_any_more_is_abandoned(deploy: Deploy, code: str | None, fault: str) -> None:
    deploy(EVERY, "mail")
    deploy(code, "mail")
    assert exists()
    later()
    assert [(declared.job.jid, declared.fault, declared.abandoned) for declared in of_tasks(client)] == [
        (JID, fault, True)
    ]
    assert f"mail: {fault}.\n" in command("--prune")
    assert not exists()


def test_a_task_whose_module_is_no_longer_allowed_is_abandoned(deploy: Deploy, site: Any) -> None:
    deploy(EVERY, "mail")
    later()
    change_settings(site, MODULES=[])
    assert "it is not a task that workers may run" in command("--prune")
    assert not exists()


def test_a_recurring_job_follows_its_task_to_another_queue(deploy: Deploy) -> None:
    """It moves with the first worker of the new queue; before that it is not abandoned."""
    deploy(EVERY, "mail")
    deploy(TASK.format('queue="post", every=300'), "mail")
    later()
    assert command("--prune") == "Nothing to cancel.\n"
    assert recurring_job(JID).queue_name == "mail"
    work("post")
    assert recurring_job(JID).queue_name == "post"
    assert [client.queues[name].counts().recurring for name in ("mail", "post")] == [0, 1]
    assert command("--prune") == "Nothing to cancel.\n"


def test_recurring_jobs_of_a_queue_that_nobody_serves_are_kept(deploy: Deploy) -> None:
    """Its jobs are not declared again, and neither they nor the notes of other queues are touched."""
    deploy(EVERY, "mail")
    later()
    work("other")
    assert exists()
    (declared,) = of_tasks(client)
    assert declared.ago > ABANDONED_SECONDS
    assert not declared.abandoned
    assert command("--prune") == "Nothing to cancel.\n"
    assert exists()


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
    deploy(EVERY, "mail")
    later()
    deploy(code)
    assert f"{JID}: its module cannot be imported: " in command()
    assert command("--prune").endswith("Nothing to cancel.\n")
    assert exists()
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
    deploy("")
    if how == "changed":
        recurring_job(JID).update(interval=60)
    elif how == "class":
        client.source.sync().hset(f"ql:r:{JID}", "klass", "shop.jobs.Sweep")  # another client, with another core
    else:
        if how == "canceled":
            recurring_job(JID).cancel()
        client.queues["mail"].recur(path, data, 60, jid=JID)
    assert of_tasks(client) == []
    assert warnings() == []
    assert command("--prune") == "Nothing to cancel.\n"
    assert sorted(client.queues["mail"].jobs.recurring()) == sorted(["daily sweep", "every-digest", JID])
    assert [line.rsplit(maxsplit=1)[1] for line in command().splitlines()[1:]] == ["people"] * 3


def test_what_a_person_has_changed_a_worker_declares_again(deploy: Deploy) -> None:
    deploy(EVERY, "mail")
    recurring_job(JID).update(interval=60)
    assert of_tasks(client) == []
    work("mail")
    (declared,) = of_tasks(client)
    assert declared.job.interval == 300
    assert declared.ago < 60


@pytest.mark.parametrize("protocol", [2, 3])
def test_declarations_are_read_with_both_protocols(deploy: Deploy, valkey_url: str, protocol: int) -> None:
    deploy(EVERY, "mail")
    with closing(Client(f"{valkey_url}?protocol={protocol}")) as protocol_client:
        (declared,) = of_tasks(protocol_client)
    assert declared.job.jid == JID
    assert 0 <= declared.ago < 60


def test_a_declaration_from_the_future_counts_as_new(deploy: Deploy) -> None:
    deploy(EVERY, "mail")
    later(-3600)
    deploy("")
    assert re.search(r"a worker declared it \d s ago", command("--prune"))
    assert exists()


def test_texts_of_others_do_not_steer_the_terminal(site: Any) -> None:
    client.queues["q\x1b[2J"].recur("K\x1b[31m", {}, 60, jid="j\x1b\n")
    assert "\x1b" not in command()
    assert len(command().splitlines()) == 2


def test_the_command_refuses_wrong_options_and_reports_outages(site: Any) -> None:
    with pytest.raises(CommandError, match="needs --prune"):
        command("--dry-run")
    change_settings(site, URL="redis://127.0.0.1:1")
    with pytest.raises(CommandError, match="does not answer") as raised:
        command()
    assert raised.value.returncode == 2
