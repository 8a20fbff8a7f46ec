"""Processes of the fork server behave like a new interpreter.

Private names: `processes.server._server` and `_control`, through which a test kills or confuses the fork server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import processes

PYTHON = sys.executable


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text("import sys; print(__name__, __file__, sys.argv[1:], sys.path[0])")
    return path


def code(text: str, **options: str) -> subprocess.CompletedProcess[str]:
    return processes.run([PYTHON, "-c", textwrap.dedent(text)], env={**os.environ, **options})


def test_a_process_has_exit_codes_and_streams_like_an_interpreter() -> None:
    assert code("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)").returncode == 3
    ended = processes.run([PYTHON, "-c", "print(input().upper())"], input="text\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "TEXT\n", "")
    failed = code("1 / 0")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    with pytest.raises(subprocess.CalledProcessError):
        processes.run([PYTHON, "-c", "raise SystemExit(2)"], check=True)


def test_a_script_and_a_module_are_main(script: Path, tmp_path: Path) -> None:
    assert processes.run([PYTHON, str(script), "a", "b"]).stdout.strip() == f"__main__ {script} ['a', 'b'] {tmp_path}"
    assert processes.run([PYTHON, "-m", "script", "c"], cwd=tmp_path).stdout.startswith(f"__main__ {script} ['c']")


def test_settings_come_from_the_environment() -> None:
    """Nothing of the environment of the tests or of another process is visible."""
    text = """
        import os, sys
        from django.conf import settings
        print(settings.configured, "pytest" in sys.modules, settings.DATABASES["default"]["NAME"], os.environ["MINE"])
    """
    for name in ("one", "two"):
        ended = code(text, RESTY_TEST_DB="sqlite", RESTY_DB_NAME=name, MINE=name)
        assert ended.stdout == f"False False {name} {name}\n", ended.stderr


def test_a_process_ends_like_an_interpreter() -> None:
    """First threads end, then functions of atexit run, then printed text is written."""
    ended = code("""
        import atexit, threading, time
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        print("main")
    """)
    assert ended.stdout == "main\nthread\nat exit\n"


def test_warnings_follow_the_option() -> None:
    text = "import warnings; warnings.warn('careful')"
    assert "careful" in code(text).stderr
    assert code(text, PYTHONWARNINGS="ignore").stderr == ""
    assert processes.run([PYTHON, "-W", "error", "-c", text]).returncode == 1


def test_a_process_ends_by_a_signal_or_handles_it() -> None:
    process = processes.Process([PYTHON, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    process.kill()  # which has ended already
    process.stdout.close()
    handler = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(7))"
    text = f"{handler}; print('up', flush=True); time.sleep(60)"
    with processes.Process([PYTHON, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7


def test_a_process_has_a_separate_session() -> None:
    text = "import os; print(os.getpgrp() == os.getpid())"
    for new_session in (False, True):
        process = processes.Process(
            [PYTHON, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=new_session
        )
        assert process.communicate(timeout=30) == (f"{new_session}\n", None)


def test_a_process_that_ended_is_gone() -> None:
    process = processes.Process([PYTHON, "-c", "pass"])
    assert process.wait(30) == 0
    end = time.monotonic() + 30
    while Path(f"/proc/{process.pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_server_that_has_ended_is_replaced() -> None:
    assert processes.run([sys.executable, "-c", "print(1)"]).stdout == "1\n"
    assert processes.server._server is not None
    processes.server._server.kill()
    processes.server._server.wait()
    assert processes.run([sys.executable, "-c", "print(2)"]).stdout == "2\n"
    assert processes.server.failures.pop() == "", "a killed process says nothing"


def test_the_message_of_a_server_that_fails_is_kept() -> None:
    assert processes.run([sys.executable, "-c", "print(1)"]).stdout == "1\n"
    assert processes.server._control is not None
    processes.server._control.sendall(b"no count")
    assert processes.server._server is not None
    assert processes.server._server.wait(30) == 1
    assert processes.run([sys.executable, "-c", "print(2)"]).stdout == "2\n"
    assert "ValueError" in processes.server.failures.pop()
