"""The example project of docs/reference/jobs/testing.md: its tests pass in a separate project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_reader import ROOT
from tests.docs_reader import page as page_of

pytestmark = pytest.mark.slow

PAGE = "docs/reference/jobs/testing.md"


def test_tests_of_the_example_project_pass(tmp_path: Path) -> None:
    page = page_of(PAGE)
    for block in page.blocks:
        if block.file:
            path = tmp_path / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    (tmp_path / "shop/__init__.py").touch()
    (console,) = [block for block in page.blocks if block.language == "console"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RESTY_TEST"))}
    environment |= {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    outputs = []
    for command in console.commands:
        done = subprocess.run(  # noqa: S602 (the command is the page's)
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout + done.stderr)
    assert "2 passed" in outputs[0]
    assert "Ran 1 test" in outputs[1]
