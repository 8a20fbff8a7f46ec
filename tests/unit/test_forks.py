"""Hooks around a fork."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os
from resty_django.processes.forks import after_fork

calls = []
after_fork(lambda: calls.append("first"))
after_fork(lambda: calls.append("second"), before=lambda: calls.append("before"), parent=lambda: calls.append("parent"))
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
print(*calls)
"""


def test_hooks_are_called_on_their_side_of_a_fork_in_the_order_of_registration() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["before first second", "before parent"]
