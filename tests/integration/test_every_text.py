"""Every text of every admin page goes through gettext, and every number and date through Django's formats."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from datetime import timezone as fixed_zone
from pathlib import Path
from typing import Any, Final

import pytest
from django.utils import timezone, translation
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from resty_django.concurrency import TimedCall, gather
from resty_django.limits.limiters.units import parse_rate, split_amount, split_rates
from resty_django.limits.specs.policy import PolicySpec
from resty_django.limits.specs.policy_validation import find_problems
from resty_django.text.durations import BadText, parse_duration, whole_rate
from resty_django.text.localized import translated
from tests.integration.pseudo import LANGUAGE, Text, marked, texts_and_values
from tests.integration.texts_of_pages import ENGLISH_NUMBER, LOCALIZED, words_without_marks, wrong_numbers

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_all_texts_are_translated_and_all_numbers_and_dates_have_the_formats_of_the_language() -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RESTY_TEST_", "PYTEST_"))}
    pages = Path(__file__).with_name("texts_of_pages.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pages)],
        cwd=ROOT,
        env=ours,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "2 passed" in done.stdout


def test_the_marks_find_untranslated_texts() -> None:
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


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1 jobs, 2 jobs", ["1 jobs"]),
        ("2 job", ["2 job"]),
        ("1⟦ job of ⟧12345", ["12345"]),
        ("12,345 limit policies, port a:12345", []),
        ("Job 6cc61e277…86039133", []),
        ("860391334…86039133 job", []),
        ("39133860-3913-3860-3913-860391334412, 06f86039133412345678", []),
    ],
)
def test_ungrouped_numbers_and_wrong_plurals_are_found(text: str, wrong: list[str]) -> None:
    assert sorted(wrong_numbers(Text(text, "p"))) == wrong


def test_concurrent_calls_have_the_language_and_the_time_zone_of_the_caller() -> None:
    zone = fixed_zone(timedelta(hours=3), "three")

    def ask() -> tuple[str, str, str]:
        return translation.get_language(), gettext("Yes"), timezone.get_current_timezone_name()

    with marked(), timezone.override(zone):
        (reply,) = gather([TimedCall("language", ask)])
    assert reply.value == (LANGUAGE, "⟦Yes⟧", "three")
