"""The outbox in the admin: list, page of an entry, operations, permissions, exports, and several databases."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.db import connection, connections
from django.test import Client as Browser

from resty_django.qless import Client, chain, group
from resty_django.qless.admin import outbox as outbox_admin
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox.delivery import Deliverer
from resty_django.qless.outbox.entries import Call
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import HOSTILE, message_in, path, person, plain, text_of
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks.examples import add, note

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]
# Each test is a transaction that is never committed, so that nothing is delivered before a test does so.

LIST = path("outboxentry")
State = OutboxEntry.State


def entry_of(jid: str) -> OutboxEntry:
    return OutboxEntry.objects.get(jid=jid)


def page_of(jid: str, page: str = "change") -> str:
    return path("outboxentry", f"default:{entry_of(jid).pk}", page)


def shown(text: str, *jids: str) -> list[str]:
    """Return the jobs among these that a list shows."""
    return [jid for jid in jids if f"/{quote(f'default:{entry_of(jid).pk}')}/change/" in text]


def refuse(jid: str, error: str = "Not delivered within 604,800 s (KEEP).") -> None:
    OutboxEntry.objects.filter(jid=jid).update(state=State.REFUSED, error=error)


def bulk(browser: Browser, verb: str, *jids: str, confirmed: bool = True) -> Any:
    picks = [f"default:{entry_of(jid).pk}" for jid in jids]
    data = {"verb": verb, "pick": picks, **({"confirmed": "yes"} if confirmed else {})}
    return browser.post(f"{LIST}bulk/", data, follow=True)


def history() -> list[tuple[str, str]]:
    return [(entry.object_repr, entry.change_message) for entry in LogEntry.objects.order_by("pk")]


@pytest.fixture
def waiting(outbox: Client) -> Client:
    """Entries with the jobs `one`, `two`, which was refused, and `three`: calls outside of transactions."""
    add.apply_async((1,), task_id="one")
    add.apply_async((2,), task_id="two")
    note.apply_async(("three",), {"password": "hunter2"}, task_id="three")
    refuse("two")
    OutboxEntry.objects.update(transaction=None)
    return outbox


# --- list ---


def test_the_list_shows_what_is_not_delivered(admin_client: Browser, waiting: Client) -> None:
    Deliverer(waiting, "default").mark([entry_of("three").pk])
    text = text_of(admin_client, LIST)
    assert shown(text, "one", "two", "three") == ["one", "two"]
    for word in ("examples.", "refused", "Not delivered within", "Not delivered"):
        assert word in plain(text)
    assert "Database" not in plain(text)
    assert shown(text_of(admin_client, f"{LIST}?state=delivered"), "one", "two", "three") == ["three"]
    assert shown(text_of(admin_client, f"{LIST}?state=refused"), "one", "two", "three") == ["two"]
    assert shown(text_of(admin_client, f"{LIST}?find=KEEP"), "one", "two", "three") == ["two"]
    assert shown(text_of(admin_client, f"{LIST}?state=none"), "one", "two", "three") == ["one", "two"]


def test_a_long_list_ends(admin_client: Browser, waiting: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "This list ends" not in text_of(admin_client, LIST)
    monkeypatch.setattr(outbox_admin, "MAX_LISTED", 2)
    text = text_of(admin_client, LIST)
    assert "This list ends after 2 entries." in text
    assert shown(text, "one", "two", "three") == ["one", "two"]  # the refused one comes first


def test_the_list_says_how_to_switch_the_outbox_on(admin_client: Browser, outbox: Client, settings: Any) -> None:
    tab = f'<li><a href="{LIST}"'
    assert "No entries." in text_of(admin_client, LIST)
    assert tab in text_of(admin_client, path("queue"))
    change_settings(settings, OUTBOX=None)
    assert "&quot;OUTBOX&quot;: True" in text_of(admin_client, LIST)
    assert tab not in text_of(admin_client, path("queue"))


def test_entries_of_a_site_that_has_switched_the_outbox_off_are_shown_and_delivered(
    admin_client: Browser, waiting: Client, settings: Any
) -> None:
    change_settings(settings, OUTBOX=None)
    assert shown(text_of(admin_client, LIST), "one", "two") == ["one", "two"]
    bulk(admin_client, "deliver", "one")
    assert waiting.jobs.get("one") is not None


def test_the_list_is_exported(admin_client: Browser, waiting: Client) -> None:
    reply = admin_client.get(f"{LIST}?find=two&export=json")
    [row] = json.loads(b"".join(reply.streaming_content))["rows"]  # type: ignore[attr-defined]
    assert (row["jid"], row["queue"], row["state"], row["jobs"]) == ("two", "q", "refused", 1)


# --- page ---


def test_the_page_of_an_entry_shows_its_jobs_without_secrets(admin_client: Browser, waiting: Client) -> None:
    text = text_of(admin_client, page_of("three"))
    for word in ("three", "waiting", "Due in ", "examples.", "[redacted]"):
        assert word in plain(text)
    assert "hunter2" not in text
    assert path("job", "three") not in text
    Deliverer(waiting, "default").run(all_waiting=True)
    text = text_of(admin_client, page_of("three"))
    assert path("job", "three") in text
    assert page_of("three", "discard") not in text
    assert "Deleted" in plain(text)


def test_the_page_names_all_jobs_and_what_the_entry_waits_for(admin_client: Browser, waiting: Client) -> None:
    members = group(note.s(name) for name in ("m1", "m2")).apply_async()
    add.apply_async((3,), task_id="later", depends=["one"])
    assert "Waits for one" in plain(text_of(admin_client, page_of("later")))
    text = plain(text_of(admin_client, page_of(members.results[0].id)))
    assert "&quot;m1&quot;" in text or '"m1"' in text
    assert '"m2"' in text
    group([]).apply_async()
    empty = OutboxEntry.objects.get(jobs=0)
    assert "No jobs" in text_of(admin_client, path("outboxentry", f"default:{empty.pk}"))


def test_the_page_of_an_entry_that_cannot_be_read(admin_client: Browser, waiting: Client) -> None:
    for commands in (
        "[",
        '[["put"]]',
        '[["put", 1, "q", "j", "K", "{}", 0, "tags"]]',
        '[["put", 1, 2, 3, 4, 5, 0]]',
        "[7]",
    ):
        OutboxEntry.objects.filter(jid="one").update(commands=commands)
        text_of(admin_client, page_of("one"))
        admin_client.post(page_of("one", "deliver"), follow=True)
    OutboxEntry.objects.filter(jid="one").update(commands="[")
    assert "Its commands cannot be read: JSONDecodeError" in text_of(admin_client, page_of("one"))


@pytest.mark.parametrize("name", ["default:0", "default:x", "other:1", "1", "default:" + "9" * 30, "default:²"])
def test_an_unknown_entry_leads_to_the_index(admin_client: Browser, waiting: Client, name: str) -> None:
    assert admin_client.get(path("outboxentry", name)).status_code == 302


def test_a_search_of_jobs_leads_to_the_outbox(admin_client: Browser, waiting: Client) -> None:
    steps = chain(add.s(1), add.s().set(task_id="last")).apply_async()
    assert steps.parent is not None
    OutboxEntry.objects.update(transaction=None)
    first = OutboxEntry.objects.get(jid=steps.parent.id)
    for jid in ("last", steps.parent.id):
        target = path("outboxentry", f"default:{first.pk}")
        assert admin_client.get(path("job"), {"q": jid})["Location"] == target
        assert admin_client.get(path("job", jid))["Location"] == target
    assert admin_client.get(path("job", "unknown")).status_code == 404
    Deliverer(waiting, "default").run(all_waiting=True)
    assert admin_client.get(path("job"), {"q": "last"})["Location"] == path("job", "last")


def test_hostile_names_and_errors_are_escaped(admin_client: Browser, waiting: Client) -> None:
    add.apply_async((HOSTILE,), task_id=HOSTILE, queue=HOSTILE, tags=[HOSTILE])
    entry = OutboxEntry.objects.latest("pk")
    entry.error = HOSTILE.replace("\0", "")
    entry.state = State.REFUSED
    entry.transaction = None
    entry.save()
    broken = Call(commands=[("put", "w", "q", b"\xff", b"\xff", b"\xff{", 0)], jids=["\udcff"], klass="\udcff")
    broken.entry(time.time(), None).save()
    for url in (LIST, *(path("outboxentry", f"default:{row.pk}") for row in OutboxEntry.objects.all())):
        sound(text_of(admin_client, url))
    reply = admin_client.post(path("outboxentry", f"default:{entry.pk}", "deliver"), follow=True)
    sound(reply.content.decode())
    assert waiting.jobs.get(HOSTILE) is not None


# --- operations ---


def test_delivering_now(admin_client: Browser, waiting: Client) -> None:
    assert "its jobs run twice" in text_of(admin_client, page_of("one", "deliver"))
    assert "Delivered." in message_in(admin_client.post(page_of("one", "deliver"), follow=True))
    assert waiting.jobs.get("one") is not None
    assert entry_of("one").state == State.DELIVERED
    reply = admin_client.post(page_of("one", "deliver"), follow=True)
    assert "It is not in the outbox any more: delivered." in message_in(reply)
    assert history() == [("one", "Delivered.")]
    assert "Delivered." in text_of(admin_client, page_of("one", "history"))


def test_a_job_that_redis_has_is_not_enqueued_again(admin_client: Browser, waiting: Client) -> None:
    Deliverer(waiting, "default").send([entry_of("two")])
    job = waiting.queues["q"].pop()
    assert job is not None
    job.complete()
    reply = admin_client.post(page_of("two", "deliver"), follow=True)
    assert "Redis has its jobs already; marked as delivered." in message_in(reply)
    assert waiting.queues["q"].pop() is None
    assert entry_of("two").state == State.DELIVERED


def test_selected_entries_are_delivered_in_order_of_their_calls(admin_client: Browser, waiting: Client) -> None:
    add.apply_async((3,), task_id="later", depends=["two"])
    page = bulk(admin_client, "deliver", "later", confirmed=False).content.decode()
    assert "1 of 1 entry selected." in page
    assert "has to follow others" in message_in(bulk(admin_client, "deliver", "later"))
    assert waiting.jobs.get("later") is None
    reply = bulk(admin_client, "deliver", "later", "two", "one")
    assert "Delivered 3 entries." in message_in(reply)
    assert waiting.queues["q"].jobs.ready(0, 9) == ["one", "two"]
    assert {name for name, text in history()} == {"one", "two", "later"}


def test_all_listed_entries_are_discarded(admin_client: Browser, waiting: Client) -> None:
    Deliverer(waiting, "default").mark([entry_of("one").pk])
    data = {"verb": "discard", "all": "yes", "confirmed": "yes"}
    reply = admin_client.post(f"{LIST}bulk/?find=examples.note", data, follow=True)
    assert "Discarded 1 entry." in message_in(reply)
    assert [entry_of(jid).state for jid in ("one", "two", "three")] == ["delivered", "refused", "discarded"]
    assert "Discarded 1 entry." in message_in(admin_client.post(f"{LIST}bulk/", data, follow=True))
    assert entry_of("two").state == State.DISCARDED
    assert Deliverer(waiting, "default").run(all_waiting=True).total() == 0
    assert waiting.queues.counts() == []


def test_a_discarded_entry_is_not_carried_out_by_a_process_that_has_claimed_it(
    admin_client: Browser, waiting: Client
) -> None:
    deliverer = Deliverer(waiting, "default")
    claimed = deliverer.claim(after=0)
    assert "Discarded." in message_in(admin_client.post(page_of("one", "discard"), follow=True))
    deliverer.settle(deliverer.send(claimed))
    assert waiting.jobs.get("one") is None
    assert entry_of("one").state == State.DISCARDED
    assert history() == [("one", "Discarded.")]


def test_discarding_what_others_wait_for(admin_client: Browser, waiting: Client) -> None:
    add.apply_async((3,), task_id="later", depends=["one"])
    reply = admin_client.post(page_of("one", "discard"), follow=True)
    assert "waits in the outbox for one of these jobs" in message_in(reply)
    assert entry_of("one").state == State.WAITING
    assert "Discarded 2 entries." in message_in(bulk(admin_client, "discard", "one", "later"))
    assert "in the meantime" in message_in(admin_client.post(page_of("one", "discard"), follow=True))


def test_discarding_an_entry_whose_jobs_redis_does_not_cancel(admin_client: Browser, waiting: Client) -> None:
    Deliverer(waiting, "default").send([entry_of("one")])
    waiting.queues["q"].put("K", jid="dependent", depends=["one"])
    reply = admin_client.post(page_of("one", "discard"), follow=True)
    assert "one is a dependency of dependent" in message_in(reply)
    assert waiting.jobs.get("one") is not None
    assert entry_of("one").state == State.WAITING


def test_an_outage_is_reported_and_changes_nothing(admin_client: Browser, waiting: Client, settings: Any) -> None:
    change_settings(settings, URL="redis://127.0.0.1:1/0")
    text_of(admin_client, LIST)
    text_of(admin_client, page_of("one"))
    assert "Not done" in message_in(admin_client.post(page_of("one", "deliver"), follow=True))
    assert entry_of("one").state == State.WAITING
    assert entry_of("one").attempts == 1
    message = message_in(admin_client.post(page_of("one", "discard"), follow=True))
    assert "Redis does not answer: if it has the jobs already, they run." in message


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="makes an SQLite database read-only")
def test_a_database_that_rejects_changes_is_reported(admin_client: Browser, outbox: Client, settings: Any) -> None:
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    for jid in ("one", "two"):
        call = Call(commands=[("put", "w", "q", jid, "K", "{}", 0)], jids=[jid], klass="K", queue="q")
        call.entry(time.time(), None).save()
    connection.ensure_connection()
    connection.connection.execute("PRAGMA query_only = 1")
    try:
        refused = message_in(admin_client.post(page_of("one", "discard"), follow=True))
        refused_too = message_in(bulk(admin_client, "discard", "two"))
        delivered = message_in(admin_client.post(page_of("one", "deliver"), follow=True))
    finally:
        connection.connection.execute("PRAGMA query_only = 0")
    assert "Not done" in refused
    assert "Discarded 0 entries. Unchanged: 1." in refused_too
    assert "Delivered. Its row could not be changed" in delivered
    assert outbox.jobs.get("one") is not None
    assert entry_of("one").state == State.WAITING


def test_operations_need_their_permissions_and_a_token(waiting: Client) -> None:
    for verb, permission, other in (("deliver", "retry_job", "cancel_job"), ("discard", "cancel_job", "retry_job")):
        without = person("view_job", other)
        assert without.post(page_of("one", verb)).status_code == 403
        assert bulk(without, verb, "one").status_code == 403
        assert page_of("one", verb) not in text_of(without, page_of("one"))
        allowed = person("view_job", permission)
        assert page_of("one", verb) in text_of(allowed, page_of("one"))
        strict = Browser(enforce_csrf_checks=True)
        strict.cookies = allowed.cookies
        assert strict.post(page_of("one", verb)).status_code == 403
        allowed.get(page_of("one", verb))
    assert person().get(LIST).status_code == 403
    assert person("retry_job", "cancel_job").post(page_of("one", "deliver")).status_code == 403
    assert entry_of("one").state == State.WAITING
    assert history() == []


# --- several databases ---


@pytest.fixture
def second(outbox: Client, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A second database of the outbox."""
    alias, databases = "second", connections.settings
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "second.sqlite3")}
    configured = connections.configure_settings({"default": databases["default"], alias: entry})
    monkeypatch.setitem(databases, alias, configured[alias])
    monkeypatch.setitem(settings.DATABASES, alias, configured[alias])
    connections[alias].connect()  # the marker of the test knows only `default`
    with connections[alias].schema_editor() as editor:
        editor.create_model(OutboxEntry)
    change_settings(settings, OUTBOX={"DATABASE": ["default", alias]})
    yield alias
    connections[alias].close()
    del connections[alias]


