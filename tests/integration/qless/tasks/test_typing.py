"""mypy knows the arguments and results of tasks, and rejects options that do not exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forkserver import ROOT

pytestmark = pytest.mark.slow

pytest.importorskip("mypy")


@pytest.mark.timeout(600)
def test_mypy_accepts_and_rejects_calls_of_tasks() -> None:
    """Strict mode reports each `type: ignore` that hides no error, so wrong calls have to be rejected."""
    path = Path(__file__).with_name("typed.py")
    checked = subprocess.run([sys.executable, "-m", "mypy", str(path)], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
