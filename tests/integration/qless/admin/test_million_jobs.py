"""Pages with a million jobs take hardly more of the server than with a thousand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[4]
GROWING = {"search": 1400}
"""Pages whose commands grow up to a bound, by the beginning of their name."""


def test_pages_with_a_million_jobs(tmp_path: Path) -> None:
    """The commands that the server runs, and its CPU time, which do not depend on what else the machine does."""
    results = tmp_path / "figures.json"
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("job_pages.py")), "1000", "1000000", "100", str(results)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings"},
        check=True,
    )
    figures = json.loads(results.read_text())
    few, many = figures["few"], figures["many"]
    assert len(many) > 30
    assert {name: page["server_ms"] for name, page in many.items() if page["server_ms"] > 10} == {}
    too_many = {}
    for name, page in many.items():
        most = next((most for beginning, most in GROWING.items() if name.startswith(beginning)), None)
        if page["commands"] > (most or 1.5 * few[name]["commands"]):
            too_many[name] = (few[name]["commands"], page["commands"])
    assert too_many == {}
