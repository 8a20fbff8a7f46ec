"""Fields of policies with one entry per line: rates of tiers, and exemptions.

    pro: 600/m
    staff: none

In code and in settings, tiers are also a dict (`{"pro": "600/m", "staff": None}`), and exemptions a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.text.localized import grouped

NO_LIMIT: Final = "none"
"""The rate of a tier without a limit."""
EXEMPTION_FIELDS: Final = ("exempt_networks", "exempt_users", "exempt_groups", "exempt_paths")
LINE_FIELDS: Final = ("tiers", *EXEMPTION_FIELDS)
USER_PREFIX: Final = "user:"
"""The start of an exempt user's primary key, as in keys; other users are exempt by name."""
MAX_LINES: Final = 200
"""The maximum number of lines of a field."""
MAX_LINE_CHARS: Final = 200
MAX_TIER_CHARS: Final = 64
MAX_SHOWN_PROBLEMS: Final = 5
"""The maximum number of wrong lines that a message lists."""


def lines_of(text: str) -> tuple[str, ...]:
    """Return the entries of a field, without empty lines."""
    return tuple(entry for _number, entry in numbered_lines(text))


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the entries of a field with the numbers of their lines, from 1, without empty lines."""
    for number, line in enumerate(text.split("\n"), 1):
        if entry := line.strip():
            yield number, entry


def normalized_lines(field: str, text: str) -> str:
    """Return the text without empty lines and superfluous spaces."""
    entries = lines_of(text)
    if field == "tiers":
        entries = tuple(": ".join(split_tier(entry)) if ":" in entry else entry for entry in entries)
    return "\n".join(entries)


def split_tier(entry: str) -> tuple[str, str]:
    """Return the tier and the rate of a line; a tier may contain colons."""
    tier, _colon, rate = entry.rpartition(":")
    return tier.strip(), rate.strip()


def tiers_of(text: str) -> dict[str, str]:
    """Return the rates of a valid text by tier; `NO_LIMIT` for no limit."""
    return dict(split_tier(entry) for entry in lines_of(text))


def text_of(field: str, value: object) -> str | None:
    """Return the text for a dict of tiers or a list of exemptions, or None if it is neither."""
    if field == "tiers" and isinstance(value, Mapping):
        value = [f"{tier}: {NO_LIMIT if rate is None else rate}" for tier, rate in value.items()]
    elif field not in EXEMPTION_FIELDS or not isinstance(value, list | tuple):
        return None
    if not all(isinstance(entry, str) and "\n" not in entry for entry in value):
        return None
    return normalized_lines(field, "\n".join(value))


def count_problem(text: str) -> str:
    """Return a message if the text has too many lines, or too long ones, else ""."""
    entries = list(numbered_lines(text))
    if len(entries) > MAX_LINES:
        text = _("This has %(count)s lines. Use at most %(max)s.")
        return text % {"count": grouped(len(entries)), "max": MAX_LINES}
    too_long = _("Line %(number)s is too long. Use at most %(max)s characters.")
    return first_problems(
        too_long % {"number": number, "max": MAX_LINE_CHARS} for number, entry in entries if len(entry) > MAX_LINE_CHARS
    )


def first_problems(problems: Iterable[str]) -> str:
    """Return the first problems as one message, or ""."""
    listed = list(problems)
    hidden = len(listed) - MAX_SHOWN_PROBLEMS
    if hidden <= 0:
        return " ".join(listed)
    text = ngettext("%(count)s more line is wrong.", "%(count)s more lines are wrong.", hidden)
    return " ".join([*listed[:MAX_SHOWN_PROBLEMS], text % {"count": hidden}])


def line_problem(number: int, entry: str, problem: str) -> str:
    """Return the message about a wrong line."""
    return _("Line %(number)s, “%(text)s”: %(problem)s") % {
        "number": number,
        "text": shown(entry),
        "problem": problem,
    }


def shown(entry: str) -> str:
    return entry if len(entry) <= 60 else f"{entry[:60]}…"
