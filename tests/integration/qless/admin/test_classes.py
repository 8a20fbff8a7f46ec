"""Classes of jobs in the admin: the list, the page of a class, and the charts of queues."""

from __future__ import annotations

import re

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.formatting import url
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import HOSTILE, failed, path, person, plain, text_of
from tests.integration.qless.conftest import pop

pytestmark = [pytest.mark.django_db, pytest.mark.redis]
SEND, OTHER = "shop.jobs.Send", "shop.jobs.Other"


def complete(client: Client, klass: str, jid: str, queue: str = "mail") -> None:
    client.queues[queue].put(klass, {}, jid=jid, priority=1000)
    pop(client.queues[queue]).complete()


@pytest.fixture
def browser(jobs_site: Client) -> Browser:
    for number in range(3):
        complete(jobs_site, SEND, f"send-{number}")
    complete(jobs_site, OTHER, "other-1", "reports")
    failed(jobs_site, "failed-1", "mail-Timeout")
    return person("view_job")


def test_the_list_shows_counts_and_durations(browser: Browser) -> None:
    for period in ("hour", "day", "week", "month"):
        html = text_of(browser, f"{path('jobclass')}?period={period}")
        text = plain(html)
        assert re.search(rf"{SEND} 3 1 [\d.]+ ms [\d.]+ ms [\d.]+ ms [\d.]+ ms {OTHER} 1 0 ", text)
        assert f'href="{url("jobclass", SEND)}"' in html
        assert "4 jobs completed, 1 failed; most completed: 4" in text
    assert f"{OTHER} 1" in plain(text_of(browser, f"{path('jobclass')}?o=klass"))
    matching = plain(text_of(browser, f"{path('jobclass')}?name=OTHER"))
    assert f"{OTHER} 1 0" in matching
    assert f"{SEND} 3" not in matching


def test_the_page_of_a_class_shows_its_figures_and_failure_groups(browser: Browser) -> None:
    html = text_of(browser, path("jobclass", SEND))
    text = plain(html)
    assert "3 jobs completed, 1 failed; most completed:" in text
    for chart in ("Completed and failed", "Waiting and running time waiting p50", "; running p50"):
        assert chart in text
    assert f'href="{url("failuregroup", "mail-Timeout")}"' in html
    assert "mail-Timeout" not in text_of(browser, path("jobclass", OTHER))
    assert f"?klass={SEND}&amp;state=failed" in html


def test_an_unknown_class_has_an_empty_page(browser: Browser) -> None:
    assert "0 jobs completed, 0 failed" in plain(text_of(browser, path("jobclass", HOSTILE)))


def test_a_queue_and_the_overview_have_the_same_charts(browser: Browser) -> None:
    for period in ("hour", "day", "week", "month", "nonsense"):
        html = sound(text_of(browser, f"{path('queue', 'mail')}?tab=stats&period={period}"))
        assert re.findall(r"<figcaption>([^<]*) <", html) == ["Completed and failed", "Waiting and running time"]
        assert "<details><summary>As a table</summary>" in html
        assert "3 jobs completed, 1 failed; most completed:" in plain(html)
        assert "; running p50" in plain(html)
    overview = plain(text_of(browser, path("queue")))
    assert "4 jobs completed, 1 failed" in overview
    assert "Waiting and running time waiting p50" in overview


def test_failures_are_drawn_over_completions(browser: Browser) -> None:
    html = text_of(browser, f"{path('queue', 'mail')}?tab=stats&period=month")
    drawn = re.findall(r'<rect class="resty-(failed|completed)" x="[\d.]+" y="([\d.]+)"', html)
    assert [kind for kind, _y in drawn] == ["completed", "failed"]
    assert float(drawn[1][1]) < float(drawn[0][1])


def test_a_page_of_a_job_leads_to_its_class(browser: Browser) -> None:
    assert f'href="{url("jobclass", SEND)}"' in text_of(browser, path("job", "failed-1"))


def test_classes_with_long_names_are_not_counted_by_name(browser: Browser, jobs_site: Client) -> None:
    complete(jobs_site, "x" * 500, "long")
    assert "others, which are not counted by name 1 0" in plain(text_of(browser, path("jobclass")))
