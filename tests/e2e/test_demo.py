"""`manage.py demo` as a person meets it: it starts, answers on all its doors, and ends without leaving anything."""

from __future__ import annotations

import base64
import http.cookiejar
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from project import ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class Demo:
    """The demo on free ports, with its data in a folder of its own, and without visitors unless asked for."""

    def __init__(self, var: pathlib.Path, *arguments: str, visitors: bool = False) -> None:
        self.http = ports.find_free(HOST)
        self.udp = ports.find_free(HOST, socket.SOCK_DGRAM)
        self.redis = ports.find_free(HOST)
        self.log = var / "demo.log"
        numbers = {"--http-port": self.http, "--udp-port": self.udp, "--redis-port": self.redis}
        options = [part for option, port in numbers.items() for part in (option, str(port))]
        options += [] if visitors else ["--no-traffic"]
        env = {key: value for key, value in os.environ.items() if key not in {"RESTY_TEST_DB", "REDIS_URL"}}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *options, *arguments],
                cwd=ROOT,
                env={**env, "RESTY_VAR": str(var), "RESTY_DICTS": str(var / "dictionaries")},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)

    def ask(self, **request: object) -> dict[str, object]:
        reply = ports.ask_ids(HOST, self.udp, {"app_name": "shop", **request}, timeout=5)
        assert reply is not None, self.text()
        return reply

    def descendants(self) -> dict[int, str]:
        """Command lines of all processes below the demo."""
        parents, found = {}, {}
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
                found[pid] = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        below = self.descendants()
        self.process.send_signal(number)
        assert self.process.wait(40) == 0, self.text()
        assert {pid: line for pid, line in below.items() if pathlib.Path(f"/proc/{pid}").exists()} == {}


@pytest.fixture
def demo(tmp_path: pathlib.Path) -> Iterator[Demo]:
    running = Demo(tmp_path)
    try:
        running.wait_for("Ready.")
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.wait(40)


def browser() -> urllib.request.OpenerDirector:
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)


def test_the_demo_answers_on_every_door_and_ends_cleanly(demo: Demo, tmp_path: pathlib.Path) -> None:
    site = f"http://{HOST}:{demo.http}"
    person = browser()

    with person.open(f"{site}/") as reply:
        home = page = reply.read().decode()
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r"<script(?! src=)|<style|style=|onclick=", page)
    for sheet in re.findall(r'href="(/static/[^"]+)"', page):
        assert person.open(site + sheet).status == 200
    assert person.open(f"{site}/static/admin/css/base.css").status == 200

    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found is not None
    form = {"csrfmiddlewaretoken": found[1], "item": "Tea", "quantity": "2"}
    with person.open(f"{site}/", urllib.parse.urlencode(form).encode()) as reply:
        page = reply.read().decode()
        assert re.fullmatch(rf"{site}/orders/O\d{{6}}000000/", reply.url)
    assert re.search(r"INV-\d{4}-000001", page)
    placed_by = re.search(r'request <span class="number">([0-9a-v]{20})</span>', page)
    assert placed_by is not None
    demo.wait_for(f" INFO {placed_by[1]} project.shop: order ")

    first = demo.ask(action="get", rule_name="order_id", app_name="till", seq=7)
    assert (first["code"], first["seq"]) == (0, 7)
    assert re.fullmatch(r"O\d{12}", str(first["data"]))
    for rule, pattern in {"o2o": r"\d{9}", "customer": r"C\d{9}", "ticket": r"T\d{8}-\d{5}"}.items():
        reply_ = demo.ask(action="get", rule_name=rule)
        assert reply_["code"] == 0, reply_
        assert re.fullmatch(pattern, str(reply_["data"])), reply_
    assert demo.ask(action="get", rule_name="invoice")["code"] == -7

    call = urllib.request.Request(f"{site}/api/ids/rules/order_id/ids/", b'{"app": "web", "count": 3}')  # noqa: S310
    call.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError) as refused, person.open(call):
        pass
    assert refused.value.code in {401, 403}
    refused.value.close()
    call.add_header("Authorization", "Basic " + base64.b64encode(b"admin:admin").decode())
    with person.open(call) as reply:
        assert [number[-6:] for number in json.load(reply)["ids"]] == ["000000", "000001", "000002"]
    with person.open(f"{site}/api/schema/") as reply:
        assert "/api/ids/rules/{name}/ids/" in reply.read().decode()

    assert "/admin/resty_limits/limitpolicy/" in demo.text()
    assert 'href="/api/prices/"' in home
    assert "60 requests in any minute" in home
    for _ in range(10):
        with person.open(f"{site}/api/prices/") as reply:
            assert reply.headers["X-RateLimit-Limit"] == "10"
    with pytest.raises(urllib.error.HTTPError) as refused, person.open(f"{site}/api/prices/"):
        pass
    assert (refused.value.code, refused.value.headers["X-RateLimit-Remaining"]) == (429, "0")
    assert 0 < int(refused.value.headers["Retry-After"]) <= 60
    refused.value.close()

    with socket.create_connection((HOST, demo.redis), timeout=5) as valkey:
        valkey.sendall(b"PING\r\n")
        assert valkey.recv(16) == b"+PONG\r\n"

    demo.end(signal.SIGINT)
    assert "Traceback" not in demo.text()

    again = Demo(tmp_path)
    try:
        again.wait_for("Ready.")
        second = again.ask(action="get", rule_name="order_id", app_name="till")
        assert int(str(second["data"])[-6:]) == int(str(first["data"])[-6:]) + 1
        again.end(signal.SIGTERM)
    finally:
        again.process.kill()
        again.process.wait()


