"""The grammar of the job search: text to terms. Pure.

    state:failed class:shop.tasks.send_invoice args.customer.id:7 error:KeyError age:>1h "Ann Meyer"

A query is a list of terms; a job has to match all of them. A term is `field:value`, or a word. Values in double quotes
may contain spaces and colons; `\\"` is a quote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _

SEARCH_FIELDS: Final = ("state", "class", "queue", "tag", "txid", "error", "age", "args")
"""The names of fields. `args` may be followed by the path of an argument: `args.customer.id`."""
SEARCH_STATES: Final = ("waiting", "running", "stalled", "scheduled", "depends", "failed", "complete")
FIELD_SUGGESTIONS: Final = (
    *(f"{name}{'.' if name == 'args' else ':'}" for name in SEARCH_FIELDS),
    *(f"state:{state}" for state in SEARCH_STATES),
)
"""Texts that complete the search on each page."""
MAX_QUERY_LENGTH: Final = 500
MAX_TERMS: Final = 12


class QueryError(ValueError):
    """A query that cannot be understood. The message says why, for the user; `suggestions`: queries to try instead."""

    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


@dataclass(frozen=True, slots=True)
class Term:
    """A condition. `field`: one of `SEARCH_FIELDS`; empty for text anywhere. `path`: of an argument, in lower case.

    `quoted`: the value consists of whole words.
    """

    field: str
    value: str
    path: str = ""
    quoted: bool = False


def parse(text: str) -> tuple[Term, ...]:
    """Return the terms of a query. Raises `QueryError`."""
    pattern = re.compile(
        r"""
        (?: (?P<field> [A-Za-z_] [^\s:"]* ) : )?
        (?: "(?P<quoted> (?: [^"\\] | \\. )* )" (?=\s|$)
          | (?P<bare> [^\s"]* ) (?=\s|$) )
        """,
        re.VERBOSE | re.DOTALL,
    )
    if len(text) > MAX_QUERY_LENGTH:
        raise QueryError(_("The search is longer than %(limit)d characters.") % {"limit": MAX_QUERY_LENGTH})
    terms: list[Term] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = pattern.match(text, position)
        if match is None or match.end() == position:
            raise QueryError(_("A quotation mark is missing, or not at the end of a value."))
        position = match.end()
        quoted = match["quoted"] is not None
        value = re.sub(r"\\(.)", r"\1", match["quoted"], flags=re.DOTALL) if quoted else match["bare"]
        field = match["field"] or ""
        if field and field.lower() not in SEARCH_FIELDS and not field.lower().startswith("args."):
            message = _("There is no field %(field)s. To search for text with a colon, put it in quotation marks.")
            others = (f"args.{match[0]}", *([] if quoted else [f'"{match[0]}"']))
            tries = [f"{text[: match.start()]}{other}{text[position:]}" for other in others]
            raise QueryError(message % {"field": field}, tries)
        terms.append(_term(field, value, quoted))
    if len(terms) > MAX_TERMS:
        raise QueryError(_("The search has more than %(limit)d terms.") % {"limit": MAX_TERMS})
    for name in ("state", "class", "queue", "txid"):
        if sum(term.field == name for term in terms) > 1:
            raise QueryError(_("%(field)s: can be used once.") % {"field": name})
    return tuple(terms)


def _term(field: str, value: str, quoted: bool) -> Term:
    name, _dot, path = field.partition(".")
    name = name.lower()
    if not value.strip():
        raise QueryError(
            _("%(field)s: needs a value.") % {"field": field}
            if field
            else _("Quotation marks need a text between them.")
        )
    if name == "state" and value not in SEARCH_STATES:
        raise QueryError(
            _("There is no state %(state)s. The states are %(states)s.")
            % {"state": value, "states": ", ".join(SEARCH_STATES)}
        )
    if name == "age":
        age_fits(value, 0)  # raises if it is not an age
    return Term(name, value, path.casefold().removeprefix("kwargs."), quoted)


def age_fits(value: str, age: float) -> bool:
    """Return whether an age in seconds fits a condition such as `>1h`. Raises `QueryError`."""
    match = re.fullmatch(r"([<>])=?\s*(\d{1,9}(?:\.\d{1,9})?)([smhdw])", value.strip())
    if match is None:
        raise QueryError(
            _("%(age)s is not an age. Write for example age:>1h or age:<30m, with the units s, m, h, d or w.")
            % {"age": value}
        )
    sign, number, unit = match.groups()
    seconds = float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[unit]
    return age > seconds if sign == ">" else age < seconds


def first(terms: Sequence[Term], field: str) -> str:
    """Return the value of the first term with this field, or an empty text."""
    return next((term.value for term in terms if term.field == field), "")


__all__ = ["SEARCH_FIELDS", "SEARCH_STATES", "QueryError", "Term", "age_fits", "first", "parse"]
