"""Lists of jobs: the total above them, and columns that the URL chooses."""

from __future__ import annotations

import re

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from tests.integration.qless.admin.test_pages import sound
from tests.integration.qless.admin.tools import failed, fill, path, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


def heads(text: str) -> list[str]:
    """Return the column heads of the list of jobs."""
    table = text[text.index('<table class="resty-list">') :]
    return [
        re.sub(r"<[^>]+>", "", head).rstrip(" ▲▼")
        for head in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table.split("</thead>")[0])
    ]


def test_a_counted_list_begins_with_its_total(admin_client: Browser, jobs_site: Client) -> None:
    for number in range(3):
        failed(jobs_site, f"lost-{number}")
    text = text_of(admin_client, f"{path('job')}?state=failed")
    assert '<p class="resty-summary">3 jobs</p>' in text
    assert text.index("resty-summary") < text.index('<table class="resty-list">')


def test_the_url_chooses_columns(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    url = f"{path('job')}?state=failed"
    assert heads(text_of(admin_client, url))[1:] == [
        *("Job", "Class", "State", "Queue", "Priority", "Tags", "Last change", "About")
    ]
    text = sound(text_of(admin_client, f"{url}&col=retries&col=queue&col=unknown"))
    assert heads(text)[1:] == ["Job", "Queue", "Retries left"]
    assert re.findall(r'name="col" value="(\w+)"[^>]* checked', text) == ["queue", "retries"]
    assert '<input type="hidden" name="state" value="failed">' in text
    assert re.search(r'href="\?state=failed&amp;col=retries&amp;col=queue&amp;col=unknown&amp;o=-?queue"', text)
    assert '<input type="hidden" name="col" value="queue">' in text


def test_chosen_columns_can_be_sorted(admin_client: Browser, jobs_site: Client) -> None:
    failed(jobs_site, "few", retries=1)
    failed(jobs_site, "many", retries=9)
    url = f"{path('job')}?state=failed&col=retries"
    for order, jids in (("retries", ["few", "many"]), ("-retries", ["many", "few"])):
        text = text_of(admin_client, f"{url}&o={order}")
        assert re.findall(r'class="resty-id" href="[^"]*" title="([^"]*)"', text) == jids


def test_a_search_and_a_queue_have_columns_too(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    for url in (f"{path('job')}?klass=shop.jobs.Send&col=worker", f"{path('queue', 'mail')}?tab=waiting&col=worker"):
        assert heads(sound(text_of(admin_client, url)))[1:] == ["Job", "Worker"], url
