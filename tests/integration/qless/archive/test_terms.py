"""The archive's index of words: which terms rows have, and that they follow their rows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command

from resty_django.qless import Client
from resty_django.qless.archive import terms, writer
from resty_django.qless.models import ArchivedJob, ArchivedTerm
from resty_django.qless.search.query import parse
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import SEND, complete, drop, fail, rows, write

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]


def terms_of(jid: str) -> set[str]:
    return {entry.term for entry in ArchivedTerm.objects.filter(job__key=jid)}


def found(text: str) -> set[str] | None:
    """Return the jids that the index gives for a search."""
    ids = terms.candidates(parse(text), [SEND])
    return None if ids is None else {row.name for row in ArchivedJob.objects.filter(pk__in=ids)}


def test_the_terms_of_rows(site: Client) -> None:
    complete(
        site, "order-7", {"customer": {"name": "Ann Meyer", "password": "hunter2"}, "express": True}, tags=["EU-West"]
    )
    complete(site, "0" * 32, {"n": 7})
    fail(site, "f1")
    write(site)
    names = {"w:ann customer.name", "w:meyer customer.name", "w:eu #", "w:west #", "#eu-west", "w:order @", "w:7 @"}
    assert terms_of("order-7") == names
    assert terms_of("0" * 32) == {"w:7 n"}
    error = {f"w:{word} !" for word in ("mail", "keyerror", "zip", "code")}
    assert terms_of("f1") == {*error, "w:8 order", "w:f1 @"}


def test_the_number_and_length_of_terms_are_bounded(site: Client) -> None:
    words = [f"word{n}" for n in range(1000)]
    complete(
        site,
        "-".join(words[:20]),
        {"x" * 200: words, "long": "y" * 300},
        tags=[f"tag-{n}-{'z' * 250}" for n in range(50)],
    )
    write(site)
    [row] = rows().values()
    stored = terms_of(row.name)
    assert len(stored) == 16 + 4 + 4 + terms.MAX_TAGS
    assert max(map(len, stored)) <= 201
    assert found(f"tag:tag-19-{'z' * 250}") == {row.name}
    assert found(f"args.{'x' * 200}:word15") == {row.name}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann", {"a", "b"}),
        ("ANN", {"a", "b"}),
        ('"ann"', {"a"}),
        ("args.customer.name:ann", {"a", "b"}),
        ("args.customer.id:7", {"a"}),
        ("args.customer:7", {"a"}),
        ("args.id:7", set()),
        ("7", {"a"}),
        ("ann tag:eu", {"b"}),
        ("ann tag:e", set()),
        ("error:zip", {"f"}),
        ("größe", {"g"}),
        ("GRÖSSE", {"g"}),
        ("émile", {"g"}),
        ("emile", set()),
        ("class:send", None),
        ("age:>1h", None),
        ("send", {"a", "b", "g", "f"}),
        ("true", None),
        ("b", {"a", "b", "g", "f"}),
    ],
)
def test_candidates(site: Client, text: str, expected: set[str] | None) -> None:
    complete(site, "a", {"customer": {"id": 7, "name": "Ann"}, "new": True})
    complete(site, "b", {"customer": {"id": 70, "name": "Annette"}}, tags=["EU"])
    complete(site, "g", {"text": "Größe", "name": "Émile"})
    fail(site, "f")
    write(site)
    assert found(text) == expected


def test_frequent_words_are_not_read_from_the_index(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "MAX_CANDIDATES", 3)
    for n in range(4):
        complete(site, f"c{n}", {"name": "Ann", "n": n})
    write(site)
    assert found("ann") is None
    assert found("ann args.n:2") == {"c2"}
    assert found("ann args.n:9") == set()


def test_terms_are_replaced_with_the_row(site: Client, clock: Clock) -> None:
    fail(site, "f1")
    write(site)
    clock.skew = 10
    site.jobs["f1"].requeue("mail", data={"order": 9})
    job = site.queues["mail"].pop()
    assert job is not None
    job.complete()
    write(site)
    assert terms_of("f1") == {"w:9 order", "w:f1 @"}


def test_terms_are_deleted_with_the_row(site: Client, clock: Clock) -> None:
    for n in range(3):
        complete(site, f"c{n}")
    write(site)
    clock.skew = 366 * 86_400
    complete(site, "new")
    assert write(site).counts["pruned"] == 3
    assert {entry.job.name for entry in ArchivedTerm.objects.select_related("job")} == {"new"}


def test_a_batch_that_fails_writes_neither_rows_nor_terms(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: Any) -> None:
        raise RuntimeError("down")

    complete(site, "c1")
    with monkeypatch.context() as patch:
        patch.setattr(terms, "replace", down)
        with pytest.raises(RuntimeError, match="down"):
            write(site)
    assert rows() == {}
    write(site)
    assert terms_of("c1")


def test_the_command_indexes_all_rows_again(site: Client, clock: Clock) -> None:
    for n in range(5):
        complete(site, f"c{n}", {"name": "Ann", "n": n})
    write(site)
    expected = {jid: terms_of(jid) for jid in rows()}
    ArchivedTerm.objects.filter(job__key__in=["c0", "c1"]).delete()
    ArchivedTerm.objects.create(job=rows()["c2"], term="w:old x")
    drop(site, clock)
    assert sorted(writer.index_again(2)) == [1, 2, 2]
    assert {jid: terms_of(jid) for jid in rows()} == expected
    output = io.StringIO()
    call_command("qless_archive", "--index", stdout=output)
    assert "6 rows indexed." in output.getvalue()
