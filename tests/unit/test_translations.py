"""The catalogues of the package: complete, with the placeholders of the English texts, and compiled."""

from __future__ import annotations

import ast
import gettext
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from django.utils.translation.template import templatize

PACKAGE: Final = Path(__file__).resolve().parents[2] / "resty_django"
PLURALS: Final = {"de": 2, "zh_Hans": 1}
FUNCTION: Final = re.compile(r"_|(?P<n>n?)(?P<p>p?)gettext(?:_lazy|_noop)?")
LITERAL: Final = r"u?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
CALL: Final = re.compile(rf"\b({FUNCTION.pattern})\((?P<texts>{LITERAL}(?:, {LITERAL})*)")
PLACEHOLDER: Final = re.compile(r"%%|%\(\w+\)[-#0-9.]*[sdrifg]|%[-#0-9.]*[sdrifg]\b|\{[\w.]*\}|</?[a-z][^>]*>|&\w+;")


class Text(NamedTuple):
    """The key of an entry in a catalogue."""

    context: str
    singular: str
    plural: str

    @classmethod
    def of_call(cls, function: str, arguments: list[str]) -> Text | None:
        match = FUNCTION.fullmatch(function)
        if match is None:
            return None
        rest = list(arguments)
        context = rest.pop(0) if match["p"] else ""
        return cls(context, rest[0], rest[1] if match["n"] else "") if rest else None


def texts_of_module(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if text := Text.of_call(name, [value for value in values if isinstance(value, str)]):
            yield text


def texts_of_template(source: str) -> Iterator[Text]:
    for match in CALL.finditer(templatize(source)):
        literals = [ast.literal_eval(literal) for literal in re.findall(LITERAL, match["texts"])]
        if text := Text.of_call(match[1], literals):
            yield text


@cache
def texts_of_package() -> set[Text]:
    texts: set[Text] = set()
    for path in PACKAGE.rglob("*.py"):
        texts.update(texts_of_module(path.read_text()))
    for suffix in ("html", "txt"):
        for path in PACKAGE.rglob(f"*.{suffix}"):
            texts.update(texts_of_template(path.read_text()))
    return texts


def catalogue(language: str) -> Catalog:
    with (PACKAGE / f"locale/{language}/LC_MESSAGES/django.po").open("rb") as file:
        return read_po(file, locale=language)


def entries(language: str) -> dict[Text, tuple[str, ...]]:
    """Return the translations of each text: as many as the language has plural forms, or one."""
    texts = {}
    for message in catalogue(language):
        if message.id:
            singular, plural = message.id if isinstance(message.id, tuple) else (message.id, "")
            forms = message.string if isinstance(message.string, tuple) else (message.string,)
            texts[Text(message.context or "", singular, plural)] = tuple(str(form or "") for form in forms)
    return texts


def test_the_texts_of_a_module_and_of_a_template_are_found() -> None:
    module = (
        'a = _("one" " text")\nngettext("%(n)s row", "%(n)s rows", n)\nself.gettext("two")\npgettext("time", "now")\n'
    )
    assert set(texts_of_module(module)) == {
        Text("", "one text", ""),
        Text("", "%(n)s row", "%(n)s rows"),
        Text("", "two", ""),
        Text("time", "now", ""),
    }
    template = (
        "{% load i18n %}<p title=\"{% translate \"Now\" context 'time' %}\">{{ _('later') }}</p>"
        "{% blocktranslate trimmed count n=1 %}\n  {{ n }} row\n{% plural %}{{ n }} rows{% endblocktranslate %}"
    )
    assert {*texts_of_template(template)} >= {
        Text("time", "Now", ""),
        Text("", "later", ""),
        Text("", "%(n)s row", "%(n)s rows"),
    }


@pytest.mark.parametrize("language", PLURALS)
def test_a_catalogue_has_exactly_the_texts_of_the_package(language: str) -> None:
    texts, translated = texts_of_package(), entries(language)
    assert len(texts) > 1_500
    assert sorted(texts - translated.keys()) == [], (
        "Run `make messages`, which cannot see into f-strings, and translate these."
    )
    assert sorted(translated.keys() - texts) == [], "Run `make messages`."
    assert list(catalogue(language).obsolete) == []


@pytest.mark.parametrize("language", PLURALS)
def test_every_text_is_translated(language: str) -> None:
    fuzzy = [message.id for message in catalogue(language) if message.id and message.fuzzy]
    assert fuzzy == []
    for text, forms in entries(language).items():
        assert len(forms) == (PLURALS[language] if text.plural else 1), text
        assert all(forms), text


@pytest.mark.parametrize("language", PLURALS)
def test_translations_have_the_placeholders_and_tags_of_the_texts(language: str) -> None:
    for text, forms in entries(language).items():
        expected = Counter(PLACEHOLDER.findall(text.plural or text.singular))
        for number, form in enumerate(forms):
            if not form:
                continue
            placeholders = Counter(PLACEHOLDER.findall(form))
            if text.plural and len(forms) > 1 and number == 0:  # "one row" may leave out the number
                assert placeholders <= expected, form
            else:
                assert placeholders == expected, form
            assert form.endswith(" ") == text.singular.endswith(" "), form
            assert form.startswith(" ") == text.singular.startswith(" "), form


@pytest.mark.parametrize("language", PLURALS)
def test_a_catalogue_is_compiled(language: str) -> None:
    expected: dict[str | tuple[str, int], str] = {}
    for text, forms in entries(language).items():
        key = f"{text.context}\x04{text.singular}" if text.context else text.singular
        if all(forms):
            expected.update(
                {(key, number): form for number, form in enumerate(forms)} if text.plural else {key: forms[0]}
            )
    with (PACKAGE / f"locale/{language}/LC_MESSAGES/django.mo").open("rb") as file:
        compiled = dict(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]
    compiled.pop("")
    assert compiled == expected, "Run `make messages`."
