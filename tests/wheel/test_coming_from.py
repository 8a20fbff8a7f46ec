"""The projects of docs/coming-from/ before their port, with the packages that they come from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration import test_coming_from as ports
from tests.integration import test_coming_from_more as more
from tests.ported_site import PortedSite, ported_site
from tests.servers import free_port, one
from tests.wheel.conftest import run

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

RQ_CRON = """
from django_rq.cron import DjangoCronScheduler

scheduler = DjangoCronScheduler()
scheduler.load_config_from_file("shop.cron")
print(json.dumps([job.get_next_enqueue_time().strftime("%H%M") for job in scheduler.get_jobs()]))
"""


def check_rq(site: PortedSite) -> None:
    ports.check_rq(site, "manage.py", "rqworker", "high", "default", "low", times=RQ_CRON)


CRONTAB = """
from datetime import timedelta
from mysite.celery import app

now = app.now()
schedule = app.conf.beat_schedule["report"]["schedule"]
print(json.dumps([(now + schedule.remaining_estimate(now) + timedelta(seconds=1)).strftime("%H%M")]))
"""


def check_celery(site: PortedSite) -> None:
    celery = ("-m", "celery", "-A", "mysite")
    ports.check_celery(site, (*celery, "worker"), (*celery, "beat"), (*celery, "flower"), times=CRONTAB)


BEFORE: dict[str, tuple[Callable[[PortedSite], None], list[str]]] = {
    "django-ratelimit": (ports.check_django_ratelimit, ["django-ratelimit==4.1.0", "django-redis"]),
    "django-axes": (ports.check_django_axes, ["django-axes==8.3.1"]),
    "rq": (check_rq, ["rq==3.0.0", "django-rq==4.2.0"]),
    "celery": (check_celery, ["celery[redis]==5.7.0", "flower==2.2.0"]),
}


@pytest.mark.parametrize("name", BEFORE)
def test_the_project_before_the_port_behaves_the_same(
    name: str, tmp_path: Path, valkey_url: str, valkey: object
) -> None:
    check, packages = BEFORE[name]
    replacements = {"redis://127.0.0.1:6379/0": valkey_url}
    with installed_site(tmp_path, name, "before", replacements, packages) as site:
        check(site)


@contextmanager
def installed_site(
    folder: Path, name: str, side: str, replacements: Mapping[str, str], packages: list[str]
) -> Iterator[PortedSite]:
    """Make the project of a page in a folder, with a new environment that has these packages."""
    python = folder / "env" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(*pip, "Django<6.2", *packages, cwd=folder, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    (folder / "site").mkdir()
    with ported_site(folder / "site", f"docs/coming-from/{name}.md", side, replacements, str(python)) as site:
        yield site


def test_django_redis_and_cacheops(tmp_path: Path) -> None:
    with one() as server:
        replacements = {"127.0.0.1:6379": f"127.0.0.1:{server.port}"}
        packages = ["django-redis==7.0.0", "django-cacheops==7.2"]
        with installed_site(tmp_path, "django-redis", "before", replacements, packages) as site:
            more.check_django_redis(site)


@pytest.mark.parametrize(
    ("side", "package"),
    [("before-guid", "django-guid==3.6.1"), ("before-log-request-id", "django-log-request-id==2.1.2")],
)
def test_request_ids(side: str, package: str, tmp_path: Path) -> None:
    with installed_site(tmp_path, "request-ids", side, {"8001": str(free_port())}, [package]) as site:
        more.check_request_ids(site)
