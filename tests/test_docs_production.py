"""The files of docs/production/files are valid, and the commands in them run a site with real processes."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from django.core.management import load_command_class

from resty_django.ids.client import IdClient
from tests.docs_reader import ROOT, page
from tests.docs_site import Site, make_site
from tests.servers import Server, one, until

PRODUCTION = ROOT / "docs" / "production"
FILES = PRODUCTION / "files"
UNITS = sorted(FILES.glob("*.service"))
VIEWS = """
import os

from django.http import HttpResponse, JsonResponse
from django.urls import include, path

from resty_django.events import on_event, post
from resty_django.ids import next_id
from resty_django.limits import limit_window
from resty_django.shdict import shdicts
from shop.tasks import note

@on_event("shop", "rung")
def rung(data, event, source, pid):
    shdicts["default"].rpush("heard", os.getpid())

@limit_window(7, per="1h")
def limited(request):
    return HttpResponse(os.getpid())

def pid(request):
    return HttpResponse(os.getpid())

def order(request):
    return HttpResponse(next_id("order"))

def ring(request):
    post("shop", "rung")
    return HttpResponse()

def heard(request):
    heard = shdicts["default"]
    pids = [heard.lpop("heard") for _ in range(heard.llen("heard"))]
    return JsonResponse(pids, safe=False)

def enqueue(request):
    return HttpResponse(note.delay("called").id)

def noted(request):
    return HttpResponse(shdicts["default"].get("noted", ""))

urlpatterns = [
    path("healthz/", include("resty_django.healthz.urls")),
    *(path(f"{view.__name__}/", view) for view in (limited, pid, order, ring, heard, enqueue, noted)),
]
"""
TASKS = """
from resty_django.qless import task
from resty_django.shdict import shdicts

@task
def note(text):
    shdicts["default"].rpush("noted", text)
"""
BEFORE_FORK = """
from resty_django import events
from resty_django.ids import next_id

