"""The state of the outbox: health, metrics, overview, the system check and the command."""

from __future__ import annotations

import io
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection, connections
from django.db.models import F
from django.utils import timezone

from resty_django import metrics
from resty_django.qless import Client
from resty_django.qless.checks import check_qless
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox import health, overview
from resty_django.qless.outbox.delivery import Deliverer
from resty_django.qless.outbox.entries import Call
from resty_django.qless.outbox.status import LATE_SECONDS
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks.examples import add

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]
# Each test is a transaction that is never committed, so that nothing is delivered before a test does so.

State = OutboxEntry.State


def put(jid: str, age: float = 0.0, state: str = State.WAITING, error: str = "") -> None:
    """Write an entry of an age in seconds."""
    add.apply_async((1,), task_id=jid)
    moved = {name: F(name) - timedelta(seconds=age) for name in ("waiting_since", "due_at")}
    OutboxEntry.objects.filter(jid=jid).update(state=state, error=error, transaction=None, **moved)


def states() -> dict[str, str]:
    return dict(OutboxEntry.objects.order_by("pk").values_list("jid", "state"))


def run(*arguments: str) -> str:
    output = io.StringIO()
    call_command("qless_outbox", *arguments, stdout=output, stderr=output)
    return output.getvalue()


def fails(*arguments: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value


def finding() -> tuple[str, str]:
    (found,) = health.probe()
    assert found.subject == "job outbox"
    return found.level, found.message


def figures() -> dict[str, float]:
    prefix = "resty_jobs_outbox_"
    return {family.name.removeprefix(prefix): family.samples[0].value for family in overview.families()}


# --- health, metrics and overview ---


def test_the_probe_warns_of_late_and_of_refused_entries(outbox: Client) -> None:
    assert finding() == ("ok", "0 entries wait, the oldest for 0 s.")
    put("young", LATE_SECONDS - 10)
    assert finding()[0] == "ok"
    put("late", LATE_SECONDS + 10, error="StoreDown: gone\n2026")
    level, text = finding()
    assert level == "warning"
    for part in ("2 entries wait, the oldest for 130 s.", "manage.py runqless", r"Last error: StoreDown: gone\n2026"):
        assert part in text
    OutboxEntry.objects.filter(jid="late").update(state=State.REFUSED)
    level, text = finding()
    assert level == "warning"
    assert "1 were refused. Deliver or discard them in the admin." in text
    assert "runqless" not in text


def test_the_probe_and_metrics_do_not_need_redis(outbox: Client, settings: Any) -> None:
    put("late", 200)
    change_settings(settings, URL="redis://127.0.0.1:1/0")
    assert finding()[0] == "warning"
    assert figures()["waiting"] == 1


def test_a_table_that_cannot_be_read_is_an_error(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: object) -> None:
        raise OperationalError("no such table")

    monkeypatch.setattr(health, "status", down)
    assert finding() == ("error", "Its table cannot be read: OperationalError: no such table")


def test_a_site_without_an_outbox_asks_nothing(outbox: Client, settings: Any) -> None:
    put("late", 200)
    change_settings(settings, OUTBOX=None)
    with connection.execute_wrapper(lambda *args: pytest.fail("a query")):
        assert list(health.probe()) == []
        assert overview.panel() is None
        assert list(overview.families()) == []
    assert "There is no outbox." in str(fails("--once"))


def test_metrics(outbox: Client) -> None:
    assert figures() == {"waiting": 0, "age_seconds": 0, "refused": 0}
    put("one", 50)
    put("two", 500, State.REFUSED)
    put("three", 500, State.DELIVERED)
    now = figures()
    assert (now["waiting"], now["refused"]) == (1, 1)
    assert 50 <= now["age_seconds"] < 80
    assert "resty_jobs_outbox_waiting" in {family.name for family in metrics.collected()}


def test_the_overview_shows_only_what_needs_attention(outbox: Client) -> None:
    put("one", 50)
    assert overview.panel() is None
    put("two", 500, State.REFUSED, "KEEP")
    tile = overview.panel()
    assert tile is not None
    assert [(figure.name, figure.level) for figure in tile.figures] == [
        ("waiting", "ok"),
        ("age", "ok"),
        ("refused", "warning"),
    ]
    assert list(tile.notes) == ["Last error: KEEP"]


# --- system check ---


class Elsewhere:
    """A router that allows no table of the job queue."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool | None:
        return False if app_label == "resty_qless" else None


def test_a_database_without_the_table_is_an_error(outbox: Client, settings: Any) -> None:
    assert check_qless() == []
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    (message,) = check_qless()
    assert message.id == "resty_qless.E008"
    assert "'default'" in message.msg
    change_settings(settings, OUTBOX=None)
    assert check_qless() == []


# --- the command ---


def test_once_delivers_what_is_due_and_deletes_what_was_kept(outbox: Client, settings: Any) -> None:
    change_settings(settings, OUTBOX={"KEEP": 1000})
    put("young")
    put("due", 20)
    assert "1 entries delivered, 0 wait for others.\n1 entries wait" in run("--once")
    assert states() == {"young": "waiting", "due": "delivered"}
    assert outbox.jobs.get("due") is not None
    OutboxEntry.objects.filter(jid="due").update(due_at=timezone.now() - timedelta(seconds=1))
    put("old", 2000)
    OutboxEntry.objects.filter(jid="old").update(due_at=timezone.now() + timedelta(seconds=60))  # claimed
    error = fails("--once")
    assert error.returncode == 1
    assert states() == {"young": "waiting", "old": "refused"}


def test_entries_of_one_transaction_wait_for_each_other(outbox: Client) -> None:
    put("first", 20)
    put("second", 20)
    OutboxEntry.objects.update(transaction="t")
    OutboxEntry.objects.filter(jid="first").update(due_at=timezone.now() + timedelta(seconds=60))
    assert "0 entries delivered, 1 wait for others." in run("--once")
    OutboxEntry.objects.update(due_at=timezone.now())
    assert "2 entries delivered" in run("--once")


@pytest.mark.parametrize(
    ("commands", "state"),
    [("[", "waiting"), ('[["put"]]', "waiting"), ('[["put", 1, "q", "j", "K", "{}", 0, {}]]', "refused")],
)
def test_an_entry_that_cannot_be_sent_holds_up_no_other(outbox: Client, commands: str, state: str) -> None:
    put("broken", 20)
    put("good", 20)
    OutboxEntry.objects.filter(jid="broken").update(commands=commands)
    assert Deliverer(outbox, "default").run()["delivered"] == 1
    assert states() == {"broken": state, "good": "delivered"}
    assert OutboxEntry.objects.get(jid="broken").error != ""


def test_status_changes_nothing(outbox: Client) -> None:
    put("due", 20)
    assert run("--status").startswith("1 entries wait, the oldest for 2")
    assert states() == {"due": "waiting"}
    put("refused", 20, State.REFUSED)
    error = fails("--status")
    assert error.returncode == 1
    assert "See the admin of the outbox." in str(error)


def test_an_outage_is_reported(outbox: Client, settings: Any) -> None:
    put("due", 20)
    change_settings(settings, URL="redis://127.0.0.1:1/0")
    error = fails("--once")
    assert error.returncode == 2
    assert "The outbox cannot be delivered" in str(error)
    assert states() == {"due": "waiting"}


@pytest.mark.parametrize("since", ["1h", "1 hour", "yesterday"])
def test_jobs_that_redis_has_lost_are_enqueued_again(outbox: Client, valkey: Any, since: str) -> None:
    put("lost")
    put("kept")
    put("before")
    Deliverer(outbox, "default").run(all_waiting=True)
    yesterday = timezone.now() - timedelta(days=1)
    OutboxEntry.objects.filter(jid="before").update(delivered_at=yesterday - timedelta(hours=1))
    valkey.flushall()
    OutboxEntry.objects.filter(jid="kept").update(state=State.WAITING)
    Deliverer(outbox, "default").run(all_waiting=True)  # delivered after Redis was restored
    time_text = f"{timezone.localtime(yesterday):%Y-%m-%d %H:%M}" if since == "yesterday" else since
    text = run("--redeliver-since", time_text)
    assert "2 entries were delivered since then. Redis did not know 1 of those" in text
    assert {jid: outbox.jobs.get(jid) is not None for jid in states()} == {"lost": True, "kept": True, "before": False}
    assert "Redis did not know 0 of those" in run("--redeliver-since", time_text)


@pytest.mark.parametrize("since", ["soon", "2026-13-45", "2026-02-30 10:00", "-1h", ""])
def test_a_wrong_time_is_refused(outbox: Client, since: str) -> None:
    put("one")
    error = fails(f"--redeliver-since={since}")
    assert "Write an age such as" in str(error)
    assert states() == {"one": "waiting"}


@pytest.mark.django_db(transaction=True)
def test_the_loop_delivers_until_it_is_stopped(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(commands=[("put", "w", "q", "due", "K", "{}", 0)], jids=["due"], klass="K", queue="q")
    call.entry(time.time() - 60, None).save()

    def interrupted(self: object, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("threading.Event.wait", interrupted)
    monkeypatch.setattr(connections["default"], "settings_dict", connection.settings_dict)  # the loop limits its time
    assert run() == ""
    assert states() == {"due": "delivered"}
    assert outbox.jobs.get("due") is not None
