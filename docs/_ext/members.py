"""The directive `members`: the public methods and attributes of a class, from their docstrings.

    :::{members} resty_django.qless.Job
    omit: add_hook
    :::

Members without a docstring are left out, and async counterparts: `aget` next to `get`.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import reference


def described(kind: type) -> dict[str, str]:
    """Return the members of a class that have a docstring, by name, with its text in one line."""
    names = [name for name in dir(kind) if not name.startswith("_")]
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


def call_of(kind: type, name: str) -> str:
    """Return a member as code calls it: `put(klass, data=None, **options)`, or the name of an attribute."""
    if not callable(getattr(kind, name)):
        return name
    is_method = inspect.isfunction(inspect.getattr_static(kind, name))
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[is_method:]
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    text = str(inspect.Signature(plain))
    return name + re.sub(r"<.*?>|\bUNSET\b", "...", text)


def members(path: str, options: reference.Links) -> str:
    """Return the table of a class's members."""
    kind: Any = pkgutil.resolve_name(path)
    omitted = options.get("omit", "").split()

    def rows() -> Iterator[tuple[str, ...]]:
        for name, text in described(kind).items():
            if name not in omitted:
                yield f"`{call_of(kind, name)}`", text

    return reference.table((f"of `{path.rpartition('.')[2]}`", "meaning"), rows())


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("members", reference.directive(members, arguments=1))
    return {"parallel_read_safe": True}
