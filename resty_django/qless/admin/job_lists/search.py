"""The search for jobs: candidates from the index, the matches in each job, and suggestions for the search box."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from resty_django.conf import conf
from resty_django.text import printable

from ...clients.client import Client
from ...clients.job import Job
from ...clients.serialization import as_list
from ...errors import QlessError
from ...search import index
from ...search.index import IndexCounts
from ...search.query import FIELD_SUGGESTIONS, Term, first
from ...search.terms import Document, Fragment, Pattern, document, error_text, patterns
from .. import formatting

MAX_INDEXED: Final = 200
"""Maximum number of new jobs that a search indexes first."""
MAX_EXAMINED: Final = 1000
"""Maximum number of entries of the index that a search examines for one page: about 5 ms of the server's time."""
FEW_ENTRIES: Final = 1000
"""A number of entries for which no other list is considered."""
_CURSOR: Final = re.compile(r"i(\d{1,2})\.([\w=-]*)", re.ASCII)

EXAMPLES: Final = (
    "state:failed error:KeyError",
    "class:shop.tasks.send_invoice age:>1h",
    "args.customer.id:7",
    'args.customer.name:"Ann Meyer"',
    "queue:mail tag:eu",
)


@dataclass(frozen=True, slots=True)
class JidChunk:
    """A part of the jobs that a search examines. `cursor`: where the next one starts; empty at the end."""

    jids: list[str]
    cursor: str
    examined: int


@dataclass(slots=True)
class IndexLookup:
    """The candidates of a search: jobs that contain its words according to the index. Their texts may still not match.

    `lists`: patterns of the index, see `terms.patterns`. `total`: the number of entries of the smallest list.
    """

    client: Client
    lists: list[list[Pattern]]
    state: str
    queue: str
    driver: int = 0
    total: int = 0
    counts: IndexCounts | None = None

    @classmethod
    def build(cls, client: Client, terms: Sequence[Term], klass: str, state: str, queue: str) -> IndexLookup | None:
        """Return the lookup of a search; None if the index cannot help.

        It first indexes some new jobs. `klass`: a filter, which has to be exact if it is alone.
        """
        if not conf.qless.search_arguments:
            terms = [term for term in terms if term.field not in ("", "args")]
        terms = [*terms, Term("class", klass, quoted=True)] if klass else terms
        lists, counts = _count(client, terms, state)
        if lists and counts.enabled and (counts.unindexed or not counts.complete):
            if not counts.complete:
                client.call("index.sweep")
            index.index_jobs(client, MAX_INDEXED)
            lists, counts = _count(client, terms, state)
        exact = len(terms) == 1 and bool(klass)
        contained = counts.contains(klass or first(terms, "class"), state)
        if not lists or not contained or not counts.enabled or not counts.complete:
            return None
        if exact and (counts.unindexed or counts.full):
            return None
        numbers = iter(as_list(counts.counts))
        totals = [sum(next(numbers) for _pattern in patterns_list) for patterns_list in lists]
        total = min(totals)
        return cls(client, lists, state, queue, totals.index(total), total, counts)

    def chunk(self, cursor: str, count: int) -> JidChunk:
        """Return the next candidates, about `count`."""
        match = _CURSOR.fullmatch(cursor)
        position = ""
        if match and int(match[1]) < len(self.lists):
            self.driver = int(match[1])
            position = _decoded(match[2])
        elif not self.total:
            return JidChunk([], "", 0)
        others = [patterns_list for number, patterns_list in enumerate(self.lists) if number != self.driver]
        page = index.find(
            self.client,
            [self.lists[self.driver], *others],
            state=self.state,
            queue=self.queue,
            cursor=position,
            count=count,
        )
        next_cursor = page.cursor and f"i{self.driver}.{_encoded(page.cursor)}"
        return JidChunk(as_list(page.jobs), next_cursor, page.examined)