def test_entries_of_several_databases(admin_client: Browser, outbox: Client, second: str) -> None:
    call = Call(commands=[("put", "w", "q", "far", "K", "{}", 0)], jids=["far"], klass="K", queue="q")
    call.entry(time.time(), None).save(using=second)
    add.apply_async((1,), task_id="near")
    far = OutboxEntry.objects.using(second).get()
    OutboxEntry.objects.filter(jid="near").update(id=far.pk)  # rows of two databases may have the same key
    text = text_of(admin_client, LIST)
    for alias in ("default", second):
        assert path("outboxentry", f"{alias}:{far.pk}") in text
    assert "Database" in plain(text)
    assert "far" in plain(text_of(admin_client, path("outboxentry", f"{second}:{far.pk}")))
    picks = [f"default:{far.pk}", f"{second}:{far.pk}"]
    data = {"verb": "deliver", "pick": picks, "confirmed": "yes"}
    assert "Delivered 2 entries." in message_in(admin_client.post(f"{LIST}bulk/", data, follow=True))
    assert outbox.jobs.get("near") is not None
    assert outbox.jobs.get("far") is not None
    assert sorted(name for name, _text in history()) == ["far", "near"]
    assert "Delivered." in text_of(admin_client, path("outboxentry", f"{second}:{far.pk}", "history"))
