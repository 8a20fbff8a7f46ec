"""The limits and jobs of docs/coming-from/ do after the port what they did before it.

The `check_` functions also hold for the projects before the port: tests/wheel/test_coming_from.py installs the other
packages.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs_reader import page
from tests.ported_site import PortedSite, ported_site
from tests.servers import eventually

VISITS = """
import json
import subprocess
from django.test import Client

client = Client(SERVER_NAME="127.0.0.1")


def statuses(count, path, **headers):
    return [client.get(path, headers=headers).status_code for _ in range(count)]


"""


def answers(site: PortedSite, code: str) -> Any:
    output, _ = site.visit(VISITS + code)
    return json.loads(output.splitlines()[-1])


RATELIMIT = """
print(json.dumps({
    "search": statuses(4, "/search/"),
    "join": [client.post("/join/", {"email": "a@example.com"}).content.decode() for _ in range(3)],
    "other": client.post("/join/", {"email": "b@example.com"}).content.decode(),
    "form": client.get("/join/").content.decode(),
    "export": statuses(4, "/export/"),
    "partner": statuses(4, "/export/", x_partner="yes"),
}))
"""


def check_django_ratelimit(site: PortedSite) -> None:
    assert answers(site, RATELIMIT) == {
        "search": [200, 200, 429, 429],
        "join": ["welcome", "welcome", "captcha"],
        "other": "welcome",
        "form": "welcome",
        "export": [200, 200, 200, 429],
        "partner": [200, 200, 200, 200],
    }


def test_django_ratelimit(tmp_path: Path) -> None:
    with ported_site(tmp_path, "docs/coming-from/django-ratelimit.md", "after") as site:
        check_django_ratelimit(site)


THROTTLES = """
from django.contrib.auth.models import User

client.force_login(User.objects.create_user("alice"))
user = statuses(6, "/api/products/")
client.logout()
anonymous = [client.get("/api/products/") for _ in range(4)]
print(json.dumps({
    "user": user,
    "anonymous": [response.status_code for response in anonymous],
    "wait": 1 <= int(anonymous[-1].headers["Retry-After"]) <= 120,
    "uploads": statuses(3, "/api/uploads/"),
    "partner": statuses(3, "/api/stock/", x_api_key="a"),
    "another": statuses(2, "/api/stock/", x_api_key="b"),
}))
"""


def check_drf_throttles(site: PortedSite) -> None:
    assert answers(site, THROTTLES) == {
        "user": [200, 200, 200, 200, 200, 429],
        "anonymous": [200, 200, 200, 429],
        "wait": True,
        "uploads": [200, 200, 429],
        "partner": [200, 200, 429],
        "another": [200, 200],
    }


@pytest.mark.redis
@pytest.mark.parametrize("side", ["before", "after"])
def test_drf_throttles(tmp_path: Path, side: str, valkey_url: str, valkey: object) -> None:
    servers = {"redis://127.0.0.1:6379/0": valkey_url}
    with ported_site(tmp_path, "docs/coming-from/drf-throttles.md", side, servers) as site:
        check_drf_throttles(site)


LOG_INS = """
from django.contrib.auth.models import User
from shop.support import unlock

for name in ("alice", "bob"):
    User.objects.create_superuser(name, password="right")


def log_in(name, password, address="127.0.0.1"):
    form = {"username": name, "password": password}
    return Client(SERVER_NAME="127.0.0.1", REMOTE_ADDR=address).post("/admin/login/?next=/admin/", form).status_code


four = [log_in("alice", "wrong") for _ in range(4)]
reset = [log_in("alice", "right"), *(log_in("alice", "wrong") for _ in range(4))]
log_in("alice", "wrong")
locked = [log_in("alice", "right"), log_in("bob", "right"), log_in("alice", "right", "192.0.2.7")]
log_in("alice", "wrong")
unlock("127.0.0.1", "alice")
print(json.dumps([four, reset, locked, log_in("alice", "right")]))
"""


def check_django_axes(site: PortedSite) -> None:
    four, reset, locked, unlocked = answers(site, LOG_INS)
    assert four == [200] * 4
    assert reset == [302, 200, 200, 200, 200]
    assert locked == [429, 302, 302]
    assert unlocked == 302


def test_django_axes(tmp_path: Path) -> None:
    with ported_site(tmp_path, "docs/coming-from/django-axes.md", "after") as site:
        check_django_axes(site)


def work(site: PortedSite, *command: str) -> None:
    """Run a worker in the site until no job is left."""
    done = subprocess.run(
        [site.python, *command],
        cwd=site.folder,
        env=site.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def check_rq(site: PortedSite, *worker: str, times: str) -> None:
    site.visit(VISITS + "assert statuses(1, '/orders/7/') == [200]")
    work(site, *worker, "--burst")
    lines = (site.folder / "log.txt").read_text().splitlines()
    assert [line for line in lines if line != "report"] == ["pack 7", "pack 7", "invoice 7", "newsletter"]
    assert answers(site, times) == ["0230"]


RECURRING = """
from resty_django.qless import client

print(json.dumps(sorted({jid[-5:-1] for jid in client.queues["default"].jobs.scheduled()})))
"""


@pytest.mark.redis
def test_rq(tmp_path: Path, valkey_url: str, valkey: object) -> None:
    page_name = "docs/coming-from/rq.md"
    (command,) = [command for block in page(page_name).blocks for command in block.commands if "runqless" in command]
    with ported_site(tmp_path, page_name, "after", {"redis://127.0.0.1:6379/1": valkey_url}) as site:
        check_rq(site, *command.split()[1:], times=RECURRING)


@contextmanager
def running(site: PortedSite, command: Sequence[str]) -> Iterator[None]:
    """Run a worker or a scheduler in the site."""
    with (site.folder / "processes.txt").open("a") as output:
        process = subprocess.Popen(
            [site.python, *command], cwd=site.folder, env=site.environment, stdout=output, stderr=output
        )
    try:
        yield
        assert process.poll() is None, (site.folder / "processes.txt").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


def check_celery(site: PortedSite, *commands: Sequence[str], times: str) -> None:
    log = site.folder / "log.txt"
    with ExitStack() as processes:
        for command in commands:
            processes.enter_context(running(site, command))
        order = "jid = client.get('/order/7/').content.decode()"
        result = answers(site, f"{order}\nprint(json.dumps(client.get(f'/result/{{jid}}/').content.decode()))")
        assert result == "2 boxes"
        assert eventually(lambda: log.read_text().count("sweep") >= 2)
        lines = [line for line in log.read_text().splitlines() if line not in ("sweep", "report")]
        assert lines == ["charge 7", "charge 7", "pack 7", "pack 7", "ship"]
        assert answers(site, times) == ["0230"]


@pytest.mark.redis
def test_celery(tmp_path: Path, valkey_url: str, valkey: object) -> None:
    celery = page("docs/coming-from/celery.md")
    (command,) = [command for block in celery.blocks for command in block.commands if "runqless" in command]
    (views,) = [block.text for block in celery.blocks if block.file == "before/shop/views.py"]
    (line,) = [span for span in celery.spans if span.startswith("from resty_django")]
    with ported_site(tmp_path, celery.name, "after", {"redis://127.0.0.1:6379/1": valkey_url}) as site:
        imports = "from celery import group\nfrom celery.result import AsyncResult"
        assert imports in views
        (site.folder / "shop" / "views.py").write_text(views.replace(imports, line))
        check_celery(site, command.split()[1:], times=RECURRING)
