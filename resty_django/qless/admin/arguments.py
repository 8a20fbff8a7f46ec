"""Arguments and results of jobs as the pages show them, and what becomes of hidden ones when they are edited."""

from __future__ import annotations

import json
from typing import Any, Final

from resty_django.admin.shown import printable

from ..errors import QlessError
from ..redact import HIDDEN, redacted_arguments
from ..texts import decode

LONGEST: Final = 20_000
"""Characters of the arguments that a page shows."""


def shown_data(raw: str, klass: str = "") -> tuple[str, bool]:
    """The arguments of a job of this class, or a result, as indented JSON, redacted and bounded; empty where they are
    no JSON. And whether that is all."""
    try:
        value = decode(raw)
    except QlessError:
        return "", False
    text = json.dumps(redacted_arguments(klass, value), indent=2, ensure_ascii=False, default=str)
    return printable(text, LONGEST), len(text) <= LONGEST


def editable(value: Any, klass: str) -> str:
    """The arguments of a job of this class, redacted, for a form."""
    return json.dumps(redacted_arguments(klass, value), indent=2, ensure_ascii=True, default=str)


def restored(edited: Any, original: Any) -> Any:
    """What was edited, with the original values where it has the mark of a redacted one."""
    if edited == HIDDEN:
        return original
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: restored(value, original.get(key, HIDDEN)) for key, value in edited.items()}
    if isinstance(edited, list) and isinstance(original, list):
        return [
            restored(value, original[place] if place < len(original) else HIDDEN) for place, value in enumerate(edited)
        ]
    return edited


__all__ = ["editable", "restored", "shown_data"]
