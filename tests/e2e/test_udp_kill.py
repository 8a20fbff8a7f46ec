"""The ID service over UDP never issues an ID twice, even if the server is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import processes

if TYPE_CHECKING:
    from conftest import Site

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENT = """
import json, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
port, path, app = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect(("127.0.0.1", port))
sock.settimeout(0.05)
seq = 0
with open(path, "w", buffering=1 << 16) as out:
    while True:
        seq += 1
        try:
            sock.send(json.dumps({"action": "get", "rule_name": "order", "app_name": app, "seq": seq}).encode())
            while True:
                reply = json.loads(sock.recv(65535))
                if reply["code"] == 0:
                    out.write(reply["data"] + "\\n")
                if reply.get("seq") == seq:
                    break
        except (TimeoutError, ConnectionRefusedError):
            out.flush()
            time.sleep(0.01)
"""


def issued(paths: list[Path]) -> list[str]:
    """Return the IDs in complete lines of the clients' files."""
    return [line for path in paths for line in path.read_text().rpartition("\n")[0].splitlines()]


def kill_and_restart(site: Site, tmp_path: Path, port: int, times: int, *options: str) -> list[str]:
    """Four clients ask for one name while the server is killed and started again; all IDs that they received."""
    paths = [tmp_path / f"client-{n}" for n in range(4)]
    server = site.serve(port, *options)
    clients = [subprocess.Popen([sys.executable, "-c", CLIENT, str(port), str(path), "shop"]) for path in paths]
    try:
        for n in range(times):
            time.sleep(0.15 + 0.05 * (n % 5))
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = site.serve(port, *options)
        time.sleep(0.5)
    finally:
        for client in clients:
            client.terminate()
        for client in clients:
            client.wait()
    return issued(paths)


def check(ids: list[str], times: int) -> None:
    assert len(ids) > 200 * times, "the clients received too little to prove anything"
    assert len(set(ids)) == len(ids)


RULE = {
    "name": "order",
    "source": "O{now:%y%m%d}{counter:08d}",
    "max_counter": 99_999_999,
    "reset_seconds": 86_400,
    "segment_size": 200,
}


def test_no_id_comes_twice_when_the_server_is_killed(site: Site, tmp_path: Path, udp_port: int) -> None:
    site.rule(**RULE)
    check(kill_and_restart(site, tmp_path, udp_port, 3), 3)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "two processes"])
def test_no_id_comes_twice_in_twenty_kills(site: Site, tmp_path: Path, udp_port: int, options: tuple[str, ...]) -> None:
    site.rule(**RULE)
    check(kill_and_restart(site, tmp_path, udp_port, 20, *options), 20)


def test_a_clean_stop_leaves_no_gap(site: Site, tmp_path: Path, udp_port: int) -> None:
    site.rule(**RULE)
    paths = []
    for n in range(2):
        server = site.serve(udp_port)
        path = tmp_path / f"client-{n}"
        paths.append(path)
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(udp_port), str(path), "shop"])
        time.sleep(0.6)
        client.terminate()
        client.wait()
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    numbers = sorted(int(issued_id[-8:]) for issued_id in issued(paths))
    assert len(set(numbers)) == len(numbers)
    # A client that is ended between a reply and its line loses that line, no more.
    assert len(numbers) >= max(numbers) + 1 - 2


def test_a_killed_child_is_started_again(site: Site, tmp_path: Path, udp_port: int) -> None:
    site.rule(**RULE)
    server = site.serve(udp_port, "--processes", "2")
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    assert len(children) == 2
    path = tmp_path / "client"
    path.touch()
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(udp_port), str(path), "shop"])
    try:
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        until = time.monotonic() + 20
        after: set[str] = set()
        while len(after - set(children)) < 2 or len(issued([path])) < 300:
            assert time.monotonic() < until, after
            time.sleep(0.05)
            after = set(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split())
    finally:
        client.terminate()
        client.wait()
    assert len(after) == 2
    assert not after & set(children)
    check(issued([path]), 1)


def test_children_end_with_a_killed_parent(site: Site, udp_port: int) -> None:
    site.rule(**RULE)
    server = site.serve(udp_port, "--processes", "2")
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    server.send_signal(signal.SIGKILL)
    server.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_port_in_use_is_named(site: Site, udp_port: int) -> None:
    site.serve(udp_port)
    for options in ((), ("--processes", "2")):
        second = processes.run(
            [sys.executable, "manage.py", "runidserver", "--port", str(udp_port), *options],
            env=site.env,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert second.returncode == 1
        assert f"UDP port {udp_port} of 127.0.0.1 is in use. Choose another with --port" in second.stderr


def test_sigusr1_prints_the_figures(site: Site, udp_port: int) -> None:
    site.rule(**RULE)
    server = site.serve(udp_port)
    server.send_signal(signal.SIGUSR1)
    time.sleep(0.6)
    server.send_signal(signal.SIGTERM)
    printed = server.communicate(timeout=10)[0]
    assert printed.count("requests/s") == 2
    assert "errors" in printed
    assert "bad_request" in printed
