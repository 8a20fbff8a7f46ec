"""The projects of docs/coming-from/: a site with the files that a page shows for one side of a port.

The comment before a block names its file: `shop/urls.py` belongs to both sides, `after/shop/views.py` to the port, and
`before/shop/views.py` or `before-PEER/shop/views.py` to a project that uses the other package.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command

from tests.dictionaries import remove_dictionaries
from tests.docs_reader import ROOT, page

SET_UP = """
import sys
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("check", fail_level="WARNING", stdout=sys.stderr)
"""


@dataclass(frozen=True)
class PortedSite:
    """A site in a folder, for the Python that runs it."""

    folder: Path
    python: str = sys.executable

    @property
    def environment(self) -> dict[str, str]:
        path = [self.folder, ROOT] if self.python == sys.executable else [self.folder]
        return {
            **{name: os.environ[name] for name in ("PATH", "COVERAGE_PROCESS_START") if name in os.environ},
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "DJANGO_SETTINGS_MODULE": "mysite.settings",
        }

    def visit(self, code: str) -> tuple[str, str]:
        """Run code in the site, whose `manage.py check` has no warning; return its output and its errors."""
        command = [self.python, "-c", SET_UP + code]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr


@contextmanager
def ported_site(
    folder: Path, page_name: str, side: str, replacements: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[PortedSite]:
    """Make a project `mysite` with an empty app `shop`, and with the files of the page for this side."""
    call_command("startproject", "mysite", str(folder), verbosity=0)
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    for block in page(page_name).blocks:
        owner, _, name = block.file.partition("/")
        of_a_side = owner == "after" or re.match(r"before\b", owner)
        if not block.file or (of_a_side and owner != side):
            continue
        text = block.text
        for shown, actual in (replacements or {}).items():
            text = text.replace(shown, actual)
        path = folder / (name if of_a_side else block.file)
        path.parent.mkdir(exist_ok=True)
        with path.open("a" if block.how == "append" else "w") as file:
            file.write(f"\n{text}")
    match = re.search(r"^SECRET_KEY = ['\"](.+)['\"]$", (folder / "mysite" / "settings.py").read_text(), re.MULTILINE)
    assert match is not None
    try:
        yield PortedSite(folder, python)
    finally:
        remove_dictionaries(match[1], "mysite.settings")
