"""The how-to pages hold: a reader does what they say on a new site, with real processes and servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_reader import Page, pages
from tests.docs_site import Site, make_site

HOWTO = [doc_page for doc_page in pages() if doc_page.path.parent.name == "howto"]
HEADINGS = ["## What you need", "## Steps", "## Check that it works", "## Variants", "## What can go wrong", "## Reference"]


@pytest.fixture(scope="session")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site as docs/install.md leaves it."""
    folder = tmp_path_factory.mktemp("howto") / "site"
    folder.mkdir()
    make_site(folder)
    return folder


@pytest.fixture
def site(new_site: Path, tmp_path: Path) -> Iterator[Site]:
    """A copy of that site with a secret key, and so shared dictionaries, of its own."""
    shutil.copytree(new_site, tmp_path / "site")
    copy = Site(tmp_path / "site")
    yield copy
    copy.leave()


@pytest.mark.redis
@pytest.mark.parametrize("howto", HOWTO, ids=lambda howto: howto.name)
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(howto: Page, site: Site) -> None:
    site.follow(howto)
    assert site.results >= 3


@pytest.mark.parametrize("howto", HOWTO, ids=lambda howto: howto.name)
def test_a_how_to_page_is_short_and_has_all_sections(howto: Page) -> None:
    lines = howto.text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == HEADINGS
    assert 40 <= len(lines) <= 110
