"""The README holds: a reader who pastes its files and commands into a new project sees what it says."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_reader import page
from tests.docs_site import Site, run_to_end, site_environment

pytestmark = pytest.mark.e2e

README = page("README.md")
HOST = "http://127.0.0.1:8000"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A project as `startproject` makes it, with the settings of the README."""
    command = [sys.executable, "-m", "django", "startproject", "mysite", "."]
    run_to_end(command, tmp_path, {**site_environment(tmp_path), "DJANGO_SETTINGS_MODULE": ""})
    new = Site(tmp_path)
    settings, *_ = (block for block in README.blocks if block.file == "mysite/settings.py")
    new.write(settings)
    new.run("README.md", "python manage.py migrate", [])
    yield new
    new.leave()


def test_each_part_is_one_file_and_one_address(site: Site) -> None:
    limits, orders, caches = (block for block in README.blocks if block.file == "mysite/urls.py")
    site.write(limits)
    site.run("README.md", "python manage.py runserver", [])
    status = f"curl -s -o /dev/null -w '%{{http_code}}\\n' {HOST}"
    site.run(limits.place, f"{status}/search?[1-4]", ["200", "200", "200", "429"])
    site.run(limits.place, f"{status}/admin/", ["200"])  # the page to log in
    site.write(orders)
    for number in ("O000000", "O000001"):
        site.run(orders.place, f"curl -s {HOST}/order", [number])
    with urllib.request.urlopen(site.local(f"{HOST}/order")) as response:  # noqa: S310
        assert re.fullmatch("[0-9a-v]{20}", response.headers["X-Request-Id"])
    site.write(caches)
    for _ in range(3):
        site.run(caches.place, f"curl -s {HOST}/prices", ["{'tea': 3, 'computed': 1}"])


def test_a_job_runs_and_returns_its_result(site: Site) -> None:
    (tasks,) = (block for block in README.blocks if block.file == "mysite/tasks.py")
    site.write(tasks)
    (console,) = (block for block in README.blocks if "runqless" in block.text)
    for command in console.commands:
        shown = ["Closed Monday."] if "delay" in command else []
        assert all(line in console.text for line in shown)
        site.run(console.place, command, shown)
    assert site.results == 1


def test_the_readme_names_each_file_and_address_that_it_uses() -> None:
    for block in README.blocks:
        if block.file:
            assert f"`{block.file}`" in README.text, block.place
    assert "](docs/index.md)" in README.text
    assert "](SECURITY.md)" in README.text
