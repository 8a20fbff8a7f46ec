"""Patterns of keys, as in Redis: `*` any text, `?` one character, `[a-z]`, `[^a-z]`, and `\\` before a literal. Pure.

A pattern may come from a user, so matching must not take long: each `*` matches the shortest text after which the next
part of the pattern follows, and is never tried again. The time is at most the length of the key times the length of the
pattern.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import BadKey

MAX_PATTERN_CHARS: Final = 1000
"""Maximum length of a pattern in characters."""


class KeyPattern:
    """A compiled pattern. Raise `BadKey` if it is longer than `MAX_PATTERN_CHARS` or not a str.

    `server_glob`: a pattern for the server, which matches the same keys and possibly others.
    """

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str):
            raise BadKey(f"A pattern of keys must be a str, not {pattern!r}.")
        if len(pattern) > MAX_PATTERN_CHARS:
            raise BadKey(f"The pattern has {len(pattern)} characters. Use at most {MAX_PATTERN_CHARS}.")
        parts = [""]
        glob: list[str] = []
        tokens = r"(?P<star>\*+)|(?P<any>\?)|\[(?P<set>\^?(?:\\.|[^\]\\])+)\]|\\?(?P<literal>.)"
        for token in re.finditer(tokens, pattern, re.DOTALL):
            literal = token["literal"]
            if literal is not None:
                parts[-1] += re.escape(literal)
            elif token["star"]:
                parts.append("")
            else:
                parts[-1] += "." if token["any"] else _class(token["set"])
            if glob.count("*") < 3:  # the server's matching takes longer with each
                part = "*" if literal is None else escaped(literal)
                glob += [part] if part != "*" or glob[-1:] != ["*"] else []
        self.server_glob: Final = "".join(glob)
        self._all: Final = pattern in ("*", "**")
        first, *rest = parts
        middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
        end = f".*{rest[-1]}" if rest else ""
        self._match = re.compile(f"(?s:{first}{middle}{end})").fullmatch

    def matches(self, key: str) -> bool:
        """Return whether the whole key matches."""
        return self._all or self._match(key) is not None


def escaped(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


def _class(content: str) -> str:
    """Return the regular expression for the content of brackets: characters and ranges, negated after `^`."""
    negated = content.startswith("^")
    characters = re.findall(r"(\\.|.)", content[1:] if negated else content, re.DOTALL)
    literals = [character[-1] for character in characters]
    ranges = ""
    index = 0
    while index < len(literals):
        if index + 2 < len(literals) and characters[index + 1] == "-":
            low, high = sorted((literals[index], literals[index + 2]))
            ranges += f"{re.escape(low)}-{re.escape(high)}"
            index += 3
        else:
            ranges += re.escape(literals[index])
            index += 1
    return f"[{'^' if negated else ''}{ranges}]"
