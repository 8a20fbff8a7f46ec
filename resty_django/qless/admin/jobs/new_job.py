"""The page that enqueues a job of any task in the modules from which jobs may come."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.conf import conf

from ...models import Job as JobRow
from ...models import token
from ...tasks import calls
from .. import formatting
from ..arguments import arguments_help
from ..base import TEMPLATES, JobsAdmin
from ..forms import JobForm, TaskForm
from ..redis_reads import queue_names


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
def start_page(admin: JobsAdmin[JobRow], request: HttpRequest) -> HttpResponse:
    """Choose a task, then enqueue a job of it. URL parameter: `task`, its name."""
    if not admin.may(request, "start_job"):
        raise PermissionDenied
    choices = {choice.klass: choice for choice in calls.choices()}
    klass = request.GET.get("task", "")
    context: dict[str, Any] = {"title": _("New job"), "live": False, "object": None}
    if klass not in choices:
        if klass:
            text = _("{} is not a task that workers may run. Choose one of the list.")
            admin.message_user(request, format_html(text, formatting.name(klass)), messages.ERROR)
        task_form = TaskForm(None, [*choices], initial={"task": klass})
        return admin.page(request, f"{TEMPLATES}/new_job.html", {**context, "task_form": task_form})
    choice, client = choices[klass], admin.client()
    queues = dict.fromkeys(filter(None, (choice.queue, *queue_names(client), *conf.qless.worker.queues)))
    initial: dict[str, Any] = {
        "queue": token(choice.queue) if choice.queue else None,
        "arguments": json.dumps(calls.example_data(klass), indent=2),
        "priority": f"{choice.priority:g}",
        "retries": choice.retries,
        "tags": ", ".join(choice.tags),
    }
    data = request.POST if request.method == "POST" else None
    form = JobForm(data, [*queues], initial, arguments_help(klass, edits=False))
    if request.method == "POST" and form.is_valid():
        try:
            jid = _start(admin, request, klass, form.cleaned_data)
        except admin.refusals as error:
            admin.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
        else:
            return HttpResponseRedirect(formatting.url("job", jid))
    context |= {"form": form, "task": formatting.name(klass), "back": f"{formatting.list_url('job')}start/"}
    return admin.page(request, f"{TEMPLATES}/new_job.html", context)


def _start(admin: JobsAdmin[JobRow], request: HttpRequest, klass: str, cleaned_data: dict[str, Any]) -> str:
    client = admin.client()
    options = {key: cleaned_data[key] for key in ("priority", "retries", "delay", "tags")}
    calls.check_new_data(klass, cleaned_data["arguments"], client.clock())
    jid = calls.put(client, klass, cleaned_data["arguments"], cleaned_data["queue"], **options)
    admin.add_history(request, f"Created: {klass} in {cleaned_data['queue']}.", JobRow.from_name(jid))
    admin.message_user(request, formatting.enqueued(jid), messages.SUCCESS)
    return jid
