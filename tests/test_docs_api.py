"""The page of public names lists what may be imported, and describes it."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.docs_reader import ROOT

sys.path.append(str(ROOT / "docs" / "_ext"))
public_names = importlib.import_module("public_names")


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_a_public_package_exports_each_name_once_and_no_private_ones(package: str) -> None:
    names = importlib.import_module(package).__all__
    assert len(set(names)) == len(names)
    assert all(not name.startswith("_") or name == "__version__" for name in names)


def test_names_that_the_docs_import_are_exported_where_the_package_has_a_list() -> None:
    for module, names in public_names.imported_by_docs().items():
        assert names <= set(public_names.listed()[module]) if names else True, module


def test_each_name_has_a_description() -> None:
    bare = [
        (module, name)
        for module, names in public_names.listed().items()
        for name in names
        if not public_names.description(module, name)
    ]
    bare += [path for path in public_names.dotted_paths() if not public_names.description(*path.rsplit(".", 1))]
    assert bare == []
