"""`manage.py demo`: it starts, all of its servers answer, and it stops without leftovers."""

from __future__ import annotations

import base64
import contextlib
import http.cookiejar
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from project import memory, ports
from project.shop import parts
from tests import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.slow]


class Demo:
    """The demo on free ports, with its data in a temporary folder, and without visitors unless asked for."""

    def __init__(self, var: pathlib.Path, *arguments: str, visitors: bool = False) -> None:
        self.http = ports.find_free(HOST)
        self.udp = ports.find_free(HOST, socket.SOCK_DGRAM)
        self.redis = ports.find_free(HOST)
        self.var = var
        self.log = var / "screen.log"
        numbers = {"--http-port": self.http, "--udp-port": self.udp, "--redis-port": self.redis}
        options = [argument for option, port in numbers.items() for argument in (option, str(port))]
        options += [] if visitors else ["--no-traffic"]
        unset = {"RESTY_TEST_DB", "REDIS_URL", "RESTY_DICTS", "DJANGO_SECRET_KEY"}  # so its memory is not the tests'
        env = {key: value for key, value in os.environ.items() if key not in unset}
        with self.log.open("wb") as output:
            self.process = processes.Process(
                [sys.executable, "manage.py", "demo", *options, *arguments],
                cwd=ROOT,
                env={**env, "RESTY_VAR": str(var)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, log: str = "screen.log", seconds: float = 60.0) -> None:
        """Wait until a file below the demo's folder contains a text; without a name: what is on the screen."""
        deadline = time.monotonic() + seconds
        while text not in (self.var / log).read_text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)

    def memory(self) -> list[pathlib.Path]:
        """Return the folders of its shared dictionaries."""
        key = self.var / "secret_key"
        candidates = memory.folders(key.read_text(), os.environ["DJANGO_SETTINGS_MODULE"]) if key.exists() else []
        return [folder for folder in candidates if folder.exists()]

    def orders(self) -> int:
        with contextlib.closing(sqlite3.connect(f"file:{self.var}/db.sqlite3?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM shop_order").fetchone()[0])

    def ask(self, **request: object) -> dict[str, object]:
        reply = ports.ask_ids(HOST, self.udp, {"app_name": "shop", **request}, timeout=5)
        assert reply is not None, self.text()
        return reply

    def descendants(self) -> dict[int, str]:
        """Return the command lines of all of the demo's descendants."""
        parents, commands = {}, {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
        for pid in parents:
            above = pid
            while above in parents and above != self.process.pid:
                above = parents[above]
            if above == self.process.pid != pid:
                commands[pid] = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return commands

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        below = self.descendants()
        self.process.send_signal(number)
        assert self.process.wait(40) == 0, self.text()
        assert {pid: line for pid, line in below.items() if pathlib.Path(f"/proc/{pid}").exists()} == {}
        assert self.memory() == []
        assert self.text().endswith("-+\nThe demo has stopped.\n")

    def kill(self) -> None:
        """Kill it, and remove its leftovers."""
        self.process.kill()
        self.process.wait()
        for folder in self.memory():
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def demos() -> Iterator[list[Demo]]:
    """Collect all demos that tests start; the last one must stop cleanly."""
    started: list[Demo] = []
    try:
        yield started
        if started and started[-1].process.poll() is None:
            started[-1].end(signal.SIGTERM)
    finally:
        for demo in started:
            demo.kill()


@pytest.fixture
def demo(demos: list[Demo], tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Return a demo that is ready: the running one, unless an earlier test stopped it."""
    if not demos or demos[-1].process.poll() is not None:
        demos.append(Demo(tmp_path_factory.mktemp("demo")))
    demos[-1].wait_for("Ready.")
    return demos[-1]


def browser() -> urllib.request.OpenerDirector:
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)


def status(person: urllib.request.OpenerDirector, url: str, data: bytes | None = None) -> int:
    try:
        with person.open(url, data) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def click(person: urllib.request.OpenerDirector, site: str, token: str, action: str) -> str:
    """Press a button of the page of parts, and return that page."""
    data = urllib.parse.urlencode({"csrfmiddlewaretoken": token}).encode()
    with person.open(f"{site}/parts/{action}/", data) as reply:
        return str(reply.read().decode())


def test_every_server_of_the_demo_answers_and_all_end_cleanly(demo: Demo, demos: list[Demo]) -> None:
    site = f"http://{HOST}:{demo.http}"
    person = browser()

    with person.open(f"{site}/orders/") as reply:
        home = page = reply.read().decode()
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
    for sheet in re.findall(r'href="(/static/[^"]+)"', page):
        assert person.open(site + sheet).status == 200
    assert person.open(f"{site}/static/admin/css/base.css").status == 200

    csrf = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert csrf is not None
    form = {"csrfmiddlewaretoken": csrf[1], "item": "Tea", "quantity": "2"}
    with person.open(f"{site}/orders/", urllib.parse.urlencode(form).encode()) as reply:
        page = reply.read().decode()
        assert re.fullmatch(rf"{site}/orders/O\d{{6}}000000/", reply.url)
    assert re.search(r"INV-\d{4}-000001", page)
    placed_by = re.search(r'request <span class="number">([0-9a-v]{20})</span>', page)
    assert placed_by is not None
    demo.wait_for(f" INFO {placed_by[1]} project.shop: order ", "log/site.log")
    assert "This demo shows Django developers what resty-django does" in home

    first = demo.ask(action="get", rule_name="order_id", app_name="till", seq=7)
    assert (first["code"], first["seq"]) == (0, 7)
    assert re.fullmatch(r"O\d{12}", str(first["data"]))
    assert demo.ask(action="get", rule_name="invoice")["code"] == -7

    call = urllib.request.Request(f"{site}/api/ids/rules/order_id/ids/", b'{"app": "web", "count": 3}')  # noqa: S310
    call.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError) as refused, person.open(call):
        pass
    assert refused.value.code == 403
    refused.value.close()
    call.add_header("Authorization", "Basic " + base64.b64encode(b"admin:admin").decode())
    with person.open(call) as reply:
        assert [number[-6:] for number in json.load(reply)["ids"]] == ["000000", "000001", "000002"]
    with person.open(f"{site}/api/schema/") as reply:
        assert "/api/ids/rules/{name}/ids/" in reply.read().decode()

    box = demo.text().partition("Ready.")[2]
    for address in (
        f"{site}/ ",
        f"{site}/admin/ ",
        f"udp://{HOST}:{demo.udp} ",
        "user admin, password admin ",
        "log/site.log, ",
    ):
        assert address in box
    assert demo.text().endswith("-+\n"), "something follows the box"
    assert 'href="/api/prices/"' in home
    assert 'href="/price-list/"' in home
    with person.open(f"{site}/admin/login/") as reply:
        csrf = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', reply.read().decode())
    assert csrf is not None
    guess = urllib.parse.urlencode({"csrfmiddlewaretoken": csrf[1], "username": "guest", "password": "wrong"}).encode()
    assert [status(person, f"{site}/admin/login/", guess) for _ in range(6)] == [200] * 5 + [429]

    with socket.create_connection((HOST, demo.redis), timeout=5) as valkey:
        valkey.sendall(b"PING\r\n")
        assert valkey.recv(16) == b"+PONG\r\n"

    processes_of_the_demo = {"ID server", "web site", "worker"}
    assert 'href="/parts/"' in home
    effects = {action: click(person, site, form["csrfmiddlewaretoken"], action) for action in parts.ACTIONS}
    assert len(set(re.findall(r"O\d{12}", effects["ids"]))) == 3, effects["ids"]
    assert "8 of 20 requests have passed" in effects["limits"]
    for action in ("greet", "look-up", "add"):
        assert {name for name in processes_of_the_demo if f"<td>{name}" in effects[action]} == processes_of_the_demo
    assert sorted(re.findall(r'(\d+)</td><td class="number">3</td>', effects["add"])) == ["1", "2", "3"]
    deadline = time.monotonic() + 60
    while not re.search(r"<strong>complete</strong>.*run 1: .*run 2: the mail is sent", effects["job"], re.DOTALL):
        assert time.monotonic() < deadline, effects["job"]
        time.sleep(0.2)
        with person.open(f"{site}/parts/") as reply:
            effects["job"] = reply.read().decode()

    assert demo.memory() != []
    demo.end(signal.SIGINT)
    for log in ("site", "ids", "worker"):
        assert "Traceback" not in (demo.log.parent / "log" / f"{log}.log").read_text()

    restarted = Demo(demo.log.parent)
    demos.append(restarted)
    restarted.wait_for("Ready.")
    second = restarted.ask(action="get", rule_name="order_id", app_name="till")
    assert int(str(second["data"])[-6:]) == int(str(first["data"])[-6:]) + 1


def test_visitors_come_and_can_be_turned_off(tmp_path: pathlib.Path) -> None:
    demo = Demo(tmp_path, visitors=True)
    site, person = f"http://{HOST}:{demo.http}/", browser()

    def page(data: dict[str, str] | None = None, path: str = "") -> str:
        with person.open(site + path, None if data is None else urllib.parse.urlencode(data).encode()) as reply:
            return str(reply.read().decode())

    def wait_for_orders(count: int) -> None:
        deadline = time.monotonic() + 60
        while demo.orders() < count:
            assert time.monotonic() < deadline, demo.text()
            time.sleep(0.2)

    try:
        demo.wait_for("Ready.")
        wait_for_orders(1)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page())
        assert token is not None
        assert "Turn visitors on" in page({"csrfmiddlewaretoken": token[1], "on": "0"}, "visitors/")
        time.sleep(2)  # for visits under way
        before = demo.orders()
        time.sleep(5)
        assert demo.orders() == before
        assert "Turn visitors off" in page({"csrfmiddlewaretoken": token[1], "on": "1"}, "visitors/")
        wait_for_orders(before + 1)
        assert "order" not in (tmp_path / "log" / "site.log").read_text(), "requests of visitors are logged"
        demo.end()
    finally:
        demo.kill()


def test_a_server_that_dies_is_started_again(demo: Demo) -> None:
    (pid,) = [pid for pid, line in demo.descendants().items() if "runidserver" in line]
    os.kill(pid, signal.SIGKILL)
    demo.wait_for("ids was ended by SIGKILL; restarting it in ")  # at once where it had run for a while
    assert f" s. See {demo.var}/log/ids.log." in demo.text()
    deadline = time.monotonic() + 30
    while ports.ask_ids(HOST, demo.udp, {"action": "monitor", "rule_name": "o2o", "app_name": ""}) is None:
        assert time.monotonic() < deadline, demo.text()
        time.sleep(0.2)
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(40) == 0, demo.text()
    assert demo.memory() == []


def test_a_second_demo_with_the_same_data_is_refused(tmp_path: pathlib.Path) -> None:
    with memory.running(tmp_path):
        second = Demo(tmp_path)
        assert second.process.wait(60) != 0
    assert second.text().strip() == (
        f"CommandError: The demo is already running with its data in {tmp_path}. "
        "Stop it, or set RESTY_VAR to another folder."
    )


def test_a_signal_during_the_preparations_leaves_nothing(tmp_path: pathlib.Path) -> None:
    demo = Demo(tmp_path)
    try:
        demo.wait_for("Preparing")
        demo.process.terminate()
        assert demo.process.wait(40) == 0, demo.text()
        assert demo.memory() == []
        assert "Traceback" not in demo.text()
    finally:
        demo.kill()


def test_nothing_is_left_when_the_demo_is_killed(demo: Demo) -> None:
    below = demo.descendants()
    assert len(below) >= 3
    demo.process.kill()
    demo.process.wait()
    deadline = time.monotonic() + 60  # a worker whose job has just ended waits for its server for the grace period
    while left := {pid: line for pid, line in below.items() if pathlib.Path(f"/proc/{pid}").exists()}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("option", "kind", "name"),
    [
        ("--http-port", socket.SOCK_STREAM, "TCP"),
        ("--udp-port", socket.SOCK_DGRAM, "UDP"),
        ("--redis-port", socket.SOCK_STREAM, "TCP"),
    ],
)
def test_a_port_in_use_is_named_with_its_option(
    tmp_path: pathlib.Path, option: str, kind: socket.SocketKind, name: str
) -> None:
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind((HOST, 0))
        if kind is socket.SOCK_STREAM:
            listener.listen()
        port = listener.getsockname()[1]
        demo = Demo(tmp_path, option, str(port))
        assert demo.process.wait(60) != 0
    expected = f"CommandError: {name} port {port} on {HOST} is in use. Choose another port with {option}."
    assert demo.text().strip() == expected
