"""The searchable parts of a job, and the terms of the index."""

from __future__ import annotations

import re
from typing import Any

import pytest

from resty_django.qless import task
from resty_django.qless.search.query import parse
from resty_django.qless.search.terms import (
    Document,
    document,
    error_text,
    index_terms,
    match_all,
    patterns,
    words,
)

JID = "0123456789abcdef0123456789abcdef"
DATA = {"customer": {"id": 7, "name": "Ann Meyer", "password": "hunter2"}, "lines": [{"sku": "AB-1"}], "paid": True}


@task
def count(first: int, *rest: int) -> None:
    """A task that takes any number of positional arguments."""


def terms_of(data: Any, **fields: Any) -> list[str]:
    return index_terms(document(JID, "K", data, **fields))


def test_a_job_has_terms_for_class_txid_and_words() -> None:
    error = error_text({"group": "mail-KeyError", "message": "Traceback\nKeyError: 'zip'"})
    job = document("invoice-7", "shop.Send", DATA, txid="T1", tags=["eu"], error=error)
    assert index_terms(job) == [
        "c:shop.Send",
        "t:T1",
        *("w:1\x1flines.sku", "w:7\x1f@", "w:7\x1fcustomer.id", "w:ab\x1flines.sku", "w:ann\x1fcustomer.name"),
        *("w:eu\x1f#", "w:invoice\x1f@", "w:keyerror\x1f!", "w:mail\x1f!", "w:meyer\x1fcustomer.name", "w:zip\x1f!"),
    ]
    assert index_terms(document(JID, "K", {}, failed=True)) == ["c:K", "f:K"]


def test_hidden_values_are_not_indexed(settings: Any) -> None:
    assert not any("hunter2" in term or "redacted" in term for term in terms_of(DATA))
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"REDACT": ["customer"]}}
    assert not any("ann" in term for term in terms_of(DATA))


def test_positional_arguments_of_an_unknown_task_are_not_indexed() -> None:
    assert terms_of({"args": ["hunter2"], "kwargs": {"order": 5}}) == ["c:K", "w:5\x1forder"]


def test_more_positional_arguments_than_names_have_their_positions(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"MODULES": [__name__]}}
    named = index_terms(document(JID, f"{__name__}.count", {"args": [70, 71, 72, 73], "kwargs": {}}))
    assert [term for term in named if term.startswith("w:")] == [
        *("w:70\x1ffirst", "w:71\x1frest", "w:72\x1f2", "w:73\x1f3")
    ]


def test_terms_are_bounded() -> None:
    assert len(terms_of({f"n{number}": f"v{number}" for number in range(1000)})) == 1 + 16
    long = terms_of({"text": " ".join(f"w{number}" for number in range(1000)), "other": "last"})
    assert len(long) == 1 + 6 + 1
    assert "w:last\x1fother" in long
    longest = terms_of({"p" * 500: "x" * 500}, txid="t" * 5000, error="e" * 5000, tags=["g" * 500])
    assert max(map(len, longest)) <= 210


def test_terms_contain_no_separators() -> None:
    odd = "a\x00b\nc\x1fd\udc80e"
    terms = index_terms(document(odd, odd, {odd: odd}, txid=odd, tags=[odd], error=odd))
    assert not any("\x00" in term or "\n" in term or term.count("\x1f") > 1 for term in terms)
    assert terms[0].startswith("c:a")
    "".join(terms).encode()


def test_a_text_is_split_into_words() -> None:
    assert words("Ann_Meyer <a@b.org>, 7.5 ÄRGER") == ["ann", "meyer", "a", "b", "org", "7", "5", "ärger"]


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("args.customer.id:7", [[("w:7\x1fcustomer.id", "customer.id")]]),
        ("args.customer.name:ann", [[("w:ann", "customer.name")]]),
        ('args.name:"Ann Meyer"', [[("w:ann\x1fname", "name")], [("w:meyer\x1fname", "name")]]),
        ("args.name:ann-mey", [[("w:ann\x1fname", "name")], [("w:mey", "name")]]),
        ("args.paid:true", []),
        ("error:KeyError", [[("w:keyerror", "!")]]),
        ("class:shop.Send", [[("c:shop.Send\0", "")]]),
        ("class:send", [[("c:shop.Send\0", ""), ("c:shop.SendAll\0", "")]]),
        ("class:none", [[("c:none\0", "")]]),
        ("txid:T1", [[("t:T1\0", "")]]),
        ("age:>1h", []),
        ("???", []),
        ("ann", [[("w:ann", ""), ("t:ann\0", "")]]),
        ("sendall", [[("w:sendall", ""), ("c:shop.SendAll\0", ""), ("t:sendall\0", "")]]),
    ],
)
def test_a_term_has_its_patterns_of_the_index(text: str, lists: list[list[tuple[str, str]]]) -> None:
    (term,) = parse(text)
    classes = ["shop.SendAll", "shop.Send"]
    assert patterns(term, classes) == lists
    of_failed = [[(re.sub("^c:", "f:", prefix), path) for prefix, path in each] for each in lists]
    assert patterns(term, classes, failed=True) == of_failed


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("args.customer.id:7", ["args.customer.id"]),
        ("args.customer:7", ["args.customer.id"]),
        ("args.customer.id:70", None),
        ("args.cust:7", None),
        ("args.customer.name:mey", ["args.customer.name"]),
        ("args.customer.name:eyer", None),
        ('"Ann Mey"', None),
        ('"ann meyer"', ["args.customer.name"]),
        ("args.paid:true", ["args.paid"]),
        ("args.lines.sku:ab-1", ["args.lines.sku"]),
        ("hunter2", None),
        ("error:keyerror ann", ["error", "args.customer.name"]),
        ("class:tasks.se", ["class"]),
        ('class:"shop.tasks"', None),
        ("txid:T1", ["txid"]),
        ("txid:T", None),
        ("tag:eu", ["tag"]),
        ("eu", ["tag"]),
        ("0123456789abcdef", ["jid"]),
        ("age:>1h", []),
        ("age:<1h", None),
    ],
)
def test_a_job_matches_with_the_fields_that_fit(text: str, where: list[str] | None) -> None:
    job = document(JID, "shop.tasks.Send", DATA, txid="T1", tags=["eu"], error="mail-KeyError: KeyError: 'zip'")
    fragments = match_all(parse(text), job, 4000)
    assert (None if fragments is None else [fragment.label for fragment in fragments]) == where


def test_matches_inside_words_and_their_places() -> None:
    job = Document(JID, "K", values=[("name", "Ann Meyer")])
    assert match_all(parse("eye"), job, 0) is None
    (fragment,) = match_all(parse("eye"), job, 0, inside=True) or []
    assert fragment.text[fragment.start : fragment.end] == "eye"
