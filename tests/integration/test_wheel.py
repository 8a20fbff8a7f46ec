"""The built wheel holds everything, and a bare site that has only the wheel can check and migrate."""

from __future__ import annotations

import os
import pathlib
import secrets
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_string

import pytest

import resty_django
from tests.dictionaries import remove_dictionaries

ROOT = pathlib.Path(__file__).resolve().parents[2]

SECRET_KEY = secrets.token_hex(16)
BARE_SITE = f"""
import resty_django
SECRET_KEY = "{SECRET_KEY}"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", *resty_django.ALL_APPS]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "bare.sqlite3"}}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

ISSUE_ONE = """
import django
django.setup()
import resty_django
print(resty_django.__file__)
from resty_django.ids.models import IdRule
IdRule.objects.create(name="order", source="O{counter:06d}", max_counter=999_999)
from resty_django.ids import next_id
print(next_id("order", app="shop"))
"""


def run(*command: object, cwd: pathlib.Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel, built by the declared backend as it is installed here: no network is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare_python(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A new environment with the wheel in it.

    Dependencies cannot be fetched, so a .pth file lends those that are installed here; they come after the new
    environment's own packages on the path.
    """
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def test_every_file_of_the_package_is_in_the_wheel(wheel: pathlib.Path) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "resty_django").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".pyo"}
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert sources - packed == set()
    assert "resty_django/py.typed" in packed
    assert {name.split("/")[0] for name in packed} == {
        "resty_django",
        f"resty_django-{resty_django.__version__}.dist-info",
    }


def test_the_metadata_names_version_python_and_extras(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"resty_django-{resty_django.__version__}.dist-info/METADATA").decode()
    metadata = message_from_string(text)
    assert metadata["Name"] == "resty-django"
    assert metadata["Requires-Python"] == ">=3.11"
    extras = metadata.get_all("Provides-Extra", [])
    assert {"api", "celery", "dev", "embedded", "lua", "metrics", "mysql", "redis", "speed"} <= set(extras)


@pytest.fixture
def _no_dictionaries_left() -> Iterator[None]:
    yield
    remove_dictionaries(SECRET_KEY, "bare")


@pytest.mark.usefixtures("_no_dictionaries_left")
def test_a_bare_site_checks_migrates_and_issues_an_id(bare_python: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "bare.py").write_text(BARE_SITE)
    env = {"DJANGO_SETTINGS_MODULE": "bare", "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    assert "no issues" in run(bare_python, "-m", "django", "check", "--fail-level", "WARNING", cwd=tmp_path, **env)
    run(bare_python, "-m", "django", "makemigrations", "--check", "--dry-run", cwd=tmp_path, **env)
    assert "Applying resty_ids.0001_initial... OK" in run(bare_python, "-m", "django", "migrate", cwd=tmp_path, **env)
    assert "ok" in run(bare_python, "-m", "django", "resty_check", "--only", "databases", cwd=tmp_path, **env)
    place, number = run(bare_python, "-c", ISSUE_ONE, cwd=tmp_path, **env).splitlines()
    assert pathlib.Path(place).is_relative_to(bare_python.parents[1])
    assert number == "O000000"
