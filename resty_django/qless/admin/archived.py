"""The archive of finished jobs: a read-only list and page of Django's admin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from resty_django.admin.base import ReadOnlyAdmin, shown_time
from resty_django.admin.export import moment
from resty_django.admin.formatting import date_time
from resty_django.database.times import from_db
from resty_django.text import one_line, printable

from ..archive.rows import arguments_of, history_of, tags_of
from ..models import ArchivedJob
from ..redaction import redacted_arguments
from . import formatting
from .arguments import display_json


class ValuesFilter(admin.SimpleListFilter):
    """Filters by the values of a column. Each value costs one step in the column's index."""

    max_values = 100

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[ArchivedJob]) -> Iterator[tuple[str, str]]:
        column = str(self.parameter_name)
        values = model_admin.get_queryset(request).order_by(column).values_list(column, flat=True)
        value: str | None = ""
        for _value in range(self.max_values):
            value = values.filter(**{f"{column}__gt": value}).first()
            if value is None:
                return
            yield value, formatting.name(value)

    def queryset(self, request: HttpRequest, queryset: QuerySet[ArchivedJob]) -> QuerySet[ArchivedJob]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.none() if "\x00" in value else queryset.filter(**{str(self.parameter_name): value})


class ClassFilter(ValuesFilter):
    title = _("class")
    parameter_name = "klass"


class QueueFilter(ValuesFilter):
    title = _("queue")
    parameter_name = "queue"


def _column(label: Any, text: Callable[[ArchivedJob], str]) -> Callable[[object, ArchivedJob], str]:
    """Return a column of the list that shows a text of the job."""

    @admin.display(description=label)
    def column(self: object, row: ArchivedJob) -> str:
        return formatting.breakable(text(row))

    return column


class ArchivedJobAdmin(ReadOnlyAdmin[ArchivedJob]):
    object_route = "<path:object_id>"
    list_display = ("short_jid", "class_name", "state", "queue_name", "tag_names", "shown_finished_at", "group_name")
    list_filter = ("state", ClassFilter, QueueFilter, "finished_at")
    search_fields = ("key", "txid", "klass", "tags")
    search_help_text = _("jid, transaction ID, class or tag")
    ordering = ("-finished_at",)
    sortable_by = ("shown_finished_at",)
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/resty_django/change_list.html"
    fieldsets: ClassVar = [
        (None, {"fields": ["jid", "class_name", "state", "queue_name", "priority", "tag_names", "transaction"]}),
        (_("Run"), {"fields": ["worker_name", "retries", "retries_left", "steps"]}),
        (_("Times"), {"fields": ["shown_put_at", "shown_started_at", "shown_finished_at", "waited", "ran"]}),
        (_("Arguments"), {"fields": ["arguments_are", "shown_arguments"]}),
        (_("Failure"), {"fields": ["group_name", "message"]}),
    ]

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("resty_qless.view_job")

    def export_columns(self, request: HttpRequest) -> dict[str, Callable[[ArchivedJob], Any]]:
        return {
            "jid": lambda row: row.name,
            "class": lambda row: row.klass,
            **{name: attrgetter(name) for name in ("state", "queue", "priority")},
            "tags": tags_of,
            **{name: attrgetter(name) for name in ("retries", "retries_left", "worker", "txid")},
            "put": lambda row: moment(from_db(row.put_at)),
            "started": lambda row: moment(from_db(row.started_at) if row.started_at else None),
            "finished": lambda row: moment(from_db(row.finished_at)),
            "seconds_waiting": lambda row: row.waited,
            "seconds_running": lambda row: row.ran,
            "failure_group": lambda row: row.error_group,
            "failure_message": lambda row: row.error_message,
            "arguments_are": lambda row: row.arguments_are,
            "arguments": _exported_arguments,
        }

    shown_put_at = shown_time("put_at", _("put"))
    shown_started_at = shown_time("started_at", _("started"))
    shown_finished_at = shown_time("finished_at", _("finished"))
    jid = _column(_("jid"), lambda row: row.name)
    short_jid = _column(_("jid"), lambda row: formatting.short(row.name))
    class_name = _column(_("class"), lambda row: row.klass)
    queue_name = _column(_("queue"), lambda row: row.queue)
    tag_names = _column(_("tags"), lambda row: ", ".join(tags_of(row)))
    group_name = _column(_("failure group"), lambda row: row.error_group)
    transaction = _column(_("transaction"), lambda row: row.txid)
    worker_name = _column(_("worker"), lambda row: row.worker)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: ArchivedJob) -> SafeString:
        if row.arguments_are == row.Arguments.CUT:
            return _text(printable(row.arguments, 1000))
        return _text(display_json(row.arguments, row.klass)[0])

    @admin.display(description=_("error"))
    def message(self, row: ArchivedJob) -> SafeString:
        return _text(printable(row.error_message, len(row.error_message)))

    @admin.display(description=_("history"))
    def steps(self, row: ArchivedJob) -> SafeString:
        return _text("\n".join(map(_step, history_of(row))))


def _exported_arguments(row: ArchivedJob) -> object:
    is_cut = row.arguments_are == row.Arguments.CUT
    return row.arguments if is_cut else redacted_arguments(row.klass, arguments_of(row))


def _text(text: str) -> SafeString:
    return format_html('<pre class="resty-value" tabindex="0">{}</pre>', text)


def _step(entry: dict[str, Any]) -> str:
    """Return an entry of the history as a line: time, event, details."""
    details = {key: value for key, value in entry.items() if key not in ("what", "when")}
    text = json.dumps(details, ensure_ascii=False) if details else ""
    when = entry.get("when")
    return one_line(f"{date_time(when if isinstance(when, int | float) else None)} {entry.get('what', '')} {text}")
