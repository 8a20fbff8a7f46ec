"""The end of a process, forks, and a site's settings. Each test starts separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import processes
from tests.docs_reader import ROOT, page
from tests.logserver import LogServer, free_port, until

BEGIN = """
import atexit, json, logging, os, sys, threading, time
late = logging.getLogger("late")
atexit.register(lambda: late.handlers and late.info("logged at the very end"))
from resty_django.logs import SocketHandler
handler = SocketHandler(**json.loads(sys.argv[1]))
logger = logging.getLogger("shop")
logger.setLevel("INFO")
logger.addHandler(handler)
"""

WITH_THREADS = "ignore:This process:DeprecationWarning"
"""Python 3.12 and newer warn of a fork next to threads, which is tested here."""


def run(script: str, server: LogServer, seconds: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
    arguments = json.dumps({**server.options, **options}, default=str)
    return processes.run(
        [sys.executable, "-W", WITH_THREADS, "-c", BEGIN + script, arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=ROOT,
    )


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise SystemExit", "1 / 0"])
def test_waiting_messages_are_shipped_at_the_end_of_the_process(tcp: LogServer, end: str) -> None:
    run(f"logger.info('one')\nlogger.info('two')\n{end}", tcp)
    until(lambda: tcp.lines() == ["one", "two"])


def test_messages_logged_while_the_process_ends_are_shipped_immediately(tcp: LogServer) -> None:
    script = "late.setLevel('INFO')\nlate.addHandler(handler)\nlogger.info('one')"
    assert run(script, tcp).stderr == ""
    until(lambda: tcp.lines() == ["one", "logged at the very end"])


def test_the_first_message_is_shipped_even_if_no_thread_can_start(tcp: LogServer) -> None:
    script = "late.setLevel('INFO')\nlate.addHandler(handler)\natexit.register(lambda: late.info('logged before that'))"
    assert run(script, tcp).stderr == ""
    until(lambda: tcp.lines() == ["logged before that", "logged at the very end"])


def test_a_server_that_is_down_does_not_delay_the_exit_and_the_loss_is_logged(tcp: LogServer) -> None:
    tcp.kill()
    started = time.monotonic()
    script = "import resty_django.logs.handler as module\nmodule.FLUSH_SECONDS = 60\n"  # `close` comes first
    ended = run(f"{script}logger.info('one')\nlogger.info('two')", tcp, 100, retry_interval=60_000)
    assert time.monotonic() - started < 30  # the pauses between the attempts are left out
    assert ended.returncode == 0
    assert ended.stderr.strip() == f"2 log messages for tcp://127.0.0.1:{tcp.port} are lost"


def test_a_server_that_never_answers_holds_up_the_end_for_seconds_at_most(tmp_path: Path) -> None:
    with LogServer("deaf", tmp_path) as server:
        script = "for _ in range(200): logger.info('x' * 100_000)\nstarted = time.monotonic()\n"
        script += "atexit.register(lambda: print(time.monotonic() - started))"
        script = script.replace("import", "") + "\nhandler.close()\nprint(time.monotonic() - started)"
        ended = run(script, server, timeout=600_000, drop_limit=64 * 1024 * 1024)
    assert 4 < float(ended.stdout.split()[0]) < 40
    assert "log messages for tcp://127.0.0.1:" in ended.stderr


def test_a_child_starts_with_an_empty_buffer_and_nothing_is_sent_twice(stream: LogServer) -> None:
    script = """
logger.info("of the parent, before")
for number in range(5):
    if os.fork() == 0:
        logger.info("of child %d", number)
        sys.exit()
for _ in range(5):
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
logger.info("of the parent, after")
"""
    ended = run(script, stream)
    assert (ended.returncode, ended.stderr) == (0, "")
    children = [f"of child {number}" for number in range(5)]
    lines = until(lambda: len(stream.lines()) == 7 and stream.lines())
    assert sorted(lines[:5]) == children
    assert lines[5:] == ["of the parent, before", "of the parent, after"]


def test_a_fork_under_load_leaves_each_its_own(stream: LogServer) -> None:
    """As a web server does that loads the site before it forks, with a connection open and the thread at work."""
    script = """
def log(name, count):
    for number in range(count):
        logger.info("%s %d", name, number)

log("before", 500)
thread = threading.Thread(target=log, args=("other", 3000))
thread.start()
for name in "ab":
    if os.fork() == 0:
        log(name, 1000)
        handler.close()
        os._exit(0)
thread.join()
for _ in "ab":
    os.wait()
"""
    ended = run(script, stream, resend=60_000, drop_limit=16 * 1024 * 1024)
    assert ended.returncode == 0
    until(lambda: len(stream.lines()) == 5500)
    time.sleep(0.2)
    lines = stream.lines()
    assert max(Counter(lines).values()) == 1
    for name, count in (("before", 500), ("other", 3000), ("a", 1000), ("b", 1000)):
        assert [line for line in lines if line.split()[0] == name] == [f"{name} {number}" for number in range(count)]


def test_the_settings_of_the_documentation_ship(tmp_path: Path, tcp: LogServer) -> None:
    block = next(block for block in page("docs/reference/request-ids/logs.md").blocks if "LOGGING" in block.text)
    settings = block.text.replace('"logs.example.org"', '"127.0.0.1"').replace("5170", str(tcp.port))
    assert str(tcp.port) in settings
    (tmp_path / "site_with_logs.py").write_text(settings)
    script = (
        "import django, logging; django.setup(); logging.getLogger('shop').warning('shipped');"
        "from resty_django.logs import handlers; print([handler.options.address for handler in handlers()])"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "site_with_logs", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    ended = processes.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    assert ended.stdout.strip() == f"['tcp://127.0.0.1:{tcp.port}']"
    (line,) = until(tcp.lines)
    assert line.endswith("shipped")


def test_wrong_options_in_the_settings_are_reported() -> None:
    script = (
        "import logging.config; logging.config.dictConfig({'version': 1, 'handlers': {'server': "
        "{'class': 'resty_django.logs.SocketHandler', 'host': 'a', 'port': %d, 'flush_limit': 9_999_999}}})"
    )
    ended = processes.run([sys.executable, "-c", script % free_port()], capture_output=True, text=True, cwd=ROOT)
    assert "BadOption: flush_limit (9999999) must be less than drop_limit (1048576)." in ended.stderr
