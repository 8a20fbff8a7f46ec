"""Arguments and results of jobs as redacted JSON, the restoring of redacted values in edited arguments, and checks."""

from __future__ import annotations

import json
from typing import Any, Final

from django.utils.translation import gettext as _

from resty_django.text import printable

from ..clients.serialization import decode
from ..errors import InvalidArgument, QlessError
from ..redaction import HIDDEN, MARKS, redacted, redacted_arguments
from ..tasks.calls import check_data, has_mark, signature_text

MAX_ARGUMENTS_CHARS: Final = 20_000
"""Maximum length of arguments on a page."""
ABSENT: Final = object()
"""Marks a position that the original arguments do not have."""


def display_json(raw: str, klass: str | None = None) -> tuple[str, bool]:
    """Return arguments or a result as indented JSON, redacted and bounded in length, and whether the text is complete.

    The text is empty if `raw` is not JSON. `klass`: the class of the job with these arguments; None for a result.
    """
    try:
        value = decode(raw)
    except QlessError:
        return "", False
    shown = redacted(value) if klass is None else redacted_arguments(klass, value)
    text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    return printable(text, MAX_ARGUMENTS_CHARS), len(text) <= MAX_ARGUMENTS_CHARS


def editable_json(value: object, klass: str) -> str:
    """Return the arguments of a job of class `klass`, redacted, as JSON for a form."""
    return json.dumps(redacted_arguments(klass, value), indent=2, ensure_ascii=True, default=str)


def arguments_help(klass: str, *, edits: bool = True) -> str:
    """Return the help text of a form for arguments. `edits`: whether it shows the arguments of an existing job."""
    sentences = [_("JSON.")]
    signature = signature_text(klass)
    if signature:
        sentences.append(_("The task takes %(signature)s.") % {"signature": printable(signature, 500)})
    if edits:
        sentences.append(
            _("Values shown as %(hidden)s are kept: the job gets the stored values, not this mark.")
            % {"hidden": HIDDEN}
        )
    return " ".join(sentences)


def checked_arguments(edited: Any, original: Any, klass: str, now: float) -> Any:
    """Return `edited_arguments`. Raise `InvalidArgument` also if jobs of the class cannot run with them."""
    arguments = edited_arguments(edited, original, klass)
    check_data(klass, arguments, now, original)
    return arguments


def edited_arguments(edited: Any, original: Any, klass: str) -> Any:
    """Return the arguments that a form sent, with redaction marks replaced by the original values.

    `original`: the arguments of a job of class `klass`, whose redacted copy the form showed. Raise `InvalidArgument` if
    a restored value would become visible (the mark was moved to a position, or into arguments of a shape, that the
    redaction does not hide), or if a mark has no original value.
    """
    try:
        if _canonical(edited) == _canonical(json.loads(editable_json(original, klass))):
            return original  # values that REDACTOR changed or removed stay, too
        arguments = _restore(edited, original)
        redacted_result = _canonical(redacted_arguments(klass, arguments))
        redacted_marks = _canonical(redacted_arguments(klass, edited))
    except RecursionError:
        raise InvalidArgument(_("The arguments are nested too deeply to edit here. Put the job from code.")) from None
    if redacted_result != redacted_marks:
        text = _(
            "This would make a hidden value visible. Leave %(mark)s where the form showed it, in arguments of the "
            "same shape, or replace it by another value."
        )
        raise InvalidArgument(text % {"mark": HIDDEN})
    return arguments


def _restore(edited: Any, original: Any) -> Any:
    if edited in MARKS and original is not ABSENT:
        return original
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: _restore(value, original.get(key, ABSENT)) for key, value in edited.items()}
    if isinstance(edited, list) and isinstance(original, list):
        return [
            _restore(value, original[index] if index < len(original) else ABSENT) for index, value in enumerate(edited)
        ]
    if has_mark(edited):
        text = _(
            "%(mark)s is in a place where the job has no value to keep. Leave it only where the form showed it, or "
            "replace it by another value."
        )
        raise InvalidArgument(text % {"mark": HIDDEN})
    return edited


def _canonical(value: object) -> str:
    """Return JSON to compare two values by: unlike `==`, it distinguishes True from 1."""
    return json.dumps(value, sort_keys=True, default=str)
