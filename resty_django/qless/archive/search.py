"""The search of the archive, with the grammar of the job search.

Results come in the order in which jobs were put, newest first. State, class, queue, txid and age are columns with
indexes. An index of terms (terms.py) returns the rows with rare words and tags. Frequent ones are searched in the
column `text`, in one window of an index after the other, until a page is full or the time is up; then the page has a
cursor. No query reads more than a window.

Jobs that Redis still has are left out, since the search there finds them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.db import router
from django.db.models import Q, QuerySet

from ..models import ArchivedJob
from ..search.query import Term, age_limit
from ..search.terms import Fragment, match_all, words
from .rows import document_of, from_db, to_db
from .terms import candidates

PAGE_SIZE: Final = 25
WINDOW: Final = 20_000
"""Number of rows in which a query searches for words."""
CANDIDATES: Final = 200
"""Maximum number of rows that a query returns."""
SECONDS: Final = 1.0
"""Seconds after which a page ends although it is not full."""
MAX_COUNTED: Final = 10_000
"""Rows are counted up to this number."""
MAX_CLASSES: Final = 200
"""Maximum number of classes that a part of a name stands for, and that are examined for it times 5."""
CLASSES_TTL: Final = 60.0

State: Final = ArchivedJob.State
ENDED: Final = (State.COMPLETE, State.FAILED, State.CANCELED)
_TEXT_FIELDS: Final = ("", "args", "error", "tag")
_CURSOR: Final = re.compile(r"(\d{20})-(\d{1,19})", re.ASCII)
_FORMAT: Final = "%Y%m%d%H%M%S%f"


@dataclass(frozen=True, slots=True)
class Query:
    """A search. `oldest`: the time of the oldest complete job in Redis (None: it has none)."""

    now: float
    state: str = ""
    queue: str = ""
    klass: str = ""
    tag: str = ""
    terms: tuple[Term, ...] = ()
    inside: bool = False
    oldest: float | None = None

    @property
    def all_terms(self) -> tuple[Term, ...]:
        return (*self.terms, Term("tag", self.tag, quoted=True)) if self.tag else self.terms

    @property
    def has_words(self) -> bool:
        """Whether a result depends on words or tags."""
        return any(term.field in _TEXT_FIELDS for term in self.all_terms)


@dataclass(frozen=True, slots=True)
class ArchivePage:
    """A page of results. `cursor`: where the next one begins, empty at the end; `examined`: the number of rows."""

    rows: Sequence[ArchivedJob] = ()
    fragments: Sequence[Sequence[Fragment]] = ()
    cursor: str = ""
    examined: int = 0


@dataclass(frozen=True, slots=True)
class _Position:
    put: datetime
    id: int

    @property
    def cursor(self) -> str:
        return f"{self.put.strftime(_FORMAT).zfill(20)}-{self.id}"

    def before(self) -> Q:
        return Q(put_at__lte=self.put) & (Q(put_at__lt=self.put) | Q(id__lt=self.id))

    def from_here(self) -> Q:
        return Q(put_at__gte=self.put) & (Q(put_at__gt=self.put) | Q(id__gte=self.id))


@dataclass(slots=True)
class Search:
    """Runs a query. `in_redis`: takes jids and returns those that Redis has."""

    query: Query
    in_redis: Callable[[Sequence[str]], Collection[str]] = field(default=lambda jids: ())
    _base: Q = field(default_factory=Q)
    """The conditions on the index that is read; `_residual`: all others."""
    _residual: Q = field(default_factory=Q)
    _possible: bool = True
    """Whether any row can match."""
    indexed: bool = False
    """Whether the rows to read come from the index of terms."""

    def __post_init__(self) -> None:
        self._possible = self._set_conditions()

    @property
    def scans(self) -> bool:
        """Whether words are searched in rows, so that the total is known only when all of them are examined."""
        return self.query.has_words and not self.indexed

    def page(self, cursor: str = "", size: int = PAGE_SIZE, seconds: float = SECONDS) -> ArchivePage:
        if not self._possible:
            return ArchivePage()
        end = time.monotonic() + seconds
        found: list[tuple[ArchivedJob, list[Fragment]]] = []
        examined, start = 0, _position(cursor)  # `start`: where the window begins
        for position, batch, count in self._windows(start):
            matches = [(row, places) for row in batch if (places := self._match(row)) is not None]
            present = self.in_redis([row.name for row, _places in matches]) if matches else ()
            found += [(row, places) for row, places in matches if row.name not in present]
            if len(found) > size:
                last = _Position(found[size - 1][0].put_at, found[size - 1][0].pk)
                return _page(found[:size], last.cursor, examined + self._count_between(start, last))
            if position is not None and time.monotonic() > end:
                return _page(found, position.cursor, examined + (count or self._count_between(start, position)))
            if count:
                examined, start = examined + count, position
        return _page(found, "", examined)

    def _count_between(self, start: _Position | None, last: _Position) -> int:
        """Return the number of rows of the index that is read, after `start` up to `last`; within a window."""
        rows = self._base & last.from_here()
        return self._rows(rows if start is None else rows & start.before()).order_by().count()

    def count(self, limit: int = MAX_COUNTED) -> tuple[int, bool]:
        """Return the number of rows that the indexes select, and whether there are more than `limit`."""
        if not self._possible:
            return 0, False
        rows = self._rows(self._base if self.scans else self._base & self._residual)
        number = rows.order_by()[: limit + 1].count()
        return min(number, limit), number > limit

    def all(self) -> Iterator[ArchivedJob]:
        """Yield all results."""
        cursor = ""
        while True:
            page = self.page(cursor, CANDIDATES)
            yield from page.rows
            cursor = page.cursor
            if not cursor:
                return

    # --- conditions ---

    def _set_conditions(self) -> bool:
        """Set the conditions; return False if nothing can match."""
        query, base, residual = self.query, Q(), Q()
        if query.state and query.state not in ENDED:
            return False
        for term in query.terms:
            if term.field == "age":
                sign, seconds = age_limit(term.value)
                try:
                    limit = to_db(query.now - seconds)
                except (OverflowError, OSError, ValueError):
                    limit = to_db(0)
                base &= Q(put_at__lt=limit) if sign == ">" else Q(put_at__gt=limit)
        equals: list[dict[str, Any]] = []
        txid = next((term.value for term in query.terms if term.field == "txid"), "")
        if txid:
            equals.append({"txid": txid})
        for names in self._classes():
            if not names:
                return False
            equals.append({"klass": names[0]} if len(names) == 1 else {"klass__in": names})
        if query.queue:
            equals.append({"queue": query.queue})
        if query.state:
            equals.append({"state": query.state})
        single = next((condition for condition in equals if "klass__in" not in condition), None)
        if single is not None:  # the condition whose index is read
            equals.remove(single)
            base &= Q(**single)
        for condition in equals:
            residual &= Q(**condition)
        if query.oldest is not None:
            oldest = to_db(query.oldest)
            if query.state == State.COMPLETE:
                base &= Q(put_at__lte=oldest)
            if query.state in ("", State.COMPLETE):
                residual &= ~Q(state=State.COMPLETE) | Q(finished_at__lte=oldest)
        for term in query.all_terms:
            residual &= self._words(term)
        ids = self._candidates()
        if ids is not None:
            base, residual = Q(pk__in=sorted(ids)), residual & base
        self.indexed, self._base, self._residual = ids is not None, base, residual
        return ids is None or bool(ids)

    def _candidates(self) -> set[int] | None:
        if not self.query.has_words or self.query.inside:
            return None
        is_text = any(not term.field for term in self.query.all_terms)
        return candidates(self.query.all_terms, classes() if is_text else ())

    def _classes(self) -> Iterator[list[str]]:
        """Yield the names of classes for each condition on the class."""
        if self.query.klass:
            yield [self.query.klass]
        for term in self.query.terms:
            if term.field == "class":
                names = classes()
                exact = term.quoted or term.value in names
                folded = term.value.casefold()
                yield [term.value] if exact else [name for name in names if folded in name.casefold()][:MAX_CLASSES]

    @staticmethod
    def _words(term: Term) -> Q:
        if term.field not in _TEXT_FIELDS:
            return Q()
        condition = Q(error_group__gt="") if term.field == "error" else Q()
        for word in words(term.value):
            condition &= Q(text__contains=word)
        return condition

    # --- reading ---

    def _rows(self, condition: Q) -> QuerySet[ArchivedJob]:
        rows = ArchivedJob.objects.using(router.db_for_read(ArchivedJob)).filter(condition)
        return rows.order_by("-put_at", "-id")

    def _windows(self, position: _Position | None) -> Iterator[tuple[_Position | None, list[ArchivedJob], int]]:
        """Yield candidates in order: where the next ones begin (None: nowhere), the rows, and the number of rows that
        were examined for them."""
        while True:
            base = self._base if position is None else self._base & position.before()
            edge = [] if self.indexed else list(self._rows(base).values_list("put_at", "id")[WINDOW - 1 : WINDOW])
            last = _Position(*edge[0]) if edge else None
            window = base & self._residual if last is None else base & self._residual & last.from_here()
            counted = WINDOW if last is not None else self._rows(base).order_by()[:WINDOW].count()
            while True:
                batch = list(self._rows(window).defer("text", "history")[:CANDIDATES])
                if len(batch) < CANDIDATES:
                    break
                position = _Position(batch[-1].put_at, batch[-1].pk)
                yield position, batch, 0
                window = (base & self._residual & position.before()) & (Q() if last is None else last.from_here())
            if last is None:
                yield None, batch, counted
                return
            position = last
            yield position, batch, counted

    def _match(self, row: ArchivedJob) -> list[Fragment] | None:
        terms = self.query.all_terms
        if not terms:
            return []
        return match_all(terms, document_of(row), self.query.now - from_db(row.put_at), self.query.inside)


def _page(found: Sequence[tuple[ArchivedJob, list[Fragment]]], cursor: str, examined: int) -> ArchivePage:
    return ArchivePage([row for row, _places in found], [places for _row, places in found], cursor, examined)


def _position(cursor: str) -> _Position | None:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        return None
    try:
        put = datetime.strptime(match[1], _FORMAT)
    except ValueError:
        return None
    return _Position(put.replace(tzinfo=UTC) if settings.USE_TZ else put, int(match[2]))


_known_classes: tuple[float, list[str]] = (0.0, [])


def classes() -> list[str]:
    """Return the names of classes in the archive; at most 1000. Each takes one step in an index; kept for a minute."""
    global _known_classes
    read_at, names = _known_classes
    if read_at and time.monotonic() - read_at < CLASSES_TTL:
        return names
    rows = ArchivedJob.objects.using(router.db_for_read(ArchivedJob)).order_by("klass")
    names, name = [], ""
    while len(names) < 5 * MAX_CLASSES:
        following = rows.filter(klass__gt=name).values_list("klass", flat=True).first()
        if following is None:
            break
        name = following
        names.append(name)
    _known_classes = time.monotonic(), names
    return names


def get(key: str) -> ArchivedJob | None:
    """Return the row of a jid's token."""
    return ArchivedJob.objects.using(router.db_for_read(ArchivedJob)).filter(key=key).first()
