"""Operations on one job: each has its own page, which also accepts the small forms of the job's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _

from resty_django.text import printable

from ..clients.job import Job
from ..clients.serialization import decode
from ..errors import NoSuchJob, QlessError
from ..models import Job as JobRow
from ..models import name_of, token
from ..tasks import calls
from . import formatting, operations
from .arguments import arguments_help, checked_arguments, editable_json
from .bulk import BulkAdmin
from .forms import JobForm, OperationForm, queues_of
from .glossary import OPERATION_HELP
from .rows import history_of


class JobActions(BulkAdmin):
    def action_urls(self) -> list[URLPattern]:
        return [
            *(self.page_url(name, self._view_of(name)) for name in operations.OPERATIONS),
            self.page_url("undepend", self.undepend_view),
            self.page_url("clone", self.clone_view),
        ]

    def job(self, row: Any) -> Job:
        """Return the row's job. Raise `NoSuchJob` if it does not exist.

        A row lives for one request, in which the form and the operation share one fetched job.
        """
        if not hasattr(row, "job"):
            jobs = self.client().jobs.multiget(row.name)
            if not jobs:
                raise NoSuchJob(_("This job does not exist: it was canceled or has expired."))
            row.job = jobs[0]
        return row.job  # type: ignore[no-any-return]

    def _view_of(self, name: str) -> Callable[..., HttpResponse]:
        operation = operations.OPERATIONS[name]

        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            return self.operation_view(
                request,
                object_id,
                permission=operation.permission,
                title=operation.label,
                button=operation.label,
                form=lambda data, row: self._form(operation, row, data),
                perform=lambda request, row, cleaned_data: self._perform(request, operation, row, cleaned_data),
                explain=operation.effect,
                danger=operation.danger,
            )

        return view

    def _form(self, operation: operations.Operation, row: Any, data: Any) -> forms.Form:
        job = self.job(row)
        queues = queues_of(job.client) if operation.field == "queue" else []
        return OperationForm(data, operation, queues, initial={"priority": f"{job.priority:g}"})

    def _perform(
        self, request: HttpRequest, operation: operations.Operation, row: Any, cleaned_data: dict[str, Any]
    ) -> tuple[str, str]:
        job = self.job(row)
        if not operation.applies(job, job.client.clock()):
            raise QlessError(
                _("The job's state does not allow this: %(state)s.") % {"state": formatting.state_name(job.state)}
            )
        argument = cleaned_data.get(operation.field, "") if operation.field else ""
        outcome = operations.apply(job.client, operation, [job], argument)
        if outcome.errors:
            raise QlessError(outcome.errors[0])
        row.gone = operation.name == "cancel"
        message = format_html("{} {}", operation.done_label, _sentence(row, argument))
        log_text = f"{operation.label} {argument}".strip() + "."
        return message, log_text

    # --- one job only -------------------------------------------------------------------------------------------------

    def undepend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove a dependency. URL parameter `on`: the jid of the job to stop waiting for; empty for a job that waits
        for no job."""
        dependency = name_of(request.GET.get("on", ""))

        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> str:
            job = self.job(row)
            if not dependency and not job.dependencies:
                job.undepend(all=True)
                return _("The job is ready to run.")
            if dependency not in job.dependencies:
                raise QlessError(_("The job no longer waits for that job."))
            job.undepend(dependency)
            return _("The job no longer waits for %(jid)s.") % {"jid": formatting.name(dependency)}

        return self.operation_view(
            request,
            object_id,
            permission="edit_job",
            title=_("Remove a dependency"),
            button=_("Remove the dependency"),
            perform=perform,
            explain=_(
                "The job will no longer wait for %(jid)s. When it has no dependencies left, it is ready to run. "
                "This cannot be undone."
            )
            % {"jid": formatting.name(dependency)}
            if dependency
            else _("The job waits for no job. It will be ready to run. This cannot be undone."),
            danger=True,
        )

    def clone_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue a job of the same class with other arguments."""
        title, effect = OPERATION_HELP["clone"]
        return self.operation_view(
            request,
            object_id,
            permission="start_job",
            title=title,
            button=_("Run again with these arguments"),
            form=self._clone_form,
            perform=self._clone,
            explain=effect,
        )

    def _clone_form(self, data: Any, row: Any) -> JobForm:
        job = self.job(row)
        values = clone_values(job)
        queues = dict.fromkeys([*queues_of(job.client), *filter(None, [name_of(values["queue"])])])
        return JobForm(data, [*queues], values, arguments_help(job.klass))

    def _clone(self, request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
        job = self.job(row)
        options = {key: cleaned_data[key] for key in ("priority", "retries", "delay", "tags")}
        options["tags"] += [tag for tag in map(str, job.tags) if not _is_editable(tag)]
        data = checked_arguments(cleaned_data["arguments"], decode(job.raw_data), job.klass, job.client.clock())
        jid = calls.put(job.client, job.klass, data, cleaned_data["queue"], **options)
        self.add_history(request, f"Created from {row.name}.", JobRow.from_name(jid))
        return formatting.enqueued(jid), f"Run again as {jid}."


class EditorContext(TypedDict):
    """The form on a job's page that runs it again with edited arguments. `fields`: names and values of hidden ones."""

    arguments: str
    help: str
    fields: Sequence[tuple[str, Any]]


def editor_context(job: Job) -> EditorContext:
    """Return the context of the editor for the arguments of a job."""
    values = clone_values(job)
    arguments = values.pop("arguments")
    return {"arguments": arguments, "help": arguments_help(job.klass), "fields": [*values.items()]}


def clone_values(job: Job) -> dict[str, Any]:
    """Return the values of a form for a job like `job`; a complete job has left its queue, so its last one."""
    queue = job.queue_name or next((str(entry["q"]) for entry in reversed(history_of(job)) if entry.get("q")), "")
    return {
        "queue": token(queue) if queue else "",
        "arguments": editable_json(decode(job.raw_data), job.klass),
        "priority": f"{job.priority:g}",
        "retries": job.original_retries,
        "delay": 0,
        "tags": ", ".join(tag for tag in map(str, job.tags) if _is_editable(tag)),
    }


def _is_editable(tag: str) -> bool:
    """Return whether the form can show a tag; other tags are copied unseen."""
    return tag.isprintable() and "," not in tag


def _sentence(row: Any, argument: Any) -> str:
    detail = f" ({printable(str(argument), 200)})" if argument != "" else ""
    return f"{formatting.short(row.name)}{detail}."
