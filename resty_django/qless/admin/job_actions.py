"""What operators do to one job, each on a page of its own that also takes the small forms of the job's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _

from resty_django.admin.shown import printable

from ..errors import NoSuchJob, QlessError
from ..job import Job
from ..models import name_of
from ..texts import decode
from . import shown, verbs
from .arguments import editable, restored
from .bulk import BulkAdmin
from .forms import CloneForm, VerbForm, queues_of
from .undo import said_with_undo
from .words import DEEDS


class JobActions(BulkAdmin):
    def action_urls(self) -> list[URLPattern]:
        return [
            *(self.page_url(name, self._verb_view(name)) for name in verbs.VERBS),
            self.page_url("undepend", self.undepend_view),
            self.page_url("clone", self.clone_view),
        ]

    def verbs_for(self, request: HttpRequest) -> list[verbs.Verb]:
        return [verb for verb in verbs.VERBS.values() if self.may(request, verb.permission)]

    def job(self, row: Any) -> Job:
        """Raises `NoSuchJob`."""
        found = self.client().jobs.multiget(row.name)
        if not found:
            raise NoSuchJob(_("This job does not exist: it was canceled, or has expired."))
        return found[0]  # type: ignore[no-any-return]

    def _verb_view(self, name: str) -> Callable[..., HttpResponse]:
        verb = verbs.VERBS[name]

        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            return self.change(
                request,
                object_id,
                permission=verb.permission,
                title=verb.label,
                button=verb.label,
                form=lambda data, row: self._form(verb, row, data),
                perform=lambda request, row, given: self._perform(request, verb, row, given),
                explain=verb.effect,
                danger=verb.danger,
            )

        return view

    def _form(self, verb: verbs.Verb, row: Any, data: Any) -> forms.Form:
        job = self.job(row)
        queues = queues_of(job.client) if verb.field == "queue" else []
        return VerbForm(data, verb, queues, initial={"priority": f"{job.priority:g}"})

    def _perform(self, request: HttpRequest, verb: verbs.Verb, row: Any, given: dict[str, Any]) -> tuple[str, str]:
        job = self.job(row)
        if not verb.fits(job, job.client.clock()):
            raise QlessError(_("the job is %(state)s now.") % {"state": job.state})
        argument = given.get(verb.field, "") if verb.field else ""
        outcome = verbs.apply(job.client, verb, [job], argument)
        if outcome.errors:
            raise QlessError(outcome.errors[0])
        row.gone = verb.name == "cancel"
        said = format_html("{} {}", verb.done, _sentence(row, argument))
        logged = f"{verb.label} {argument}".strip() + "."
        return said_with_undo(said, verbs.undo_token(outcome, request.user)), logged

    # --- not for many jobs ------------------------------------------------------------------------------------------

    def undepend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """In the address `on`: the job that it shall not wait for any more."""
        other = name_of(request.GET.get("on", ""))

        def perform(request: HttpRequest, row: Any, given: dict[str, Any]) -> str:
            job = self.job(row)
            if other not in job.dependencies:
                raise QlessError(_("it does not wait for that job any more."))
            job.undepend(other)
            return _("It waits for %(jid)s no longer.") % {"jid": shown.name(other)}

        return self.change(
            request,
            object_id,
            permission="edit_job",
            title=_("Do not wait for a job"),
            button=_("Do not wait"),
            perform=perform,
            explain=_("The job waits for %(jid)s no longer. If it waits for no other, it is ready to run.")
            % {"jid": shown.name(other)},
            danger=True,
        )

    def clone_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put a job like this one, with other arguments."""
        return self.change(
            request,
            object_id,
            permission="edit_job",
            title=_("Clone"),
            button=_("Put the new job"),
            form=self._clone_form,
            perform=self._clone,
            explain=DEEDS["clone"][1],
        )

    def _clone_form(self, data: Any, row: Any) -> forms.Form:
        job = self.job(row)
        queues = queues_of(job.client)
        initial = {
            "queue": job.queue_name,
            "arguments": editable(decode(job.raw_data), job.klass),
            "priority": f"{job.priority:g}",
            "retries": job.original_retries,
            "tags": ", ".join(tag for tag in map(str, job.tags) if _plain(tag)),
        }
        return CloneForm(data, queues, initial)

    def _clone(self, request: HttpRequest, row: Any, given: dict[str, Any]) -> tuple[str, str]:
        job = self.job(row)
        options = {key: given[key] for key in ("priority", "retries", "delay", "tags")}
        options["tags"] += [tag for tag in map(str, job.tags) if not _plain(tag)]
        data = restored(given["arguments"], decode(job.raw_data))
        jid = job.client.queues[given["queue"]].put(job.klass, data, **options)
        return format_html("{} {}", _("Put the job"), shown.job_link(jid)), f"Cloned as {jid}."


def _plain(tag: str) -> bool:
    """Whether a tag can be written into the form; others go along unseen."""
    return tag.isprintable() and "," not in tag


def _sentence(row: Any, argument: Any) -> str:
    about = f" ({printable(str(argument), 200)})" if argument != "" else ""
    return f"{shown.short(row.name)}{about}."


__all__ = ["JobActions"]
