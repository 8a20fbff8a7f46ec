"""A language that marks every translated text, and a search for the texts of a page without a mark.

`⟦` and `⟧` enclose the result of gettext, but not the values of its placeholders, so an untranslated value in a
translated sentence is found too. Texts that were translated when a module was imported stay English and unmarked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

from django.utils import translation
from django.utils.translation import trans_real

LANGUAGE: Final = "fr"
"""A language whose numbers cannot be mistaken for English ones: 1\u202f234,5."""
CONTEXT: Final = "\x04"
PLACEHOLDER: Final = re.compile(r"(<[^>]*>|%\(\w+\)[#0-9.]*[sdrifg]|%[sdrifg]|\{\w*\})")
MARKED: Final = re.compile(r"⟦[^⟦⟧]*(?:⟧|$)")
WORD: Final = re.compile(r"[^\W\d_]{2,}")


def mark(text: str) -> str:
    """Return a text with the marks around all of it except tags and placeholders."""
    return "".join(
        part if not part or PLACEHOLDER.fullmatch(part) or not WORD.search(part) else f"⟦{part}⟧"
        for part in PLACEHOLDER.split(text.rpartition(CONTEXT)[2])
    )


class _Marking(trans_real.DjangoTranslation):
    """The catalogue of the language, whose texts are the marked English ones."""

    def gettext(self, message: str) -> str:
        return mark(message)

    def ngettext(self, msgid1: str, msgid2: str, n: float) -> str:
        return mark(msgid1 if n == 1 else msgid2)


@contextmanager
def marked() -> Iterator[None]:
    """Mark all texts that are translated inside of the block."""
    real = trans_real._translations.copy()
    trans_real._translations[LANGUAGE] = _Marking(LANGUAGE)
    try:
        with translation.override(LANGUAGE):
            yield
    finally:
        trans_real._translations = real


@dataclass(frozen=True)
class Text:
    """A visible text of a page: of an element, or of one of its attributes."""

    text: str
    element: str
    attribute: str = ""

    @property
    def unmarked(self) -> str:
        return " ".join(MARKED.sub(" ", self.text).split())


VOID: Final = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"})
HIDDEN: Final = frozenset({"script", "style", "code", "pre", "textarea", "samp", "kbd"})
"""Elements that contain code, or data that was typed."""
SHOWN: Final = frozenset({"title", "aria-label", "aria-description", "placeholder", "alt", "label", "summary"})
INLINE: Final = frozenset({"wbr", "b", "em", "strong", "i", "mark"})
"""Elements that do not end a text."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[Text] = []
        self.values: list[Text] = []
        self._open: list[str] = []
        self._names: list[str] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self.flush()
        values = {name: value or "" for name, value in attrs}
        name = f"{tag}.{values.get('class', '')}".rstrip(".")
        for attribute, value in values.items():
            is_button = attribute == "value" and tag == "input" and values.get("type") in ("submit", "button", "reset")
            is_text = attribute.startswith("data-resty-") and " " in value
            if attribute in SHOWN or is_button or is_text:
                self.texts.append(Text(value, name, attribute))
            elif attribute not in ("id", "class", "name", "for"):
                self.values.append(Text(value, name, attribute))
        if tag not in VOID:
            self._open.append(tag)
            self._names.append(name)

    def handle_endtag(self, tag: str) -> None:
        if tag not in INLINE:
            self.flush()
        if tag in self._open:
            last = len(self._open) - 1 - self._open[::-1].index(tag)
            del self._open[last:], self._names[last:]

    def handle_data(self, data: str) -> None:
        if not HIDDEN.intersection(self._open):
            self._text += data

    def flush(self) -> None:
        if self._text.strip():
            self.texts.append(Text(self._text, " ".join(self._names[-2:])))
        self._text = ""


def texts_and_values(page: str) -> tuple[list[Text], list[Text]]:
    """Return the visible texts of a page, and the values of attributes that programs read."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    reader.flush()
    return reader.texts, reader.values
