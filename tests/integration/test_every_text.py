"""Every text of every admin page goes through gettext, and every number and date through Django's formats."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from datetime import timezone as fixed_zone
from typing import Any, Final

import pytest
from django.test import Client as Browser
from django.utils import timezone, translation
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

import resty_django
from resty_django.concurrency import Call, gather
from resty_django.durations import BadText, parse_duration
from resty_django.limits.limiters.units import parse_rate, split_amount, split_rates, whole_rate
from resty_django.limits.policies.spec import PolicySpec, find_problems
from resty_django.translated_errors import translated
from tests.e2e.conftest import long_names
from tests.e2e.layout import KEY, SEEDS, crawl
from tests.integration.limits.policy_tools import limits_site
from tests.integration.pseudo import LANGUAGE, Text, marked, texts_and_values

__all__ = ["limits_site", "long_names"]

SENTENCES: Final = (
    KEY,
    "A customer of long standing",
    "Age of the oldest runnable job",  # incidents store their titles
    "Demo shop",
    "Import of the customers of central Europe",
    "Timeout: the server said nothing",
    "Too many requests for invoices of other customers",
    "until the new renderer of customer notifications is deployed everywhere",
    "until the new renderer of customer notifications is deployed…",
)
"""Data of the site that reads like texts."""
IDENTIFIER: Final = re.compile(r"\S*\w[-._:/@={}%#]\w\S*|\S*\w…|[0-9a-f]{32}|\S*\d\S*|'\w+'")
"""Technical names and values: with inner punctuation or digits, shortened, or terms of a search."""
NAMES: Final = frozenset(
    [
        *("admin", "application", "archived", "bans", "body", "default", "dictionary", "enforce", "eu", "events"),
        *("fixes", "heartbeat", "import", "ip", "limits", "lmdb", "loop", "off", "ordered", "pages", "qless"),
        *("latency", "ql", "redacted", "run", "shared", "source", "threads", "vip"),
        *("compress", "early", "failures", "ipc", "jitter", "tags", "ttl", "exptime", "timeout", "step", "ratio"),
        *("password", "passwd", "secret", "token", "apikey", "authorization", "cookie", "cvv"),
        *("CSV", "JSON", "None", "OK", "Orders", "Search", "True", "Valkey", "CET", "CEST", "UTC"),
        *("SendCustomerInvoiceReminder", "ConnectionResetByPeerError", "deleted", "error", "tag"),
    ]
)
"""Names of the objects of the site, fields of the search, values of settings, and texts of Django and of the demo."""
WORD: Final = re.compile(r"[^\W\d_]{2,}")

ENGLISH_NUMBER: Final = re.compile(
    r"(?<![\w.,\u00a0\u202f-])\d{1,3}(?:,\d{3})+(?![\w,])|(?<![\w.:-])\d+\.\d+(?= ?(?:%|⟦|s\b))"
)
ISO_DATE: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")
LOCALIZED: Final = re.compile(r"\d,\d|\d[\u00a0\u202f]\d")


def words_without_marks(text: Text) -> list[str]:
    if text.element.startswith("datalist"):  # terms of a search
        return []
    rest = text.unmarked
    for sentence in SENTENCES:
        rest = rest.replace(sentence, " ")
    names = NAMES | {socket.gethostname()}
    words = (word.strip("(),;.:›·|\"'[]{}+") for word in rest.split())
    return [word for word in words if WORD.search(word) and word not in names and not IDENTIFIER.fullmatch(word)]


def import_everything() -> None:
    """Import all modules of the admin in English, so that what is translated at import is English."""
    for module in pkgutil.walk_packages(resty_django.__path__, "resty_django."):
        if ".admin" in module.name or module.name.endswith((".timeline", ".overview", ".preview")):
            importlib.import_module(module.name)


@pytest.mark.redis
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_all_texts_are_translated_and_all_numbers_and_dates_have_the_formats_of_the_language(
    admin_client: Browser, long_names: Any, settings: Any
) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    import_everything()
    problems, views = dict[str, str](), set[str]()
    with marked():
        for page in crawl(admin_client, SEEDS, 1, by_parameters=False):
            views.add(page.view)
            texts, values = texts_and_values(page.content)
            for text in texts:
                shown = f"{text.element} {text.attribute}: {text.text.strip()[:200]!r}"
                if words := words_without_marks(text):
                    problems.setdefault(f"not translated: {words} in {shown}", page.url)
                if ENGLISH_NUMBER.search(text.text) or ISO_DATE.search(text.text):
                    problems.setdefault(f"not in the format of the language: {shown}", page.url)
            for value in values:
                if LOCALIZED.search(value.text):
                    shown = f"{value.attribute} of {value.element}: {value.text[:200]!r}"
                    problems.setdefault(f"localized: {shown}", page.url)
    assert not problems, "\n".join(f"{problem} in {url}" for problem, url in sorted(problems.items()))
    assert len(views) > 70


def test_the_marks_find_what_is_not_translated() -> None:
    at_import = gettext("Yes")
    with marked():
        texts, values = texts_and_values(
            f"<h1 title='plain words'>{gettext_lazy('Yes')}</h1><p>{at_import}</p>"
            f"<td>{gettext('%(name)s of <b>all %(count)s</b>') % {'count': 3, 'name': 'rows at rest'}}</td>"
            f"<i>{ngettext('%(count)s row', '%(count)s rows', 2) % {'count': 2}}</i><td>{pgettext('time', 'now')}</td>"
            "<rect width='12,5'/><code>some words</code><button type='submit' value='some words'></button>"
        )
    found = [word for text in texts for word in words_without_marks(text)]
    assert found == ["plain", "words", "Yes", "rows", "at", "rest"]
    assert "12,5" in [value.text for value in values if LOCALIZED.search(value.text)]


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_duration("soon"),
        lambda: parse_duration("1 fortnight"),
        lambda: parse_duration(-1),
        lambda: parse_rate("fast"),
        lambda: parse_rate("1/fortnight"),
        lambda: parse_rate("0/s"),
        lambda: parse_rate(0),
        lambda: split_rates("1/s;"),
        lambda: whole_rate("0.5/s"),
        lambda: split_amount("1/s burst=2", "capacity"),
        lambda: split_amount("1/s burst=2", ""),
    ],
)
def test_errors_of_rates_and_durations_can_be_translated(read: Callable[[], Any]) -> None:
    with pytest.raises(BadText) as raised:
        read()
    english = str(raised.value)
    assert translated(raised.value) == english
    with marked():
        assert re.sub("[⟦⟧]", "", translated(raised.value)) == english
        assert "⟦" in translated(raised.value)
    assert str(copy.copy(raised.value)) == english


def test_problems_of_policies_are_translated() -> None:
    with marked():
        for values in ({"rate": "fast"}, {"rate": "1/s;"}, {"max_wait": "soon"}, {"tiers": "pro: fast"}):
            spec = PolicySpec(**{"name": "api", "algorithm": "leaky_bucket", "key": "ip", "rate": "1/s", **values})
            problems = find_problems(spec)
            assert problems, values
            assert all("⟦" in problem for problem in problems.values()), problems


@pytest.mark.parametrize(
    ("text", "is_english"),
    [("1,234", True), ("2.5 s", True), ("9.5 %", True), ("1\u202f234,5 s", False), ("Valkey 9.1.2", False)],
)
def test_numbers_in_the_english_format_are_found(text: str, is_english: bool) -> None:
    assert bool(ENGLISH_NUMBER.search(text)) is is_english


def test_concurrent_calls_have_the_language_and_the_time_zone_of_the_caller() -> None:
    zone = fixed_zone(timedelta(hours=3), "three")

    def ask() -> tuple[str, str, str]:
        return translation.get_language(), gettext("Yes"), timezone.get_current_timezone_name()

    with marked(), timezone.override(zone):
        (reply,) = gather([Call("language", ask)])
    assert reply.value == (LANGUAGE, "⟦Yes⟧", "three")
