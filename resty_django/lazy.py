"""Packages that import a module when one of its members is first used, so that importing the package loads little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def members(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package. `modules`: the members of each module, separated by spaces."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def member_of_package(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        member = getattr(import_module(f".{module_of[name]}", package), name)
        setattr(sys.modules[package], name, member)  # next time, Python finds it without this function
        return member

    return member_of_package
