from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from resty_django import extras
from resty_django.extras import PACKAGES, MissingExtra

ROOT = Path(__file__).resolve().parents[2]


def declared_extras() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras: dict[str, list[str]] = tomllib.load(file)["project"]["optional-dependencies"]
    return extras


def test_the_table_has_the_extras_of_the_package() -> None:
    declared = declared_extras()
    del declared["all"]
    purposes = [requirement for purpose in ("jobs", "cache") for requirement in declared.pop(purpose)]
    packages = {
        (extra, re.split(r"[\[>=<;]", requirement)[0]) for extra, listed in declared.items() for requirement in listed
    }
    assert {(package.extra, package.name) for package in PACKAGES.values()} == packages
    assert set(purposes) <= {requirement for listed in declared.values() for requirement in listed}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_each_extra_installs_its_packages_on_each_python(python: str) -> None:
    """Markers know the version of Python, but not Django's: Django 5.2 needs django-tasks on Python 3.12, too."""
    for extra, requirements in declared_extras().items():
        for requirement in map(Requirement, requirements):
            marker = requirement.marker
            assert marker is None or marker.evaluate({"python_version": python, "extra": extra}), requirement


def test_the_message_says_what_is_wrong_and_what_to_do() -> None:
    error = MissingExtra("Background jobs need", "redis")
    assert str(error) == (
        'Background jobs need the package redis, which is not installed. Run: pip install "resty-django[redis]".'
    )
    assert (error.extra, error.command) == ("redis", 'pip install "resty-django[redis]"')
    assert "the packages redis and django-redis, which are not installed. Run:" in str(
        MissingExtra("It needs", "redis", "django_redis")
    )


def test_only_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.require("Lua rules need")
    monkeypatch.setitem(sys.modules, "django_redis", None)
    with pytest.raises(MissingExtra, match="django-redis"):
        extras.require("It needs", "msgspec", "django_redis")


def test_an_import_in_a_block_raises_the_same_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa", None)
    with pytest.raises(MissingExtra, match="lupa"), extras.needed("Lua rules need"):
        import lupa  # noqa: F401


def test_a_folder_of_the_site_does_not_count_as_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "celery").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for module in [name for name in sys.modules if name.partition(".")[0] == "celery"]:
        monkeypatch.delitem(sys.modules, module)
    assert not extras.is_installed("celery")
    try:
        with pytest.raises(MissingExtra, match="the package celery"), extras.needed("It needs"):
            from celery import signals  # noqa: F401
    finally:
        sys.modules.pop("celery", None)  # the folder's


def test_an_error_in_another_module_stays_unchanged() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extras.needed("Lua rules need"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