def _count(client: Client, terms: Sequence[Term], state: str) -> tuple[list[list[Pattern]], IndexCounts]:
    """Return the patterns of a search and their counts."""
    reads_classes = any((term.field == "class" and not term.quoted) or not term.field for term in terms)
    classes = index.classes(client) if reads_classes else []
    lists = [patterns_list for term in terms for patterns_list in patterns(term, classes, failed=state == "failed")]
    return lists, index.count(client, [pattern for patterns_list in lists for pattern in patterns_list])


def _encoded(cursor: str) -> str:
    return base64.urlsafe_b64encode(cursor.encode("utf-8", "surrogateescape")).decode()


def _decoded(text: str) -> str:
    try:
        cursor = base64.urlsafe_b64decode(text).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""
    return cursor if re.match(r"\d+:", cursor) else ""


def is_index_cursor(cursor: str) -> bool:
    return _CURSOR.fullmatch(cursor) is not None


def document_of(job: Job) -> Document:
    """Return the searchable texts of a job, without parts that cannot be read."""
    try:
        data = job.data
    except QlessError:
        data = None
    try:
        failure = job.failure if job.state == "failed" else None
    except QlessError:
        failure = None
    return document(
        *(job.jid, job.klass, data), txid=job.txid or "", tags=[*map(str, job.tags)], error=error_text(failure)
    )


def age_of(job: Job, now: float) -> float:
    """Return the seconds since the job was put."""
    try:
        entries = job.raw_queue_history
        return now - float(entries[0]["when"]) if entries else 0.0
    except (QlessError, LookupError, TypeError, ValueError):
        return 0.0


def fragments_html(fragments: Sequence[Fragment]) -> SafeString:
    """Return the matches of a search with their context; the matches are marked."""
    return format_html_join("; ", "{}", [(_fragment_html(fragment),) for fragment in fragments])


def _fragment_html(fragment: Fragment) -> SafeString:
    context = 30  # characters before and after the match
    text, start, end = fragment.text, fragment.start, min(fragment.end, fragment.start + 2 * context)
    first, last = max(0, start - context), end + context
    return format_html(
        '<span class="resty-quiet">{}:</span> {}{}<mark>{}</mark>{}{}',
        formatting.name(fragment.label, 2 * context),
        "…" if first else "",
        printable(text[first:start], context),
        printable(text[start:end], 2 * context),
        printable(text[end:last], context),
        "…" if last < len(text) else "",
    )


def suggestions(client: Client, queues: Sequence[str]) -> list[str]:
    """Return texts that complete the search: fields, and the known states, queues, classes and tags."""
    values = [
        *FIELD_SUGGESTIONS,
        *valued("queue", queues),
        *valued("class", sorted(index.classes(client))),
        *valued("tag", client.tags(0, 50)),
    ]
    return values[:300]


def valued(name: str, values: Sequence[object], *, exact: bool = False) -> list[str]:
    """Return `name:value` for values that the search box can hold. `exact`: with quotation marks."""
    return [
        f'{name}:"{value}"' if exact or re.search(r"\s", value) else f"{name}:{value}"
        for value in map(str, values)
        if value.isprintable() and '"' not in value and "\\" not in value and len(value) <= 200 and value
    ]


def notes(lookup: IndexLookup | None, terms: Sequence[Term] = (), state: str = "") -> list[str]:
    """Return notes for the user if results may be missing, or the search examines jobs one by one."""
    if lookup is None or lookup.counts is None:
        if state == "failed" or not any(term.field in ("", "args", "error", "class", "txid") for term in terms):
            return []
        return [
            _(
                "This search examines jobs one by one, because the index contains only failed jobs, and jobs of the "
                "classes in the option index-classes. With state:failed it reads the index."
            )
        ]
    texts = []
    if lookup.counts.unindexed:
        texts.append(
            _("%(jobs)s are not in the index yet and may be missing.")
            % {"jobs": formatting.job_count(lookup.counts.unindexed)}
        )
    if lookup.counts.full:
        texts.append(_("The index is full, so newer jobs may be missing. The option max-index is its size."))
    return texts
