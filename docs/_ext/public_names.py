"""The public names: `__all__` of the public packages, and what the Python code of the docs imports elsewhere."""

from __future__ import annotations

import ast
import contextlib
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

from tests.docs_reader import blocks

PACKAGES: Final = (
    "resty_django",
    "resty_django.ids",
    "resty_django.limits",
    "resty_django.cache",
    "resty_django.cache.testing",
    "resty_django.qless",
    "resty_django.events",
    "resty_django.shdict",
    "resty_django.lock",
    "resty_django.redis",
    "resty_django.txid",
    "resty_django.logs",
    "resty_django.metrics",
)


@cache
def listed() -> dict[str, list[str]]:
    """Return all public names by module."""
    names = {package: list(import_module(package).__all__) for package in PACKAGES}
    used = {module: sorted(used) for module, used in imported_by_docs().items() if module not in names and used}
    return {**names, **dict(sorted(used.items()))}


def imported_by_docs() -> dict[str, set[str]]:
    """Return what the Python code of the docs imports from this package, by module."""
    names: dict[str, set[str]] = {}
    for node in _nodes():
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "resty_django":
            module = import_module(node.module or "")
            found = (alias.name for alias in node.names)
            values = {name for name in found if not isinstance(getattr(module, name, module), types.ModuleType)}
            names.setdefault(module.__name__, set()).update(values)
    return names


def dotted_paths() -> list[str]:
    """Return the dotted paths of objects in strings of the docs, as settings have them."""
    paths = set()
    for node in _nodes():
        if isinstance(node, ast.Constant) and re.fullmatch(r"resty_django(\.\w+)+", str(node.value)):
            with contextlib.suppress(ImportError, AttributeError):
                if not isinstance(pkgutil.resolve_name(str(node.value)), types.ModuleType):
                    paths.add(str(node.value))
    return sorted(paths)


def _nodes() -> Iterator[ast.AST]:
    for block in blocks("python"):
        if "resty_django" in block.text:
            yield from ast.walk(ast.parse(block.text))


def description(module: str, name: str) -> str:
    """Return the first sentence of the docstring of an object, or of the one below a constant."""
    target = getattr(import_module(module), name)
    if inspect.isclass(target) or inspect.isroutine(target):
        text = inspect.cleandoc(target.__doc__ or "")
    else:
        text = attribute_docstring(module, name)
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.match(r".+?[.](?= [A-Z`]|$)", paragraph)
    return sentence[0] if sentence else paragraph


def attribute_docstring(module: str, name: str) -> str:
    """Return the string below the assignment of a name, in the module that assigns it; "" if there is none."""
    path = import_module(module).__file__
    tree = ast.parse(Path(path or "").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            package = module if str(path).endswith("__init__.py") else module.rpartition(".")[0]
            return attribute_docstring(resolve_name("." * node.level + (node.module or ""), package), name)
    body = tree.body
    for at, node in enumerate(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets) and at + 1 < len(body):
            match body[at + 1]:
                case ast.Expr(ast.Constant(str(text))):
                    return inspect.cleandoc(text)
    return ""