def test_visitors_come_and_can_be_sent_away(tmp_path: pathlib.Path) -> None:
    demo = Demo(tmp_path, visitors=True)
    site, person = f"http://{HOST}:{demo.http}/", browser()

    def page(data: dict[str, str] | None = None, path: str = "") -> str:
        with person.open(site + path, None if data is None else urllib.parse.urlencode(data).encode()) as reply:
            return str(reply.read().decode())

    def orders() -> int:
        return demo.text().count("project.shop: order ")

    try:
        demo.wait_for("Ready.")
        demo.wait_for("project.shop: order ")
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page())
        assert found is not None
        assert "Let them come" in page({"csrfmiddlewaretoken": found[1], "on": "0"}, "visitors/")
        time.sleep(2)  # for visits under way
        before = orders()
        time.sleep(5)
        assert orders() == before
        assert "Send them away" in page({"csrfmiddlewaretoken": found[1], "on": "1"}, "visitors/")
        deadline = time.monotonic() + 60
        while orders() == before:
            assert time.monotonic() < deadline, demo.text()
            time.sleep(0.2)
        demo.end()
    finally:
        demo.process.kill()
        demo.process.wait()


def test_a_server_that_dies_is_started_again(demo: Demo) -> None:
    (pid,) = [pid for pid, line in demo.descendants().items() if "runidserver" in line]
    os.kill(pid, signal.SIGKILL)
    demo.wait_for("ids was ended by SIGKILL; it starts again in")
    deadline = time.monotonic() + 30
    while ports.ask_ids(HOST, demo.udp, {"action": "monitor", "rule_name": "o2o", "app_name": ""}) is None:
        assert time.monotonic() < deadline, demo.text()
        time.sleep(0.2)
    demo.end()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_nothing_is_left_when_the_demo_is_killed(demo: Demo) -> None:
    below = demo.descendants()
    assert len(below) >= 3
    demo.process.kill()
    demo.process.wait()
    deadline = time.monotonic() + 20
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < deadline, below
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
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind((HOST, 0))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        port = taken.getsockname()[1]
        demo = Demo(tmp_path, option, str(port))
        assert demo.process.wait(60) != 0
    expected = f"CommandError: {name} port {port} on {HOST} is in use; choose another with {option}."
    assert demo.text().strip() == expected
