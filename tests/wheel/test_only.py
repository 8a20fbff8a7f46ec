"""The pages of docs/only/, word for word: one part from the wheel in a new project, its cost and its imports."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs_reader import ROOT, Page, page
from tests.docs_site import Running, Site
from tests.wheel.conftest import Environment, run

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

APPS = {"resty_django.ids", "resty_django.limits", "resty_django.cache", "resty_django.qless"}
OPTIONAL = {"redis", "django_redis", "rest_framework", "celery", "kombu", "lupa", "prometheus_client", "cronsim"}
RUNS = 5
VISIT = 'client.get("/")'
COST = """
import json, sys, time
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
import mysite.urls
client = Client(SERVER_NAME="127.0.0.1")
client.get("/admin/login/")
User.objects.count()
{first_result}
seconds = time.process_time()
(pss,) = (line.split()[1] for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:"))
print(json.dumps([int(pss) / 1024, seconds, sorted(sys.modules)]))
"""


@dataclass(frozen=True)
class Part:
    """Facts of a page besides its figures. The part imports `apps`, and of the optional packages only `packages`."""

    first_result: str
    apps: frozenset[str]
    packages: frozenset[str] = frozenset()
    lmdb: bool = True


PARTS = {
    "limits": Part(VISIT, frozenset({"resty_django.limits"})),
    "ids": Part("from resty_django.ids import next_id\nnext_id('order')", frozenset({"resty_django.ids"})),
    "caches": Part(
        "from resty_django.cache import cached\ncached(ttl=60, name='length')(len)('tea')",
        frozenset({"resty_django.cache"}),
    ),
    "jobs": Part(
        "from mysite.tasks import send_invoice\nsend_invoice.delay(8)",
        frozenset({"resty_django.qless"}),
        frozenset({"redis", "django_redis"}),
        lmdb=False,
    ),
    "request-ids": Part(VISIT, frozenset(), lmdb=False),
}


def pages_of_parts() -> list[Page]:
    return [page(f"docs/only/{name}.md") for name in PARTS]


def number(doc_page: Page, pattern: str) -> float:
    """The figure that a page shows; 0 if it has none."""
    match = re.search(pattern, " ".join(doc_page.text.split()))
    return float(match[1]) if match else 0.0


def start_project(folder: Path, environment: Environment) -> None:
    folder.mkdir()
    run(environment.python, "-m", "django", "startproject", "mysite", ".", cwd=folder)


@contextmanager
def new_site(folder: Path, environment: Environment) -> Iterator[Site]:
    """A new project that imports nothing of this checkout but tests.docs_reader."""
    modules = folder.with_name("modules")
    (modules / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "docs_reader.py", modules / "tests")
    start_project(folder, environment)
    site = Site(folder, str(environment.python), modules)
    try:
        yield site
    finally:
        site.leave()


def cost(folder: Path, environment: Environment, first_result: str) -> tuple[float, float, set[str]]:
    """Return MiB, seconds and modules of a process of the project, after it did this."""
    code, env = COST.format(first_result=first_result), {"DJANGO_SETTINGS_MODULE": "mysite.settings"}
    runs: list[Any] = [
        json.loads(run(environment.python, "-c", code, cwd=folder, PYTHONPATH=str(folder), **env)) for _ in range(RUNS)
    ]
    return statistics.median(row[0] for row in runs), statistics.median(row[1] for row in runs), set(runs[0][2])


def memory_of(worker: Running) -> float:
    """Return the MiB of a process and its children."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    family = [worker.process.pid]
    for pid in family:
        family += children.get(pid, [])
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in family]
    return sum(int(size) for text in texts for size in re.findall(r"^Pss: +(\d+)", text, re.MULTILINE)) / 1024


def shared_memory(site: Site) -> int:
    """Return the MiB of the site's shared dictionaries."""
    code = "import django; django.setup(); from resty_django.shdict.lmdb import files; print(files.site_folder())"
    folder = Path("/dev/shm") / site.finish([site.python, "-c", code]).strip()  # noqa: S108
    return sum(path.stat().st_size for path in folder.glob("*.mdb")) // 2**20


@pytest.mark.parametrize("name", PARTS)
def test_the_page_works_as_described(name: str, environment: Callable[..., Environment], tmp_path: Path) -> None:
    doc_page, part = page(f"docs/only/{name}.md"), PARTS[name]
    (command,) = re.findall(r"^\$ pip install (\S+)$", doc_page.text, re.MULTILINE)
    virtual_env = environment(*re.findall(r"\w+", command.strip('"').removeprefix("resty-django")))
    start_project(tmp_path / "plain", virtual_env)
    run(virtual_env.python, "manage.py", "migrate", cwd=tmp_path / "plain")
    with new_site(tmp_path / "site", virtual_env) as site:
        site.follow(doc_page)
        assert site.results >= 1
        workers = [memory_of(server) for server in site.servers if server.name == "runqless"]
        plain_memory, plain_seconds, _ = cost(tmp_path / "plain", virtual_env, "")
        memory, seconds, modules = cost(site.folder, virtual_env, part.first_result)
        shared = shared_memory(site)
    print(f"{name}: {memory - plain_memory:.1f} MiB, {seconds - plain_seconds:.2f} s, {workers} MiB, {shared} MiB")
    assert modules & APPS == part.apps
    assert modules & OPTIONAL == part.packages
    assert ("lmdb" in modules) is part.lmdb
    shown = number(doc_page, r"about (\d+) MiB more memory")
    assert shown / 2 < memory - plain_memory < shown * 1.5
    assert 0 < seconds - plain_seconds < number(doc_page, r"about ([\d.]+) s more processor time") * 3
    assert shared == number(doc_page, r"share (\d+) MiB")
    for worker in workers:
        shown = number(doc_page, r"worker needs about (\d+) MiB")
        assert shown / 2 < worker < shown * 1.5


@pytest.mark.parametrize("doc_page", pages_of_parts(), ids=lambda doc_page: doc_page.name)
def test_the_page_is_short(doc_page: Page) -> None:
    assert len(doc_page.text.split()) <= 330


def test_there_is_a_page_for_each_part() -> None:
    assert {path.stem for path in (ROOT / "docs" / "only").glob("*.md")} - {"index"} == set(PARTS)