events.start()  # a thread, a dictionary and a segment of numbers, before the server forks
next_id("order")
"""


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    return parser


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())
    return loaded


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    lines = (FILES / "Dockerfile").read_text().splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")]


def commands() -> dict[str, list[str]]:
    """The commands of the units, of compose.yaml and of the Dockerfile, by place."""
    found = {path.name: shlex.split(unit(path)["Service"]["ExecStart"]) for path in UNITS}
    for name, service in compose()["services"].items():
        if service.get("image") == "mysite" and "command" in service:
            found[f"compose.yaml: {name}"] = service["command"]
    found["Dockerfile"] = json.loads(dict(dockerfile())["CMD"])
    return found


def served_page(name: str) -> str:
    return (PRODUCTION / name).read_text()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_what_this_package_needs(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["Restart"] == "always"
    assert service["KillMode"] == "mixed"  # only the parent gets SIGTERM, and ends its processes in order
    assert service["User"] == "mysite"
    assert "PrivatePIDs" not in service  # LMDB recognizes processes by their PIDs
    # Time to end: more than the command takes itself.
    arguments = shlex.split(service["ExecStart"])
    grace = int(arguments[arguments.index("--grace") + 1]) if "--grace" in arguments else 0
    assert int(service["TimeoutStopSec"]) >= grace + 10
    if "runqless" in arguments:
        assert service["RestartPreventExitStatus"].split() == ["0", "3", "78"]


def test_systemd_knows_all_keys(tmp_path: Path) -> None:
    """`systemd-analyze` says so, or, on a machine without it, the list of keys that it has accepted."""
    known = {
        *("Type", "NotifyAccess", "User", "WorkingDirectory", "EnvironmentFile", "ExecStart", "KillMode", "UMask"),
        *("TimeoutStopSec", "Restart", "RestartPreventExitStatus", "NoNewPrivileges", "CapabilityBoundingSet"),
        *("PrivateTmp", "ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules"),
        *("ProtectControlGroups", "RestrictAddressFamilies", "RestrictSUIDSGID", "LockPersonality"),
    }
    for path in UNITS:
        assert list(unit(path)) == ["DEFAULT", "Unit", "Service", "Install"]
        assert set(unit(path)["Service"]) <= known
        text = re.sub(r"/srv/mysite/\.venv/bin/\w+", os.path.realpath(sys.executable), path.read_text())
        (tmp_path / path.name).write_text(text)
    if program := shutil.which("systemd-analyze"):
        command = [program, "verify", *map(str, tmp_path.iterdir())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_units_have_the_same_sandbox() -> None:
    differing = {"ExecStart", "TimeoutStopSec", "Type", "NotifyAccess", "RestartPreventExitStatus"}
    common = [{key: value for key, value in unit(path)["Service"].items() if key not in differing} for path in UNITS]
    assert len(UNITS) == 3
    assert common[0] == common[1] == common[2]


@pytest.mark.parametrize(("place", "command"), commands().items())
def test_a_command_and_its_options_exist(place: str, command: list[str]) -> None:
    program, *arguments = command
    if Path(program).name == "gunicorn":
        assert arguments == ["mysite.wsgi"]
        return
    assert Path(program).name == "python"
    assert arguments.pop(0) == "manage.py"
    name = arguments.pop(0)
    apps = {"runqless": "resty_django.qless", "runidserver": "resty_django.ids", "migrate": "django.core"}
    parser = load_command_class(apps[name], name).create_parser("manage.py", name)
    parser.parse_args(arguments)  # raises CommandError for an unknown option


def test_the_compose_file() -> None:
    services = compose()["services"]
    ours = [service for service in services.values() if service.get("image") == "mysite"]
    assert len(ours) == 4
    for service in ours:
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["shm_size"] == "128m"
    for name in ("web", "worker", "idserver"):
        needs = unit(FILES / f"mysite-{name}.service")["Service"]["TimeoutStopSec"]
        assert services[name]["stop_grace_period"] == f"{needs}s"
    redis = services["redis"]["command"]
    assert redis[redis.index("--appendonly") + 1] == "yes"
    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"
    volumes = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert volumes == set(compose()["volumes"])
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for needed, condition in service.get("depends_on", {}).items():
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[needed]


def test_the_dockerfile() -> None:
    instructions = dockerfile()
    words = [word for word, _ in instructions]
    assert set(words) <= {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "CMD"}
    assert words[0] == "FROM"
    assert words[-1] == "CMD"
    assert ("USER", "mysite") in instructions[words.index("USER", words.index("WORKDIR")) :]
    for word, rest in instructions:
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
        if word == "COPY" and "--from" in rest:
            assert f"AS {rest.split()[0].removeprefix('--from=')}" in instructions[0][1]


def test_each_file_is_shown_on_a_page() -> None:
    pages = "".join(path.read_text() for path in PRODUCTION.glob("*.md"))
    assert {f"files/{path.name}" for path in FILES.iterdir()} == set(re.findall(r"\{literalinclude\} (\S+)", pages))


def test_each_alert_has_a_place_in_the_table() -> None:
    rules = (ROOT / "resty_django" / "metrics" / "monitoring" / "rules.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert sorted(re.findall(r"`(Resty\w+)`", served_page("monitoring.md"))) == sorted(alerts)


def test_nginx_overwrites_the_headers_that_the_site_trusts() -> None:
    """The settings of the page name nginx as a proxy for limits and IDs."""
    set_headers = dict(re.findall(r"proxy_set_header (\S+) (\S+);", (FILES / "nginx.conf").read_text()))
    assert set_headers["X-Forwarded-For"] == "$remote_addr"
    assert set_headers["X-Forwarded-Proto"] == "$scheme"
    assert set_headers["X-Request-Id"] == "$request_id"


@pytest.mark.pages
def test_nginx_can_read_its_file() -> None:
    import crossplane

    parsed = crossplane.parse(str(FILES / "nginx.conf"), strict=True)
    assert parsed["errors"] == []


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Server]:
    with one() as server:
        yield server


@pytest.fixture(scope="module")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("production") / "site"
    folder.mkdir()
    make_site(folder)
    (folder / "shop" / "views.py").write_text(VIEWS)
    (folder / "shop" / "tasks.py").write_text(TASKS)
    (folder / "mysite" / "urls.py").write_text("from shop.views import urlpatterns  # noqa: F401\n")
    with (folder / "mysite" / "wsgi.py").open("a") as file:
        file.write(BEFORE_FORK)
    for name in ("gunicorn.conf.py", "uwsgi.ini"):
        shutil.copy(FILES / name, folder)
    return folder


@pytest.fixture
def site(new_site: Path, tmp_path: Path, redis_server: Server) -> Iterator[Site]:
    shutil.copytree(new_site, tmp_path / "site")
    copy = Site(tmp_path / "site")
    with (copy.folder / "mysite" / "settings.py").open("a") as file:
        file.write('MIDDLEWARE.insert(0, "resty_django.healthz.middleware.healthz_middleware")\n')
        rules = [{"name": "order", "source": "O{counter:06d}"}]
        parts = {"QLESS": {"URL": redis_server.url}, "IDS": {"RULES": rules}}
        file.write(f"RESTY_DJANGO.update({parts!r})\n")
    yield copy
    copy.leave()


class Web:
    """A web server of the site; `url` is where it answers."""

    def __init__(self, site: Site, command: list[str]) -> None:
        self.site = site
        self.port = site.ports["127.0.0.1:8000"]
        site.serve("", "web", command, [])
        site.wait_for_port(self.port)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=20) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            return error.code, ""

    def both(self) -> set[str]:
        """The process IDs of both workers, once each has answered."""
        pids: set[str] = set()
        until = time.monotonic() + 20
        with ThreadPoolExecutor(8) as pool:
            while len(pids) < 2:
                assert time.monotonic() < until, pids
                pids |= {text for _, text in pool.map(self.get, ["pid/"] * 16)}
        assert len(pids) == 2
        return pids


def end(site: Site, name: str) -> int:
    """Send SIGTERM; return the exit code."""
    [server] = [server for server in site.servers if server.name == name]
    server.process.terminate()
    code = server.process.wait(20)
    site.servers.remove(server)
    assert "Traceback" not in server.log.read_text()
    return code


def gunicorn() -> list[str]:
    program, *arguments = commands()["mysite-web.service"]
    assert Path(program).name == "gunicorn"
    return [sys.executable, "-m", "gunicorn", *arguments]


def uvicorn() -> list[str]:
    [command] = re.findall(r"^\$ uvicorn (.+)$", served_page("servers.md"), re.MULTILINE)
    return [sys.executable, "-m", "uvicorn", *shlex.split(command)]


def uwsgi() -> list[str]:
    [command] = re.findall(r"^\$ uwsgi (.+)$", served_page("servers.md"), re.MULTILINE)
    return [str(Path(sys.executable).with_name("pyuwsgi")), *shlex.split(command)]  # the wheel of uWSGI


@pytest.mark.pages
@pytest.mark.parametrize("command", [gunicorn, uvicorn, uwsgi])
def test_a_web_server(site: Site, command: Callable[[], list[str]]) -> None:
    port = str(site.ports["127.0.0.1:8000"])
    for name in ("gunicorn.conf.py", "uwsgi.ini"):
        config = site.folder / name
        config.write_text(config.read_text().replace("8000", port))
    web = Web(site, [word.replace("8000", port) for word in command()])
    assert web.get("healthz/live") == (200, "ok\n")
    assert web.get("healthz/ready") == (200, "ok\n")
    pids = web.both()

    # A limit holds over both workers.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(web.get, ["limited/"] * 40))
    assert sorted(status for status, _ in answers) == [200] * 7 + [429] * 33

    # No number is issued twice.
    with ThreadPoolExecutor(8) as pool:
        orders = [text for _, text in pool.map(web.get, ["order/"] * 60)]
    assert len(set(orders)) == 60

    # Each worker gets an event once.
    web.get("heard/")
    web.get("ring/")
    heard: list[str] = []
    until = time.monotonic() + 10
    while not pids <= set(heard):
        assert time.monotonic() < until, (pids, heard)
        heard += map(str, json.loads(web.get("heard/")[1]))
    assert len(heard) == len(set(heard))

    # At the end, unused numbers return to the database; uvicorn's workers end themselves with a signal.
    assert end(site, "web") in (0, -signal.SIGTERM)
    read = "from resty_django.ids.models import IdCounter; print('bound', IdCounter.objects.get().bound)"
    bound = int(site.finish([sys.executable, "manage.py", "shell", "-c", read]).split("bound ")[1])
    returned = bound == int(max(orders)[1:]) + 1
    assert returned == (command is not uvicorn)


def shell(site: Site, code: str) -> str:
    """Run code in `manage.py shell`; return what it prints."""
    lines = (
        "from resty_django.ids import next_ids; from resty_django.shdict import shdicts; from shop.tasks import note"
    )
    return site.finish([sys.executable, "manage.py", "shell", "-v", "0", "-c", f"{lines}\n{code}"]).strip()


@pytest.mark.pages
@pytest.mark.parametrize("place", ["mysite-worker.service", "compose.yaml: worker"])
def test_the_workers(site: Site, place: str) -> None:
    _, *arguments = commands()[place]
    site.serve("", "worker", [sys.executable, *arguments], [])
    shell(site, "note.delay('called').get(timeout=30)")
    assert shell(site, "print(shdicts['default'].lpop('noted'))") == "called"
    assert end(site, "worker") == 0


@pytest.mark.pages
def test_the_id_server(site: Site) -> None:
    _, *arguments = commands()["mysite-idserver.service"]
    port = site.ports["127.0.0.1:1200"]
    site.serve("", "idserver", [sys.executable, *arguments, "--port", str(port)], [])
    with IdClient([f"127.0.0.1:{port}"], timeout=2, attempts=10) as client:
        orders = [client.get("order", "shop") for _ in range(50)]
    assert len(set(orders)) == 50
    assert end(site, "idserver") == 0


def restore_redis(server: Server, snapshot: Path) -> None:
    """As the page of backups says."""
    server.kill()
    (server.folder / "appendonlydir").rename(server.folder / "old")
    shutil.copy(snapshot, server.folder / "dump.rdb")
    options, server.options = server.options, [*server.options, "--appendonly", "no"]
    server.start()
    server.call("CONFIG", "SET", "appendonly", "yes")
    until(
        lambda: (
            (server.folder / "appendonlydir").exists()
            and not server.client().info("persistence")["aof_rewrite_in_progress"]
        )
    )
    server.kill()
    server.options = options
    server.start()


@pytest.mark.pages
def test_a_restored_site(site: Site, tmp_path: Path) -> None:
    """No ID is issued again after the restore of the database, and no job is lost if Redis is restored."""
    with one("--appendonly", "yes") as server:
        with (site.folder / "mysite" / "settings.py").open("a") as file:
            file.write(f'RESTY_DJANGO["QLESS"] = {{"URL": "{server.url}", "OUTBOX": True}}\n')
        began = datetime.now(UTC)
        issued = set(shell(site, "note.delay('kept'); print(*next_ids('order', 5))").split())
        server.call("SAVE")
        snapshot = shutil.copy(server.folder / "dump.rdb", tmp_path / "redis.rdb")
        database = site.folder / "db.sqlite3"
        with closing(sqlite3.connect(database)) as live, closing(sqlite3.connect(tmp_path / "db.sqlite3")) as copy:
            live.backup(copy)
        issued |= set(shell(site, "note.delay('late'); print(*next_ids('order', 900)[-5:])").split())

        restore_redis(server, Path(snapshot))
        since = f"{began:%Y-%m-%d %H:%M:%S}"
        site.finish([sys.executable, "manage.py", "qless_outbox", "--redeliver-since", since])
        site.finish([sys.executable, "manage.py", "runqless", "--queues", "default", "--burst"])
        noted = shell(site, "print(*(shdicts['default'].lpop('noted') for _ in range(3)))")
        assert sorted(noted.split()) == ["None", "kept", "late"]

        for path in site.folder.glob("db.sqlite3*"):
            path.unlink()
        shutil.copy(tmp_path / "db.sqlite3", database)
        [raising] = [block.text for block in page("docs/production/backup.md").blocks if block.language == "python"]
        shell(site, raising)
        again = set(shell(site, "print(*next_ids('order', 1000))").split())
        assert len(issued) == 10
        assert len(again) == 1000
        assert not issued & again


SMALL = """
set -e
mount -t tmpfs -o size=$1 tmpfs /dev/shm
mount -t tmpfs tmpfs /mnt
mount -o remount,bind,ro /
mount -o remount,bind,ro /tmp 2>/dev/null || true
! touch "$2/file" 2>/dev/null
cd "$2"
"$3" manage.py migrate -v 0
"$3" manage.py resty_check --only dictionaries --json
ls /dev/shm /mnt
"""


@pytest.mark.pages
@pytest.mark.parametrize(("size", "level", "moved"), [("128m", "ok", 0), ("64m", "warning", 1)])
def test_a_read_only_root_and_a_small_memory(site: Site, size: str, level: str, moved: int) -> None:
    """As in a container: with the space of compose.yaml, and with Docker's default."""
    with (site.folder / "mysite" / "settings.py").open("a") as file:
        file.write('DATABASES["default"]["NAME"] = "/mnt/db.sqlite3"\n')
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    done = subprocess.run(
        [*unshare, "sh", "-c", SMALL, "small", size, str(site.folder), sys.executable],
        env={**site.environment, "TMPDIR": "/mnt", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report, _, folders = done.stdout.partition("/shm:")
    levels = [item["level"] for item in json.loads(report.removesuffix("/dev"))["findings"]]
    assert levels.count("warning") == moved
    assert set(levels) <= {"ok", level}
    assert folders.partition("/mnt:")[2].count("resty-") == moved
