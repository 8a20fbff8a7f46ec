"""Charts in a browser: what is printed, and light and dark."""

from __future__ import annotations

import pytest

from resty_django.qless import Client
from tests.e2e.browser import OpenPage
from tests.integration.qless.admin.tools import failed, fill, path

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.browser, pytest.mark.redis]
FILL = "selector => getComputedStyle(document.querySelector(selector)).fill"


@pytest.fixture
def queue_page(jobs_site: Client) -> str:
    fill(jobs_site)
    failed(jobs_site, "failed-2")
    return f"{path('queue', 'mail')}?tab=stats"


def test_charts_are_printed_without_the_controls(queue_page: str, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(queue_page)
    controls = (".resty-bar", ".resty-live-bar", "#nav-sidebar", "ul.resty-doors", "details")
    assert all(page.locator(f"{selector}:visible").count() for selector in controls)
    page.emulate_media(media="print")
    assert [selector for selector in controls if page.locator(f"{selector}:visible").count()] == []
    assert page.locator("figure.resty-chart svg:visible").count() == 2


def test_colours_follow_the_theme(queue_page: str, open_page: OpenPage) -> None:
    colours = []
    for dark in (False, True):
        page = open_page(dark=dark)
        page.goto(queue_page)
        colours.append([page.evaluate(FILL, selector) for selector in ("rect.resty-failed", ".resty-axes text")])
        assert len({page.evaluate(FILL, f"rect.resty-{kind}") for kind in ("failed", "completed")}) == 2
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]
