"""The pages of alerts and of what happened, in a real browser: the layout with long names, and updates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from tests.e2e.browser import OpenPage
from tests.e2e.test_layout_browser import accessibility_problems, layout_problems

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("name", ["timeline", "alert"])
def test_long_names_fit_and_the_page_is_accessible(open_page: OpenPage, long_names: Client, name: str) -> None:
    tab = open_page()
    url = f"/admin/resty_django/{name}/"
    problems = layout_problems(tab, url)
    if folder := os.environ.get("RESTY_SCREENSHOTS"):
        for width in (1280, 390):
            tab.set_viewport_size({"width": width, "height": 1200})
            tab.screenshot(path=str(Path(folder) / f"{name}-{width}.png"), full_page=True)
    assert [*problems, *accessibility_problems(open_page, tab)] == []


def test_the_recent_time_is_live(open_page: OpenPage, long_names: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resty_django.admin.timeline.REFRESH_SECONDS", 1)
    tab: Any = open_page()
    tab.goto("/admin/resty_django/timeline/")
    tab.get_by_label("Around").fill("03:")  # not replaced by an update
    job = long_names.queues["live"].put("shop.jobs.Late")
    popped = long_names.queues["live"].pop()
    assert popped is not None
    assert popped.jid == job
    popped.fail("live-KeyError", "KeyError")
    tab.locator("table td", has_text="live-KeyError").wait_for(timeout=30_000)
    assert tab.get_by_label("Around").input_value() == "03:"
