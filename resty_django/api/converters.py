"""URL converter for names of rules, queues and groups."""

from __future__ import annotations

from urllib.parse import quote, unquote


class NameConverter:
    """One path segment that holds a name with any characters, percent-encoded twice.

    Django decodes the outer encoding before it resolves the URL, and adds it in `reverse`.
    """

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return unquote(value, errors="strict")

    def to_url(self, value: str) -> str:
        return quote(value, safe="").replace(".", "%2E")
