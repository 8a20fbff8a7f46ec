"""Names of things in addresses: rules, queues, groups."""

from __future__ import annotations

from urllib.parse import quote, unquote


class NameConverter:
    """One segment of a path that holds a name of any characters, escaped once more than other segments are.

    Django takes the outer escapes off before it looks at the address, and puts them on in `reverse`.
    """

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return unquote(value, errors="strict")

    def to_url(self, value: str) -> str:
        return quote(value, safe="").replace(".", "%2E")
