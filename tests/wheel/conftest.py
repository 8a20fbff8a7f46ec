"""The built wheel, and new environments in which it is installed as a reader of the docs would do it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, cwd: Path, text: str = "", **env: str) -> str:
    """Run a command without anything of this process's environment but PATH; return what it printed."""
    done = subprocess.run(
        [str(argument) for argument in command],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), "LANG": "C.UTF-8", **env},
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that RESTY_WHEEL names, or one that the declared backend builds, as it is installed here."""
    if named := os.environ.get("RESTY_WHEEL"):
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def pip_env(wheel: Path) -> dict[str, str]:
    """Return the environment in which `pip install resty-django` installs the wheel."""
    return {"PIP_FIND_LINKS": str(wheel.parent), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel and some extras."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


@pytest.fixture
def environment(tmp_path: Path, pip_env: dict[str, str]) -> Callable[..., Environment]:
    """Make an environment: `environment("redis", "cron")`."""

    def make(*extras: str) -> Environment:
        virtual_env = Environment(tmp_path / "env")
        run(sys.executable, "-m", "venv", "--without-pip", virtual_env.folder, cwd=tmp_path)
        requirement = f"resty-django[{','.join(extras)}]" if extras else "resty-django"
        # Python compiles what it imports, a small part of what is installed.
        options = ("--quiet", "--no-compile")
        pip = (sys.executable, "-m", "pip", "--python", virtual_env.python, "install", *options, requirement)
        run(*pip, cwd=tmp_path, **pip_env)
        return virtual_env

    return make
