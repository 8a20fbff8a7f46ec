"""docs/reference/python.md lists all public names, and no others."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from tests import api_page
from tests.docs_reader import page

API = page(api_page.PAGE)
AGAIN = "Run `python -m tests.api_page`, and describe new names that have no docstring."


@pytest.mark.parametrize("package", api_page.PACKAGES)
def test_a_public_package_exports_what_the_page_lists_and_nothing_else(package: str) -> None:
    names = importlib.import_module(package).__all__
    assert len(set(names)) == len(names)
    assert all(not name.startswith("_") or name == "__version__" for name in names)
    assert list(api_page.listed(API).get(package, {})) == list(names), AGAIN


def test_each_listed_name_can_be_imported() -> None:
    for module, names in api_page.listed(API).items():
        for name in filter(None, names):
            getattr(importlib.import_module(module), name)


def test_names_that_the_docs_import_are_listed() -> None:
    tables = {module: sorted(names) for module, names in api_page.listed(API).items()}
    expected = {module: sorted(names) for module, names in api_page.expected().items()}
    assert tables == expected, AGAIN
    for module, used in api_page.imported_by_docs().items():
        assert set(used) <= {"", *tables[module]}, f"The docs import names of {module} that it does not export."


def test_dotted_paths_of_settings_are_listed_and_exist() -> None:
    paths = api_page.listed_paths(API)
    assert list(paths) == api_page.dotted_paths(), AGAIN
    for path in paths:
        assert callable(pkgutil.resolve_name(path))


def test_each_name_has_a_description() -> None:
    tables = {**api_page.listed(API), api_page.DOTTED: api_page.listed_paths(API)}
    missing = [(module, name) for module, names in tables.items() for name, text in names.items() if not text]
    assert missing == []
