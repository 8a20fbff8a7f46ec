"""The Makefile: what it installs and when, what it says where it cannot, and what `make clean` removes.

A script takes the place of Python, so that nothing is installed.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from project import memory
from resty_django.shdict.lmdb import LmdbDict, files

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = (
    "-m pytest -n auto --maxprocesses 4 --dist loadgroup -m not soak and not services and not browser and not network"
    " and not pages and not themes and not slow"
)
FILES = ("Makefile", "requirements.txt", "requirements-dev.txt", "requirements-mysql.txt")

CREATES_VENV = """\
mkdir -p "$3/bin"
cat > "$3/bin/python" <<'END'
#!/bin/sh
case "$1" in
-c) ;;
*) echo "$@" >> calls ;;
esac
END
chmod +x "$3/bin/python"
"""
LACKS_ENSUREPIP = f"""\
mkdir -p "$3/bin" "$3/lib"
ln -s {sys.executable} "$3/bin/python"
echo "The virtual environment was not created successfully because ensurepip is not"
echo "available.  On Debian/Ubuntu systems, you need to install the python3-venv package"
exit 1
"""
CREATES_VENV_WITHOUT_PIP = """\
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "No module named pip" >&2\\nexit 1\\n' > "$3/bin/python"
chmod +x "$3/bin/python"
"""
BREAKS = """\
mkdir -p "$3/bin"
echo "No space left on device"
exit 1
"""


class Checkout:
    """A folder with the Makefile and what it reads, and its own `python3`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in FILES:
            shutil.copy(ROOT / name, folder)
        (folder / "project").mkdir()
        for name in ("__init__.py", "memory.py"):
            shutil.copy(ROOT / "project" / name, folder / "project")
        self.python(CREATES_VENV)

    @property
    def venv(self) -> pathlib.Path:
        return self.folder / ".venv"

    def python(self, venv: str) -> None:
        """Let `python3 -m venv FOLDER` run these lines of shell."""
        program = self.programs / "python3"
        program.write_text(
            f'#!/bin/sh\nif [ "$1 $2" = "-m venv" ]; then\n{venv}exit 0\nfi\nexec {sys.executable} "$@"\n'
        )
        program.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        overridden = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "PYTHONDONTWRITEBYTECODE"}
        overridden |= {"PYTHON", "VENV", "REQUIREMENTS", "DEMO_ARGS", "PYTEST_ARGS"}
        env = {name: value for name, value in os.environ.items() if name not in overridden}
        if env.get("DJANGO_SECRET_KEY") == settings.SECRET_KEY:  # else `make clean` would free the tests' own memory
            del env["DJANGO_SECRET_KEY"]
        env["PATH"] = f"{self.programs}:{os.environ['PATH']}"
        return subprocess.run(
            ["make", "--no-print-directory", *arguments], cwd=self.folder, env=env, capture_output=True, text=True
        )

    def calls(self, *arguments: str) -> list[str]:
        """Return the commands that a successful `make` ran in the virtual environment, without the options of pip."""
        calls = self.folder / "calls"
        calls.write_text("")
        result = self.make(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        commands = calls.read_text().splitlines()
        return [
            f"install {line.rpartition(' ')[2]}" if " install " in line else line
            for line in commands
            if " uninstall " not in line
        ]

    def change(self, name: str) -> None:
        """Let a file be newer than all that was installed."""
        now = time.time()
        for path in (*map(self.folder.joinpath, FILES), *self.venv.glob(".installed-*")):
            os.utime(path, (now - 20, now - 20))
        os.utime(self.folder / name, (now - 10, now - 10))


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_demo_installs_its_own_requirements_once(checkout: Checkout) -> None:
    assert checkout.calls("demo", "DEMO_ARGS=--no-traffic") == [
        "install requirements.txt",
        "manage.py demo --no-traffic",
    ]
    assert checkout.calls("demo") == ["manage.py demo"]
    checkout.change("requirements-dev.txt")
    assert checkout.calls("demo") == ["manage.py demo"]
    checkout.change("requirements.txt")
    assert checkout.calls("demo") == ["install requirements.txt", "manage.py demo"]


def test_tests_add_their_requirements_to_the_requirements_of_the_demo(checkout: Checkout) -> None:
    assert checkout.calls("venv", "REQUIREMENTS=requirements.txt") == ["install requirements.txt"]
    assert checkout.calls("test") == ["install requirements-dev.txt", TESTS]
    assert checkout.calls("soak") == ["-m pytest -m soak"]
    assert checkout.calls("demo") == ["manage.py demo"]
    for name in ("requirements.txt", "requirements-dev.txt"):
        checkout.change(name)
        assert checkout.calls("venv") == ["install requirements-dev.txt"]
        assert checkout.calls("venv") == []


def test_an_environment_for_development_serves_the_demo_too(checkout: Checkout) -> None:
    assert checkout.calls("venv") == ["install requirements-dev.txt"]
    assert checkout.calls("demo") == ["manage.py demo"]


def test_other_requirements_go_to_another_environment(checkout: Checkout) -> None:
    arguments = ("VENV=.venv-mysql", "REQUIREMENTS=requirements-mysql.txt")
    assert checkout.calls("venv", *arguments) == ["install requirements-mysql.txt"]
    assert checkout.calls("test", *arguments) == [TESTS]
    assert not checkout.venv.exists()


@pytest.mark.parametrize("script", [LACKS_ENSUREPIP, CREATES_VENV_WITHOUT_PIP])
def test_a_python_without_pip_is_reported_with_the_missing_package(checkout: Checkout, script: str) -> None:
    checkout.python(script)
    result = checkout.make("demo")
    assert result.returncode != 0
    assert "Install the package python3-venv: sudo apt install python3-venv" in result.stderr
    assert not checkout.venv.exists()
    checkout.python(CREATES_VENV)
    assert checkout.calls("demo") == ["install requirements.txt", "manage.py demo"]


def test_another_failure_of_venv_is_shown_and_leaves_nothing(checkout: Checkout) -> None:
    checkout.python(BREAKS)
    result = checkout.make("venv")
    assert result.returncode != 0
    assert "No space left on device" in result.stderr
    assert "python3-venv" not in result.stderr
    assert not checkout.venv.exists()


def break_environment(venv: pathlib.Path, how: str) -> None:
    python = venv / "bin" / "python"
    if how == "dangling link":
        venv.symlink_to("gone")
    elif how == "file":
        venv.write_text("")
    else:
        python.parent.mkdir(parents=True)
        (venv / ".installed-requirements.txt").touch()
    if how == "failing Python":
        python.symlink_to("/bin/false")
    elif how == "removed Python":
        python.symlink_to("python3")
        python.with_name("python3").symlink_to("/usr/bin/python3.removed")


BROKEN = {
    "dangling link": "is a link to gone, which does not exist",
    "file": "is not a folder",
    "empty folder": "contains no working Python with pip",
    "failing Python": "contains no working Python with pip",
    "removed Python": "uses a Python that was removed (/usr/bin/python3.removed)",
}


@pytest.mark.parametrize(("how", "problem"), BROKEN.items())
def test_a_broken_environment_is_reported_with_its_repair(checkout: Checkout, how: str, problem: str) -> None:
    break_environment(checkout.venv, how)
    result = checkout.make("demo")
    assert result.returncode != 0
    repair = "rm -rf .venv && make demo"
    assert result.stderr.splitlines()[0] == f".venv {problem}. Remove it and start again: {repair}"
    subprocess.run(repair.partition(" && ")[0].split(), cwd=checkout.folder, check=True)
    assert checkout.calls("demo") == ["install requirements.txt", "manage.py demo"]


@pytest.mark.parametrize("how", BROKEN)
def test_clean_removes_a_broken_environment_twice_in_a_row(checkout: Checkout, how: str) -> None:
    break_environment(checkout.venv, how)
    for _ in range(2):
        result = checkout.make("clean")
        assert result.returncode == 0, result.stderr
        assert not os.path.lexists(checkout.venv)


@pytest.fixture
def dictionaries(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, pathlib.Path]]:
    """The folders of shared dictionaries of the demo, of a site whose key is in the environment, and of another."""
    keys = {name: f"tests-{secrets.token_hex(16)}" for name in ("demo", "environment", "other")}
    (checkout.folder / "var").mkdir()
    (checkout.folder / "var" / "secret_key").write_text(keys["demo"])
    folders = {}
    for name, key in keys.items():
        with override_settings(SECRET_KEY=key):
            dictionary = LmdbDict("tests", 1024 * 1024)
            dictionary.set("key", "value")
            dictionary.close()
            folders[name] = files.MEMORY_FOLDER / files.site_folder()
    monkeypatch.setenv("DJANGO_SECRET_KEY", keys["environment"])
    yield folders
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(not os.access(memory.MEMORY, os.W_OK), reason="needs /dev/shm")
def test_clean_frees_the_memory_of_the_demo_alone(checkout: Checkout, dictionaries: dict[str, pathlib.Path]) -> None:
    assert all(folder.is_dir() for folder in dictionaries.values())
    for _ in range(2):
        result = checkout.make("clean")
        assert result.returncode == 0, result.stderr
        assert not dictionaries["demo"].exists()
        assert not dictionaries["environment"].exists()
        assert dictionaries["other"].is_dir()
        assert not (checkout.folder / "var").exists()


@pytest.mark.skipif(not os.access(memory.MEMORY, os.W_OK), reason="needs /dev/shm")
@pytest.mark.parametrize("lock", ["dictionary", "demo"])
def test_clean_removes_nothing_while_the_demo_runs(
    checkout: Checkout, dictionaries: dict[str, pathlib.Path], lock: str
) -> None:
    var = checkout.folder / "var"
    path = var / memory.LOCK if lock == "demo" else dictionaries["demo"] / "tests.card"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        result = checkout.make("clean")
        assert result.returncode != 0
        assert "is still running" in result.stderr
        assert dictionaries["demo"].is_dir()
        assert (var / "secret_key").exists()
    assert checkout.make("clean").returncode == 0
    assert not dictionaries["demo"].exists()


def test_folders_are_named_as_the_package_names_them() -> None:
    module = os.environ["DJANGO_SETTINGS_MODULE"]
    assert memory.MEMORY == files.MEMORY_FOLDER
    assert {folder.name for folder in memory.folders(settings.SECRET_KEY, module)} == {files.site_folder()}
