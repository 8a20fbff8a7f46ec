"""The names of docs/reference/python.md: `__all__` of the public packages, and all that the docs use elsewhere.

    python -m tests.api_page    # writes the tables again

Descriptions are the first sentences of the docstrings; where there is none, or where it begins with "See the", the
description on the page stays.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import pkgutil
import re
import types
from collections.abc import Iterator
from typing import Any, Final

from tests.docs_reader import ROOT, Page, blocks, code, page

PAGE: Final = "docs/reference/python.md"
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
DESCRIPTION: Final = "what it is"
DOTTED: Final = "dotted path"
WHOLE_MODULE: Final = "the module"


def exported() -> dict[str, list[str]]:
    """Return `__all__` of each public package."""
    return {name: list(importlib.import_module(name).__all__) for name in PACKAGES}


def imported_by_docs() -> dict[str, list[str]]:
    """Return what the Python code of the docs imports, by module; a module that it imports whole has the name ""."""
    names: dict[str, list[str]] = {}
    for node in _nodes():
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "resty_django":
            for alias in node.names:
                module, name = _split(node.module or "", alias.name)
                if _exists(module, name) and name not in names.setdefault(module, []):
                    names[module].append(name)
    return names


def dotted_paths() -> list[str]:
    """Return the dotted paths of objects in strings of the docs, as settings have them."""
    paths = set()
    for node in _nodes():
        if isinstance(node, ast.Constant) and re.fullmatch(r"resty_django(\.\w+)+", str(node.value)):
            with contextlib.suppress(ImportError, AttributeError):
                if not isinstance(pkgutil.resolve_name(node.value), types.ModuleType):
                    paths.add(str(node.value))
    return sorted(paths)


def _nodes() -> Iterator[ast.AST]:
    for block in blocks("python"):
        if "resty_django" in block.text:
            yield from ast.walk(ast.parse(block.text))


def _split(module: str, name: str) -> tuple[str, str]:
    with contextlib.suppress(ImportError):
        importlib.import_module(f"{module}.{name}")
    if isinstance(getattr(importlib.import_module(module), name, None), types.ModuleType):
        return f"{module}.{name}", ""
    return module, name


def _exists(module: str, name: str) -> bool:
    """Return whether an import works; the tests of the code blocks report those that do not."""
    return not name or hasattr(importlib.import_module(module), name)


def expected() -> dict[str, list[str]]:
    """Return all names that the page has to list, by module."""
    names = exported()
    used = {module: sorted(used) for module, used in imported_by_docs().items() if module not in names and used}
    return {**names, **dict(sorted(used.items()))}


def listed(api: Page) -> dict[str, dict[str, str]]:
    """Return what the page lists: descriptions by module and name."""
    modules = [code(line) for line in api.text.splitlines() if line.startswith("## `")]
    return {
        module: {"" if row[0] == WHOLE_MODULE else code(row[0]): row[1] for row in _rows(api, f"from `{module}`")}
        for module in modules
    }


def listed_paths(api: Page) -> dict[str, str]:
    """Return the dotted paths on the page with their descriptions."""
    return {code(row[0]): row[1] for row in _rows(api, DOTTED)}


def _rows(api: Page, column: str) -> list[list[str]]:
    return api.table(column, DESCRIPTION) if f"| {column} |" in api.text else []


def first_sentence(target: Any) -> str:
    """Return the first sentence of the object's own docstring."""
    if not (isinstance(target, types.ModuleType) or inspect.isclass(target) or inspect.isroutine(target)):
        return ""
    paragraph = " ".join(inspect.cleandoc(target.__doc__ or "").split("\n\n")[0].split())
    if paragraph.startswith("See the "):
        return ""
    sentence = re.match(r".+?[.](?= [A-Z`]|$)", paragraph)
    return (sentence[0] if sentence else paragraph).replace("|", "\\|")


def render(api: Page) -> str:
    """Return the text of the page with tables that list everything."""
    old_names, old_paths = listed(api), listed_paths(api)
    lines = [api.text.split("\n## ")[0].rstrip(), "", "## Dotted paths in settings", ""]
    lines += [f"| {DOTTED} | {DESCRIPTION} |", "|---|---|"]
    for path in dotted_paths():
        lines.append(f"| `{path}` | {first_sentence(pkgutil.resolve_name(path)) or old_paths.get(path, '')} |")
    for module, names in expected().items():
        lines += ["", f"## `{module}`", "", f"| from `{module}` | {DESCRIPTION} |", "|---|---|"]
        parent = importlib.import_module(module)
        for name in names:
            text = first_sentence(getattr(parent, name) if name else parent) or old_names.get(module, {}).get(name, "")
            lines.append(f"| {f'`{name}`' if name else WHOLE_MODULE} | {text} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    import django

    django.setup()
    (ROOT / PAGE).write_text(render(page(PAGE)))


if __name__ == "__main__":
    main()
