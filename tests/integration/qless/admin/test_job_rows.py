"""Rows of jobs: how they are told apart, and what is the same in all of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client as Browser

from resty_django.qless import Client
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import failed, path, plain, text_of
from tests.integration.qless.conftest import change_settings, pop

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

CONTROLS = r'<(?:a\b[^>]*href|button|select|textarea|summary|input\b(?![^>]*type="hidden"))'


def heads(text: str) -> list[str]:
    return [
        plain(head).rstrip(" ▲▼")
        for head in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text[text.index("resty-list") :])
    ]


def rows(text: str) -> list[str]:
    """Return the rows of the list as HTML."""
    return re.findall(r"(?s)<tr>(.*?)</tr>", text[text.index("<tbody>") :])


def shared(text: str) -> str:
    """Return the text about what is the same in all rows, with its links."""
    return "".join(re.findall(r'<p class="resty-shared">(.*?)</p>', text))


def invoices(client: Client, count: int, **changes: Any) -> None:
    """Let jobs fail whose jids begin alike, as jids that a program makes from its own numbers."""
    for number in range(count):
        data = {"kind": "invoice", "customer": {"id": 70120 + number, "password": "hunter2"}, **changes}
        jid = f"invoice-O261127{number:06}"
        client.queues["mail"].put("shop.jobs.Send", data, jid=jid, priority=9, retries=0, tags=["nightly"])
        pop(client.queues["mail"]).fail("mail-Timeout", "Timeout: no answer")


def test_jids_with_the_same_beginning_look_different(admin_client: Browser, jobs_site: Client) -> None:
    invoices(jobs_site, 2)
    failed(jobs_site, "short-1", tags=["nightly"])
    for url in (path("job"), path("failuregroup", "mail-Timeout")):
        links = re.findall(
            r'<th scope="row"><a class="resty-id" [^>]*title="([^"]*)">([^<]*)</a>', text_of(admin_client, url)
        )
        assert set(links) == {
            ("invoice-O261127000000", "invoice-O…27000000"),
            ("invoice-O261127000001", "invoice-O…27000001"),
            ("short-1", "short-1"),
        }, url


def test_values_that_all_rows_share_are_shown_once_above_the_table(admin_client: Browser, jobs_site: Client) -> None:
    invoices(jobs_site, 3)
    for url in (path("failuregroup", "mail-Timeout"), f"{path('job')}?state=failed"):
        text = sound(text_of(admin_client, url))
        assert heads(text) == ["Select", "Job", "Arguments", "Last change", "Run time"], url
        assert plain(shared(text)) == (
            "In all rows: Class: shop.jobs.Send State: failed Queue: mail Priority: 9 Tags: nightly "
            "Details: Timeout: no answer Failure group: mail-Timeout "
            "Arguments: kind: invoice, customer.password: [redacted]"
        )
        links = re.findall(r'href="([^"]*)"', shared(text))
        assert links == [path("queue", "mail"), f"{path('job')}?tag=nightly", path("failuregroup", "mail-Timeout")]
        in_rows = [re.findall(r"\S+: \S+", plain(row)) for row in rows(text)]
        assert in_rows == [[f"customer.id: {number}"] for number in (70122, 70121, 70120)]


def test_different_values_stay_in_the_rows(admin_client: Browser, jobs_site: Client) -> None:
    invoices(jobs_site, 1)
    jobs_site.queues["pdf"].put("shop.jobs.Send", {"kind": "offer"}, jid="waiting-1")
    text = sound(text_of(admin_client, path("job")))
    assert plain(shared(text)) == "In all rows: Class: shop.jobs.Send"
    waiting, invoice = rows(text)
    assert "kind: offer waiting pdf" in plain(waiting)
    assert "kind: invoice, customer.id: 70120, customer.password: [redacted] failed mail 9 nightly" in plain(invoice)
    assert plain(invoice).endswith("s mail-Timeout Timeout: no answer")
    assert "hunter2" not in text
    for row in (waiting, invoice):
        assert len(re.findall(CONTROLS, row)) == 2, row
    alone = text_of(admin_client, f"{path('job')}?state=waiting")
    assert shared(alone) == ""
    assert {"Class", "State", "Queue"} <= set(heads(alone))
    assert not {"Tags", "Run time", "Details", "Match"} & set(heads(alone))


def test_the_column_that_sorts_a_list_stays(admin_client: Browser, jobs_site: Client) -> None:
    invoices(jobs_site, 2)
    text = text_of(admin_client, f"{path('job')}?state=failed&o=queue")
    assert "Queue" in heads(text)
    assert "Queue:" not in shared(text)
    assert 'aria-sort="ascending"' in text


def test_the_run_time_is_the_time_of_the_latest_run(admin_client: Browser, jobs_site: Client) -> None:
    start = int(jobs_site.clock())

    def at(seconds: float) -> None:
        jobs_site.clock = lambda: start + seconds  # type: ignore[method-assign]

    at(0)
    queue = jobs_site.queues["mail"]
    for jid in ("complete", "retried", "running", "waiting"):
        queue.put("shop.jobs.Send", {}, jid=jid, priority={"complete": 3, "retried": 2, "running": 1}.get(jid, 0))
    complete, retried = pop(queue), pop(queue)
    retried.retry(group="mail-Busy", message="not now")
    at(20)
    assert pop(queue).jid == "retried"
    assert pop(queue).jid == "running"
    at(30)
    retried.fail("mail-No", "no")
    at(50.5)
    complete.complete()
    text = text_of(admin_client, path("job"))
    run_times = {plain(row).split()[0]: re.findall(r'"resty-number">([^<]*)</td>', row)[-1] for row in rows(text)}
    assert run_times == {"running": "30 s", "waiting": "–", "retried": "10 s", "complete": "50 s"}
    sorted_text = text_of(admin_client, f"{path('job')}?o=-ran")
    assert [plain(row).split()[0] for row in rows(sorted_text)] == ["complete", "running", "retried", "waiting"]


def test_arguments_have_the_names_of_parameters_or_are_hidden(
    admin_client: Browser, jobs_site: Client, settings: Any
) -> None:
    change_settings(settings, MODULES=["tests.integration.qless.tasks.examples"])
    log_in = "tests.integration.qless.tasks.examples.log_in"
    jobs_site.queues["mail"].put(log_in, {"args": ["ada", "hunter2"], "kwargs": {}})
    jobs_site.queues["mail"].put("no.such.Task", {"args": ["hunter2"], "kwargs": {"order": 7}})
    text = sound(text_of(admin_client, path("job")))
    assert "hunter2" not in text
    assert "user: ada, password: [redacted]" in plain(text)
    assert "order: 7, 0: [redacted: unknown class." in plain(text)
    change_settings(settings, REDACTOR=f"{__name__}.broken")
    text = plain(text_of(admin_client, path("job")))
    assert "order: 7" not in text
    assert "Arguments: [redacted]" in text


def broken(data: Any) -> Any:
    raise ValueError("no")


def test_a_page_of_a_failure_group_has_few_controls(admin_client: Browser, jobs_site: Client) -> None:
    """At most 60 more links, buttons and fields than a list of Django with as many rows."""
    invoices(jobs_site, 30)
    Group.objects.bulk_create(Group(name=f"group {number}") for number in range(25))
    base = len(re.findall(CONTROLS, text_of(admin_client, "/admin/auth/group/")))
    for url in (path("failuregroup", "mail-Timeout"), path("job"), f"{path('job')}?state=failed"):
        text = text_of(admin_client, url)
        assert len(rows(text)) == 25
        assert len(re.findall(CONTROLS, text)) <= base + 60, url
