"""The archive's index of words: the terms of a row, and the rows that may match a search.

Words have the same terms as in the core's index (search/terms.py), with the same bounds. In addition, a tag is one term
as a whole. Classes and txids are columns with indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from django.db import connections, router
from django.db.models import Q

from ..models import ArchivedJob, ArchivedTerm
from ..search.query import Term
from ..search.terms import CLASS, NAME_LENGTH, TXID, Document, Pattern, patterns, word_terms

MAX_TAGS: Final = 20
"""Maximum number of tags of a job in the index."""
MAX_CANDIDATES: Final = 2000
"""Maximum number of rows that a search takes from the index. It finds more frequent words sooner in the rows."""
INSERT_BATCH: Final = 5000

_TAG: Final = "#"
_LAST: Final = "\U0010ffff"
"""Comes after each text with the same beginning."""


def terms_of(job: Document) -> list[str]:
    """Return the terms of a row."""
    return sorted({*map(_stored, word_terms(job)), *map(_tag_term, job.tags[:MAX_TAGS])})


def _stored(term: str) -> str:
    """Return a term of the core's index with a space before the path: MariaDB compares texts as if spaces followed."""
    return term.replace("\x1f", " ")


def _tag_term(tag: str) -> str:
    return f"{_TAG}{tag.casefold()[:NAME_LENGTH]}"


def replace(database: str, terms: Iterable[tuple[int, Sequence[str]]], replaced: Collection[int]) -> None:
    """Insert the terms of rows, with their ids; delete the terms of the rows `replaced` first."""
    entries = ArchivedTerm.objects.using(database)
    if replaced:
        entries.filter(job_id__in=replaced).delete()
    rows = [ArchivedTerm(job_id=id, term=term) for id, row_terms in terms for term in row_terms]
    # MariaDB ignores spaces at the end of a text, so two terms may be the same there
    entries.bulk_create(rows, ignore_conflicts=True, batch_size=INSERT_BATCH)


def candidates(terms: Iterable[Term], classes: Sequence[str]) -> set[int] | None:
    """Return the ids of all rows that may match the terms of a search; None if the index cannot help: it does not
    contain the words, or has more than `MAX_CANDIDATES` rows for each of them.

    `classes`: the names of classes in the archive.
    """
    ids: set[int] | None = None
    for term in terms:
        for conditions in _conditions(term, classes):
            matches = _ids(conditions)
            if matches is not None:
                ids = matches if ids is None else ids & matches
            if ids is not None and not ids:
                return ids
    return ids


_Condition = tuple[type[ArchivedJob] | type[ArchivedTerm], Q]


def _conditions(term: Term, classes: Sequence[str]) -> list[list[_Condition]]:
    """Return lists of conditions: a row that matches the term fits one condition of each list."""
    if term.field == "tag":
        return [[(ArchivedTerm, Q(term=_tag_term(term.value)))]]
    if term.field not in ("args", "error", ""):
        return []
    begins_jid = [] if term.field else [(ArchivedJob, _begins_jid(term.value))]
    return [[*map(_condition, pattern_list), *begins_jid] for pattern_list in patterns(term, classes)]


def _begins_jid(text: str) -> Q:
    """Return the condition that the jid begins with a text, in the form for which a database reads its index."""
    if connections[router.db_for_read(ArchivedJob)].vendor == "postgresql":
        return Q(key__startswith=text)
    return Q(key__gte=text, key__lt=text + _LAST)


def _condition(pattern: Pattern) -> _Condition:
    prefix, _path = pattern
    name = prefix[2:].removesuffix("\0")
    if prefix.startswith(CLASS):
        return ArchivedJob, Q(klass=name)
    if prefix.startswith(TXID):
        return ArchivedJob, Q(txid=name)
    return ArchivedTerm, Q(term__gte=_stored(prefix), term__lt=_stored(prefix) + _LAST)


def _ids(conditions: Iterable[_Condition]) -> set[int] | None:
    """Return the ids of the rows that fit one of the conditions; None if they are too many."""
    ids: set[int] = set()
    for model, condition in conditions:
        rows = model._default_manager.using(router.db_for_read(ArchivedJob)).filter(condition).order_by()
        ids.update(rows.values_list("pk" if model is ArchivedJob else "job_id", flat=True)[: MAX_CANDIDATES + 1])
        if len(ids) > MAX_CANDIDATES:
            return None
    return ids
