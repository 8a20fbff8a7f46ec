"""The admin's pages under a theme: `make themes`, with the settings of tests/themes.

RESTY_SCREENSHOTS names a folder for screenshots.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from tests.e2e.browser import OpenPage
from tests.e2e.layout import CHECK, WIDTHS, Page, our_pages

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.themes,
    pytest.mark.timeout(900),
]

OURS: Final = '.resty-page, #content [class^="resty-"]'
"""Selector of our parts of a page; axe skips the rest, which has faults."""


DIRECTIONS: Final = {"en": "ltr", "ar": "rtl"}


def screenshots(tab: Any, page: Page, scheme: str, language: str) -> None:
    """Leave screenshots of an open page, if somebody wants them."""
    if folder := os.environ.get("RESTY_SCREENSHOTS"):
        theme = os.environ["DJANGO_SETTINGS_MODULE"].rpartition(".")[2]
        name = "-".join(sorted(page.templates)[-1].removeprefix("admin/").removesuffix(".html").split("/"))
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            tab.screenshot(path=Path(folder) / f"{theme}-{name}-{language}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("language", DIRECTIONS)
def test_a_page_of_each_template_renders_correctly(
    language: str, open_page: OpenPage, admin_client: Browser, long_names: Client, settings: Any
) -> None:
    settings.LANGUAGE_CODE = language
    pages, problems, covered = [], [], set[str]()
    for page in our_pages(admin_client, per_view=1):
        if not page.templates <= covered:
            pages.append(page)
            covered |= page.templates
    for dark in (False, True):
        tab, scheme = open_page(dark=dark), "dark" if dark else "light"
        for page in pages:
            tab.goto(page.url)
            screenshots(tab, page, scheme, language)
            for width in WIDTHS:  # Jazzmin closes its menu on phones when a page is opened
                tab.set_viewport_size({"width": width, "height": 900})
                tab.goto(page.url)
                problems += [f"{page.url} at {width} px in {scheme} {problem}" for problem in tab.evaluate(CHECK)]
                assert tab.evaluate("getComputedStyle(document.documentElement).direction") == DIRECTIONS[language]
            violations = open_page.violations(tab, within=OURS)
            problems += [f"{page.url} in {scheme} violates {violation}" for violation in violations]
    assert problems == [], "\n".join(problems)
