"""The directive `members`: the public methods and attributes of a class, or names of a module, from their docstrings.

    :::{members} resty_django.qless.Job
    omit: add_hook
    :::

Members without a docstring are left out, and async counterparts: `aget` next to `get`. The directive `fields` makes a
table of the lists in the docstrings of a class and its bases: "- `name`: the meaning"; or, if the class has no such
list, of the docstrings below its attributes. Lines in its body are links: the name of a field, and a page.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import reference


def described(kind: Any) -> dict[str, str]:
    """Return the members of a class or module that have a docstring, by name, with its text in one line."""
    names = [name for name in getattr(kind, "__all__", dir(kind)) if not name.startswith("_")]
    texts = {}
    for name in names:
        if name.startswith("a") and name[1:] in names:
            continue
        member = inspect.getattr_static(kind, name)
        member = member if callable(member) else getattr(member, "__func__", member)
        text = inspect.getdoc(getattr(member, "fget", None) or member)
        if text and inspect.getdoc(type(member)) != text:
            paragraphs = (block for block in text.split("\n\n") if not block.startswith(" "))
            texts[name] = " ".join(" ".join(paragraphs).split())
    return texts


def call_of(kind: Any, name: str) -> str:
    """Return a member as code calls it: `put(klass, data=None, **options)`, or the name of an attribute."""
    if not callable(getattr(kind, name)):
        return name
    is_method = inspect.isclass(kind) and inspect.isfunction(inspect.getattr_static(kind, name))
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[is_method:]
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    text = str(inspect.Signature(plain))
    return name + re.sub(r"<function .*?> at 0x\w+>|<function .*? at 0x\w+>|<.*?>|\b(?:UNSET|Ellipsis)\b", "...", text)


def members(path: str, options: reference.Links) -> str:
    """Return the table of a class's members."""
    kind: Any = pkgutil.resolve_name(path)
    omitted = options.get("omit", "").split()

    def rows() -> Iterator[tuple[str, ...]]:
        for name, text in described(kind).items():
            if name not in omitted:
                yield f"`{call_of(kind, name)}`", text

    return reference.table((f"of `{path.rpartition('.')[2]}`", "meaning"), rows())


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the names of the attributes of a class that have a docstring below them, with its text in one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    for attribute, below in pairwise(getattr(definition, "body", ())):
        match attribute, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, " ".join(text.split())


def fields(path: str, links: reference.Links) -> str:
    """Return the table of the fields in the docstrings of a class and its bases, with the defaults of a struct."""
    kind: Any = pkgutil.resolve_name(path)
    if "\n- `" not in inspect.getdoc(kind):
        listed = ((f"`{name}`", text + reference.see(links.get(name))) for name, text in attributes(kind))
        return reference.table((f"of `{path.rpartition('.')[2]}`", "meaning"), listed)
    defaults = dict(zip(getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_defaults__", ()), strict=True))
    text = "\n".join(inspect.cleandoc(vars(base).get("__doc__") or "") for base in inspect.getmro(kind))

    def rows() -> Iterator[tuple[str, ...]]:
        for item in re.findall(r"^- (`\w+`.*(?:\n  .*)*)", text, re.MULTILINE):
            names, _, meaning = " ".join(item.split()).partition("`: ")
            values = (defaults[name] for name in re.findall(r"\w+", names) if name in defaults)
            shown = dict.fromkeys(f"`{getattr(value, '__name__', repr(value))}`" for value in values)
            yield f"{names}`", ", ".join(shown), meaning[0].upper() + meaning[1:]

    return reference.table(("option", "default", "meaning"), rows())


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("members", reference.directive(members, arguments=1))
    app.add_directive("fields", reference.directive(fields, arguments=1))
    return {"parallel_read_safe": True}
