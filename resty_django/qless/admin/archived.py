"""The archive of finished jobs: its search, the page of an archived job, and its part of the list of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.export import Sheet, moment
from resty_django.admin.tables import Column, Pager, Row, Table, changed, number_of, table
from resty_django.conf import conf
from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ..archive import search
from ..archive.marks import oldest_complete, status
from ..archive.rows import arguments_of, from_db, history_of, tags_of
from ..archive.search import ENDED, Query, Search
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..errors import QlessError
from ..models import ArchivedJob, name_of, token
from ..redaction import redacted_arguments
from ..search.query import QueryError
from ..tasks import calls
from . import formatting
from .arguments import display_json, editable_json
from .base import TEMPLATES, JobsAdmin
from .failure_report import failure_context
from .forms import ArchiveForm
from .job_history import history
from .job_lists import JobFilter
from .job_search import EXAMPLES, fragments_html
from .rows import MATCH_COLUMN

SECONDS_IN_LIST: Final = 0.3
"""Seconds for which the list of jobs searches the archive."""
MAX_ABOUT: Final = 100_000
"""Rows among which a search for words looks are counted up to this number."""
COLUMNS: Final = (
    Column("job", gettext_lazy("Job"), sorts=False),
    Column("klass", gettext_lazy("Class"), sorts=False),
    Column("state", gettext_lazy("State"), sorts=False),
    Column("queue", gettext_lazy("Queue"), sorts=False),
    Column("tags", gettext_lazy("Tags"), sorts=False),
    Column("put", gettext_lazy("Put"), sorts=False),
    Column("finished", gettext_lazy("Finished"), sorts=False),
    Column("ran", gettext_lazy("Ran for"), number=True, sorts=False),
    Column("about", gettext_lazy("About"), sorts=False),
)
EXPORTED: Final = (
    *("jid", "class", "state", "queue", "priority", "tags", "retries", "retries_left", "worker", "txid"),
    *("put", "started", "finished", "seconds_waiting", "seconds_running", "failure_group", "failure_message"),
    *("arguments_are", "arguments"),
)


class ArchivedJobAdmin(JobsAdmin[ArchivedJob]):
    live = False

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, ""), self.page_url("change", self.change_view)]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Search the archive. URL parameters: `q`, `state`, `queue`, `klass`, `tag`, `inside`, `cursor`; a `q` that is
        a jid redirects to its page."""
        self.check_view_permission(request)
        text = request.GET.get("q", "").strip()
        box: dict[str, Any] = {"jobs_url": formatting.list_url("archivedjob"), "filters": {"q": printable(text, 500)}}
        examples = [(example, formatting.list_url("archivedjob", q=example)) for example in EXAMPLES]
        box["search"] = {"suggestions": self._suggestions(), "examples": examples}
        if not conf.qless.archive.enabled:
            note = _('There is no archive. Set "ARCHIVE": {"RETENTION": "365d"} in QLESS.')
            return self.page(request, f"{TEMPLATES}/list.html", {**box, "title": _("Archive"), "notes": [note]})
        if text and archived(text):
            return HttpResponseRedirect(formatting.url("archivedjob", text))
        try:
            job_filter = JobFilter.from_query(request.GET)
        except QueryError as error:
            box["search"]["error"] = str(error)
            return self.page(request, f"{TEMPLATES}/list.html", {**box, "title": _("Archive")})
        client = self.client()
        archive_search, notes = _search(client, job_filter)
        archive = _table(request, archive_search, search.SECONDS)
        context: dict[str, Any] = {
            "title": _("Archive"),
            "table": archive,
            "form": ArchiveForm(request.GET),
            "hidden_filters": [("q", request.GET["q"])] if text else [],
            "notes": notes,
            "facts": self._facts(client) if not notes else [],
            "shortcuts": [
                (formatting.list_url("job", q=text), _("Search the jobs in Redis too")),
                *_inside_hints(request, archive_search),
                *((formatting.list_url("archivedjob", state=state), label) for state, label in _STATE_LINKS),
            ],
        }
        return self.page(request, f"{TEMPLATES}/list.html", {**box, **context})

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show an archived job (404 if there is none)."""
        self.check_view_permission(request)
        key = token(name_of(unquote(object_id)))
        row = search.get(key) if conf.qless.archive.enabled else None
        context: dict[str, Any] = {"title": formatting.name(name_of(key)), "on_object": True}
        context["object"] = row or self.model(key=key)
        if row is None:
            return self.page(request, f"{TEMPLATES}/archived_job.html", context, status=404)
        client = self.client()
        now, job = client.clock(), job_of(client, row)
        data, complete = display_json(job.raw_data, job.klass)
        present = row.name in _in_redis(client)([row.name])
        context |= {
            "row": row,
            "state": formatting.state(row.state),
            "facts": _facts_of(row, now),
            "data": data if row.arguments_are != row.Arguments.CUT else printable(row.arguments, 1000),
            "complete": complete and row.arguments_are != row.Arguments.CUT,
            "failure": failure_context(job, now) if row.error_group else None,
            "history": history(job, now),
            "tags": formatting.joined(
                (formatting.list_url("archivedjob", tag=token(tag)), formatting.name(tag)) for tag in tags_of(row)
            ),
            "in_redis": formatting.url("job", row.name) if present else "",
            "again_url": "",
            "again_note": "",
        }
        if self.may(request, "start_job"):
            context["again_url"], context["again_note"] = _run_again(row)
        return self.page(request, f"{TEMPLATES}/archived_job.html", context)

    @staticmethod
    def _suggestions() -> list[str]:
        names = search.classes() if conf.qless.archive.enabled else []
        plain = [name for name in names if name.isprintable() and not set(name) & set(' "\\')]
        return [*_FIELDS, *(f"class:{name}" for name in plain)]

    @staticmethod
    def _facts(client: Any) -> list[tuple[Any, Any]]:
        """Return how far the archive has come."""
        try:
            archive = status(client)
        except (StoreError, QlessError):
            return []
        now = client.clock()
        facts = [(_("Written"), formatting.relative_time(archive.at, now) if archive.at else _("never"))]
        if archive.behind:
            text = _("%(jobs)s, the oldest ended %(age)s ago")
            facts.append(
                (
                    _("Not archived yet"),
                    text % {"jobs": formatting.job_count(archive.behind), "age": formatting.duration(archive.lag)},
                )
            )
        if archive.lost:
            facts.append((_("Deleted before they were archived"), formatting.job_count(archive.lost)))
        return facts


_STATE_LINKS: Final = (
    ("complete", gettext_lazy("Completed")),
    ("failed", gettext_lazy("Failed")),
    ("canceled", gettext_lazy("Canceled")),
)
_FIELDS: Final = (
    "class:",
    "queue:",
    "tag:",
    "txid:",
    "error:",
    "age:",
    "args.",
    *(f"state:{state}" for state in ENDED),
)


# --- in the list of jobs ----------------------------------------------------------------------------------------------


def archived(jid: str) -> bool:
    """Return whether the archive has a job."""
    return conf.qless.archive.enabled and search.get(token(jid)) is not None


def archive_table(request: HttpRequest, client: Any, job_filter: JobFilter) -> Table | None:
    """Return the archived jobs that match the filter of the list of jobs; None if there is no archive, or the filter
    is about jobs in Redis alone."""
    if not _applies(job_filter):
        return None
    archive = _table(request, _search(client, job_filter)[0], SECONDS_IN_LIST, paged=False)
    more = _archive_url(request) if archive.pager.next else ""
    return replace(archive, pager=replace(archive.pager, next=more))


def archive_hint(request: HttpRequest, job_filter: JobFilter) -> list[tuple[str, str]]:
    """Return a link to the archived jobs that match the filter of the list of jobs."""
    return [(_archive_url(request), _("Archived jobs that match"))] if _applies(job_filter) else []


def _inside_hints(request: HttpRequest, archive: Search) -> list[tuple[str, str]]:
    """Return a link that repeats a search of the index without it."""
    if not archive.indexed:
        return []
    url = changed(request, inside="1", cursor=None, examined=None, matched=None)
    return [(url, _("Examine all jobs instead, also for parts of words"))]


def _applies(job_filter: JobFilter) -> bool:
    return (
        conf.qless.archive.enabled
        and not job_filter.only()
        and not (job_filter.group or job_filter.worker or job_filter.tracked)
        and job_filter.state in ("", *ENDED)
    )


def _archive_url(request: HttpRequest) -> str:
    return formatting.list_url("archivedjob") + changed(
        request, p=None, cursor=None, examined=None, matched=None, o=None
    )


# --- search -----------------------------------------------------------------------------------------------------------


def _search(client: Any, job_filter: JobFilter) -> tuple[Search, list[str]]:
    """Return the search of the archive, and notes; it leaves out jobs that Redis has, if Redis answers."""
    notes = []
    oldest: float | None = None
    in_redis = _in_redis(client)
    try:
        oldest = oldest_complete(client)
    except StoreError:
        in_redis = lambda jids: ()  # noqa: E731
        notes.append(_("Redis does not answer, so the list may contain jobs that are in Redis too."))
    query = Query(
        now=client.clock(),
        state=job_filter.state,
        queue=job_filter.queue,
        klass=job_filter.klass,
        tag=job_filter.tag,
        terms=job_filter.terms,
        inside=job_filter.inside,
        oldest=oldest,
    )
    return Search(query, in_redis), notes


def _in_redis(client: Any) -> Any:
    """Return a function that returns which of some jids Redis has; none of them if it does not answer."""

    def present(jids: Sequence[str]) -> Collection[str]:
        try:
            replies = client.call_many([("result", jid) for jid in jids])
        except StoreError:
            return ()
        return {jid for jid, reply in zip(jids, replies, strict=True) if isinstance(reply, bytes)}

    return present


def _table(request: HttpRequest, archive: Search, seconds: float, *, paged: bool = True) -> Table:
    page = archive.page(request.GET.get("cursor", "") if paged else "", seconds=seconds)
    now = archive.query.now
    rows = [_row(row, now) for row in page.rows]
    columns: Sequence[Column] = COLUMNS
    if archive.query.all_terms:
        columns = (*columns, MATCH_COLUMN)
        rows = [
            replace(row, cells={**row.cells, "match": fragments_html(places)})
            for row, places in zip(rows, page.fragments, strict=True)
        ]
    examined, matched = page.examined, len(rows)
    if paged:
        examined, matched = examined + number_of(request, "examined"), matched + number_of(request, "matched")
    empty, note, next_url = _("No archived jobs match."), "", ""
    if page.cursor:
        next_url = changed(request, cursor=page.cursor, examined=examined, matched=matched)
        if archive.scans:
            note = _examined(examined, *archive.count(MAX_ABOUT))
        if not rows:
            empty = _("No matches so far. Continue with the next page.")
    elif archive.scans:
        note = _("Examined %(jobs)s.") % {"jobs": formatting.job_count(examined)}
    position = Pager(next=next_url, note=note)
    sheet = Sheet("archived-jobs", EXPORTED, lambda: _exported(archive.all()))
    shown = table(
        request,
        columns,
        rows,
        caption=_("Archived jobs"),
        empty=empty,
        position=position,
        sortable=False,
        export=sheet,
    )
    return replace(shown, summary=_summary(archive, matched, bool(page.cursor)))


def _summary(archive: Search, matched: int, more: bool) -> str:
    """Return the total, or what is known of it. `matched`: the number of results up to this page."""
    if not archive.query.has_words:
        count, more = archive.count()
    elif more and archive.indexed:
        return _("At most %(jobs)s") % {"jobs": formatting.job_count(archive.count()[0])}
    else:
        count = matched
    jobs = formatting.job_count(count)
    return _("More than %(jobs)s") % {"jobs": jobs} if more and count else jobs


def _examined(examined: int, count: int, more: bool) -> str:
    if more and examined >= count:
        return _("Examined %(jobs)s.") % {"jobs": formatting.job_count(examined)}
    text = _("Examined %(examined)s of more than %(jobs)s.") if more else _("Examined %(examined)s of about %(jobs)s.")
    return text % {"examined": formatting.number(examined), "jobs": formatting.job_count(count)}


def _row(row: ArchivedJob, now: float) -> Row:
    lines = row.error_message.strip().splitlines()
    about: SafeString | str = ""
    if row.error_group:
        about = format_html(
            '{} <span class="resty-quiet resty-about">{}</span>',
            formatting.name(row.error_group, 80),
            formatting.name(lines[-1] if lines else "", 80),
        )
    return Row(
        {
            "job": format_html(
                '<a class="resty-id" href="{}" title="{}">{}</a>',
                formatting.url("archivedjob", row.name),
                formatting.name(row.name),
                formatting.short(row.name),
            ),
            "klass": formatting.link("jobclass", row.klass),
            "state": formatting.state(row.state),
            "queue": formatting.link("queue", row.queue),
            "tags": formatting.tag_links(tags_of(row)),
            "put": formatting.relative_time(from_db(row.put_at), now),
            "finished": formatting.relative_time(from_db(row.finished_at), now),
            "ran": formatting.age(row.ran),
            "about": about,
        }
    )


def _exported(rows: Iterator[ArchivedJob]) -> Iterator[list[Any]]:
    for row in rows:
        cut = row.arguments_are == row.Arguments.CUT
        yield [
            *(row.name, row.klass, row.state, row.queue, row.priority, tags_of(row), row.retries, row.retries_left),
            *(row.worker, row.txid),
            *(None if at is None else moment(from_db(at)) for at in (row.put_at, row.started_at, row.finished_at)),
            *(row.waited, row.ran, row.error_group, row.error_message, row.arguments_are),
            row.arguments if cut else redacted_arguments(row.klass, arguments_of(row)),
        ]


# --- page of a job ----------------------------------------------------------------------------------------------------


def job_of(client: Any, row: ArchivedJob) -> Job:
    """Return an archived job as a job, for the parts of pages that show one."""
    failure = {"group": row.error_group, "message": row.error_message, "worker": row.worker}
    failure["when"] = from_db(row.finished_at)  # type: ignore[assignment]
    record = JobRecord(
        jid=row.name,
        klass=row.klass,
        state=row.state,
        queue=row.queue,
        worker="",
        priority=row.priority,
        retries=row.retries,
        remaining=row.retries_left,
        expires=0,
        data="null" if row.arguments_are == row.Arguments.CUT else row.arguments,
        tags=list(tags_of(row)),
        history=list(history_of(row)),
        failure=failure if row.error_group else None,
        txid=row.txid or None,
    )
    return Job(client, record)


def _facts_of(row: ArchivedJob, now: float) -> list[tuple[Any, Any]]:
    facts: list[tuple[Any, Any]] = [
        (_("Class"), formatting.link("jobclass", row.klass)),
        (_("Queue"), formatting.link("queue", row.queue)),
        (_("Priority"), formatting.number(row.priority)),
        (_("Retries left"), f"{row.retries_left} / {row.retries}"),
        (_("Worker"), formatting.name(row.worker)),
        (_("Put"), formatting.relative_time(from_db(row.put_at), now)),
        (_("Started"), formatting.relative_time(from_db(row.started_at) if row.started_at else None, now)),
        (_("Finished"), formatting.relative_time(from_db(row.finished_at), now)),
        (_("Waited for"), formatting.age(row.waited)),
        (_("Ran for"), formatting.age(row.ran)),
    ]
    if row.txid:
        url = formatting.list_url("archivedjob", q=f'txid:"{row.txid}"')
        link = format_html('<a class="resty-id" href="{}">{}</a>', url, formatting.name(row.txid))
        facts.append((_("Transaction"), link))
    return facts


def _run_again(row: ArchivedJob) -> tuple[str, str]:
    """Return the URL of the form that runs a job again with the same arguments, or why there is none."""
    if row.arguments_are == row.Arguments.REDACTED:
        return "", _(
            "It cannot be run again from here: some of its arguments are hidden, and the archive has not got them."
        )
    if row.arguments_are == row.Arguments.CUT:
        return "", _("It cannot be run again from here: its arguments are not complete in the archive.")
    if row.klass not in {choice.klass for choice in calls.choices()}:
        return "", _("It cannot be run again from here: workers do not run jobs of its class.")
    return (
        f"{reverse('admin:resty_qless_job_start')}{formatting.query_of({'task': row.klass, 'archived': row.key})}",
        "",
    )


def initial_of(key: str, klass: str) -> dict[str, Any]:
    """Return the options of an archived job with complete arguments as initial values for the form of a new job."""
    row = search.get(key) if key and conf.qless.archive.enabled else None
    if row is None or row.klass != klass or row.arguments_are != row.Arguments.COMPLETE:
        return {}
    return {
        "queue": token(row.queue),
        "arguments": editable_json(arguments_of(row), klass),
        "priority": f"{row.priority:g}",
        "retries": row.retries,
        "tags": ", ".join(tags_of(row)),
    }
