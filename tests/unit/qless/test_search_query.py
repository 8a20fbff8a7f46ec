"""The grammar of the job search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.qless.search.query import QueryError, Term, age_fits, parse


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("   ", []),
        ("ann", [Term("", "ann")]),
        ("ann  meyer", [Term("", "ann"), Term("", "meyer")]),
        ('"ann meyer"', [Term("", "ann meyer", quoted=True)]),
        (r'"say \"hi\""', [Term("", 'say "hi"', quoted=True)]),
        ('"shop.order:7"', [Term("", "shop.order:7", quoted=True)]),
        ("12:30", [Term("", "12:30")]),
        ("state:failed", [Term("state", "failed")]),
        ("STATE:failed", [Term("state", "failed")]),
        ("class:shop.tasks.send_invoice", [Term("class", "shop.tasks.send_invoice")]),
        ("args:7", [Term("args", "7")]),
        ("args.customer.id:7", [Term("args", "7", "customer.id")]),
        ("args.kwargs.Customer:7", [Term("args", "7", "customer")]),
        ('args.name:"Ann Meyer"', [Term("args", "Ann Meyer", "name", quoted=True)]),
        ("queue:mail tag:eu tag:vip", [Term("queue", "mail"), Term("tag", "eu"), Term("tag", "vip")]),
        ("error:mail-KeyError age:>1h", [Term("error", "mail-KeyError"), Term("age", ">1h")]),
        ("txid:a:b", [Term("txid", "a:b")]),
        ("ümlaut", [Term("", "ümlaut")]),
    ],
)
def test_a_text_is_split_into_terms(text: str, terms: list[Term]) -> None:
    assert list(parse(text)) == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:red", "There is no field colour. To search for text with a colon, put it in quotation marks."),
        ("https://x", "There is no field https."),
        ("tag.x:red", "There is no field tag.x."),
        ("state:", "state: needs a value."),
        ('tag:" "', "tag: needs a value."),
        ('""', "Quotation marks need a text between them."),
        ("state:lost", "There is no state lost. The states are waiting, running,"),
        ("state:failed state:waiting", "state: can be used once."),
        ("queue:a queue:b", "queue: can be used once."),
        ("age:1h", "1h is not an age. Write for example age:>1h"),
        ("age:>1y", ">1y is not an age."),
        ("age:>-1h", "is not an age."),
        ("age:", "age: needs a value."),
        ('"ann', "A quotation mark is missing"),
        ('an"n', "A quotation mark is missing"),
        ('"ann"x', "A quotation mark is missing"),
        ("x" * 501, "The search is longer than 500 characters."),
        (" ".join("abcdefghijklm"), "The search has more than 12 terms."),
    ],
)
def test_errors_name_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "age", "fits"),
    [
        (">1h", 3601, True),
        (">1h", 3600, False),
        ("<30m", 1799, True),
        ("<30m", 1800, False),
        (">=1.5d", 129_601, True),
        ("<2w", 1_209_599, True),
        (">10s", 9, False),
    ],
)
def test_ages_are_compared(condition: str, age: float, fits: bool) -> None:
    assert age_fits(condition, age) is fits


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        terms = parse(text)
    except QueryError:
        return
    assert all(term.value.strip() for term in terms)


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip()))
def test_any_text_can_be_quoted(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse(quoted) == (Term("", text, quoted=True),)
