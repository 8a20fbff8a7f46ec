"""All admin pages with marked texts.

test_every_text.py runs this in a separate process, since pages list the limits, caches and dictionaries that other
tests have declared.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import socket
from typing import Any, Final

import pytest
from django.test import Client as Browser

import resty_django
from resty_django.cache import CacheStats, mlcaches
from resty_django.ids.models import IdCounter
from resty_django.limits import Decision
from resty_django.limits.models import QuotaUsage
from resty_django.limits.statistics.reporter import stats
from resty_django.qless import Client
from resty_django.shdict import shdicts
from tests.e2e.conftest import long_names
from tests.e2e.layout import KEY, SEEDS, crawl
from tests.integration.limits.policy_tools import limits_site, make_policy
from tests.integration.pseudo import Text, marked, texts_and_values
from tests.integration.qless.conftest import pop

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
        *("password", "passwd", "pwd", "secret", "token", "authorization", "cookie", "cvv"),
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
UNGROUPED: Final = re.compile(r"(?<![\w.,:/#@=+&…-])\d{5,}(?![\w…-]|[.:/]\w)")
"""A number without thousands separators, except in a name, in either end of a shortened jid, a time or an address."""
NOUNS: Final = "job|row|key|tag|call|limit|request|worker|queue|member|failure|number|rule|unit|process"
WRONG_PLURAL: Final = re.compile(
    r"(?<![\w.,:/#…-])(?:1 (?!(?:class|process|address|status|access)\b)[a-z]{2,}s\b|"
    rf"(?:0|[2-9]|\d\d+) (?:{NOUNS})\b(?! \w+s\b))"
)
OTHER_TIME: Final = re.compile(r"\b20\d\d \d\d?:\d\d\b")
"""A date and time as Django writes them."""
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


def wrong_numbers(text: Text) -> list[str]:
    """Return numbers without separators, and numbers with the wrong form of their noun."""
    if "resty-id" in text.element or text.element.startswith("div.help"):  # keys, and what to type
        return []
    shown = re.sub("[⟦⟧]", "", text.text)
    return [*UNGROUPED.findall(shown), *WRONG_PLURAL.findall(shown)]


def count_much(client: Client) -> None:
    """Let the objects of the site have large numbers."""
    IdCounter.objects.update(bound=41_892)
    QuotaUsage.objects.update(used=41_892, limit=4_189_200, granted=41_892)
    make_policy("many-things", algorithm="leaky_bucket", rate="41892/s", burst=41_892, key="ip")
    shdicts["default"].set_many({f"many-{number}": number for number in range(12_345)})
    counts = mlcaches["pages"].counter.now
    for name in CacheStats.__slots__:
        setattr(counts, name, 41_892)
    limit = Decision(allowed=True, limit=41_892, remaining=1, reset_after=1, retry_after=0)
    for _ in range(12_345):
        stats.record("many-things", "1.2.3.4", limit)
    stats.flush()
    for _ in range(13):
        client.queues["many-things"].put_many({"klass": "shop.jobs.Send"} for _ in range(1000))
    pop(client.queues["many-things"]).complete()


def import_everything() -> None:
    """Import all modules of the admin in English, so that what is translated at import is English."""
    for module in pkgutil.walk_packages(resty_django.__path__, "resty_django."):
        if ".admin" in module.name or module.name.endswith((".overview", ".preview")):
            importlib.import_module(module.name)


@pytest.mark.redis
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("separators", [True, False])
def test_all_texts_are_translated_and_all_numbers_and_dates_have_the_formats_of_the_language(
    admin_client: Browser, long_names: Any, settings: Any, separators: bool
) -> None:
    settings.USE_THOUSAND_SEPARATOR = separators
    import_everything()
    count_much(long_names)
    problems, views = dict[str, str](), set[str]()
    with marked():
        for page in crawl(admin_client, SEEDS, 1, by_parameters=False):
            views.add(page.view)
            texts, values = texts_and_values(page.content)
            for text in texts:
                shown = f"{text.element} {text.attribute}: {text.text.strip()[:200]!r}"
                if words := words_without_marks(text):
                    problems.setdefault(f"not translated: {words} in {shown}", page.url)
                is_other = "/history/" not in page.url and OTHER_TIME.search(re.sub("[⟦⟧]", "", text.text))
                if ENGLISH_NUMBER.search(text.text) or ISO_DATE.search(text.text) or is_other:
                    problems.setdefault(f"not in the format of the language: {shown}", page.url)
                if numbers := wrong_numbers(text):
                    problems.setdefault(f"not grouped, or the wrong plural: {numbers} in {shown}", page.url)
            for value in values:
                if LOCALIZED.search(value.text):
                    shown = f"{value.attribute} of {value.element}: {value.text[:200]!r}"
                    problems.setdefault(f"localized: {shown}", page.url)
    assert not problems, "\n".join(f"{problem} in {url}" for problem, url in sorted(problems.items()))
    assert len(views) > 70
