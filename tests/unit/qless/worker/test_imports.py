"""Each module of the job queue can be the first one that a process imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forkserver import ROOT

pytestmark = pytest.mark.slow

IMPORT_EACH = """
import os, pkgutil, traceback
import django
django.setup()
import resty_django.qless
for module in pkgutil.walk_packages(resty_django.qless.__path__, "resty_django.qless."):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        continue
    try:
        __import__(module.name)
    except ImportError as error:
        print(f"{module.name}: {error}", flush=True)
    finally:
        os._exit(0)
"""
SETTINGS = """
SECRET_KEY = "imports"
USE_TZ = True
INSTALLED_APPS = [
    *(f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "messages", "sessions")),
    *("resty_django", "resty_django.qless"),
]
"""


def test_no_module_needs_that_another_is_imported_first(tmp_path: Path) -> None:
    """As in `manage.py runqless` of a site that has imported nothing of the worker."""
    (tmp_path / "imports_settings.py").write_text(SETTINGS)
    environment = {"DJANGO_SETTINGS_MODULE": "imports_settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout == ""
