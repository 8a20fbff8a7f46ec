"""The how-to pages hold: a reader does what they say on a new site, with real processes and servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from resty_django.shdict.lmdb import files
from tests.docs_reader import Page, page, pages
from tests.docs_site import Site, make_site

OTHERS = {"index", "common-mistakes", "themes"}
"""Pages of the folder without steps."""
HOWTO = [doc_page for doc_page in pages() if doc_page.path.parent.name == "howto" and doc_page.path.stem not in OTHERS]
NAMES = {
    *("different-limits-for-an-api", "cache-a-view", "send-mail-in-the-background"),
    *("run-something-every-night", "number-invoices-without-gaps", "follow-a-request", "several-machines"),
    *("when-redis-is-down", "test-your-code", "protect-the-log-in", "sell-quotas"),
    *("limit-calls-to-a-service", "limit-websockets", "number-orders-in-a-model"),
}
HEADINGS = [
    *("## Prerequisites", "## Steps", "## Check that it works", "## Variants", "## Troubleshooting", "## Reference"),
]


@pytest.fixture(scope="session")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site as docs/install.md leaves it."""
    folder = tmp_path_factory.mktemp("howto") / "site"
    folder.mkdir()
    make_site(folder)
    return folder


@pytest.fixture
def site(new_site: Path, tmp_path: Path) -> Iterator[Site]:
    """A copy of that site, with another secret key and so with separate shared dictionaries."""
    shutil.copytree(new_site, tmp_path / "site")
    copy = Site(tmp_path / "site")
    yield copy
    copy.leave()


@pytest.mark.pages
@pytest.mark.parametrize("howto", HOWTO, ids=lambda howto: howto.name)
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(howto: Page, site: Site) -> None:
    site.follow(howto)
    assert site.results >= 3


def test_pages_add_to_the_settings_of_other_pages() -> None:
    site: dict[str, Any] = {"RESTY_DJANGO": {}, "INSTALLED_APPS": [], "MIDDLEWARE": []}
    for howto in HOWTO:
        for block in howto.blocks:
            if block.file == "mysite/settings.py" and "RESTY_DJANGO" in block.text:
                assert "RESTY_DJANGO = " not in block.text, block.place
                exec(block.text, site)  # noqa: S102
    settings = site["RESTY_DJANGO"]
    assert [rule["name"] for rule in settings["IDS"]["RULES"]] == ["invoice", "order_number", "order"]
    assert {section: set(values) for section, values in settings.items()} == {
        **{"IDS": {"RULES", "UDP"}, "LIMITS": {"LOGIN", "ON_ERROR"}, "QLESS": {"URL", "ALIAS"}},
        **{"TXID": {"PROXIES"}, "SHARED_DICTS": {"default", "bans", "events", "limits"}},
    }


def test_there_is_a_page_for_each_task() -> None:
    assert {howto.path.stem for howto in HOWTO} == NAMES


@pytest.mark.pages
def test_after_several_machines_no_dictionary_is_in_the_memory_of_the_machine(site: Site) -> None:
    site.follow(page("docs/howto/several-machines.md"))
    with override_settings(SECRET_KEY=site.secret_key), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", "mysite.settings")
        folder = files.site_folder()
    assert not (files.MEMORY_FOLDER / folder).exists()
    assert not (Path(tempfile.gettempdir()) / folder).exists()


@pytest.mark.parametrize("howto", HOWTO, ids=lambda howto: howto.name)
def test_a_how_to_page_is_short_and_has_all_sections(howto: Page) -> None:
    lines = howto.text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == HEADINGS
    assert 40 <= len(lines) <= 120
