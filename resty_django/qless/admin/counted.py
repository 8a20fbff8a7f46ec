"""Operations on many jobs of one object: connected jobs, or the members of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.http import HttpRequest, HttpResponse

from . import formatting
from .base import JobsAdmin
from .glossary import OPERATION_HELP


class CountedOperation(NamedTuple):
    """An operation on many jobs.

    - `name`: its name in `OPERATION_HELP`. `permission`: the permission that it needs.
    - `label`, `count`: the jobs that it changes, and their number in a graph or group.
    - `perform`: changes the jobs, for a client and the name of the object; returns their number.
    - `done`: the message, with the placeholder `jobs`.
    """

    name: str
    permission: str
    label: Any
    count: Callable[[Any], int]
    perform: Callable[[Any, str], int]
    done: Any
    danger: bool = False


def counted_view(
    admin: JobsAdmin[Any],
    request: HttpRequest,
    object_id: str,
    operation: CountedOperation,
    load: Callable[[Any], Any],
    facts: Callable[[Any], list[tuple[Any, Any]]] = lambda subject: [],
) -> HttpResponse:
    """Confirm an operation, with the number of jobs, and log it.

    `load`: returns the graph or group of a row, or raises a refusal. `facts`: facts about it, shown first.
    """
    title, effect = OPERATION_HELP[operation.name]

    def form(data: Any, row: Any) -> forms.Form:
        row.subject = load(row)
        return forms.Form(data)

    def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> Any:
        try:
            count = operation.perform(admin.client(), row.name)
        except admin.refusals as error:  # earlier batches remain done
            admin.add_history(request, f"{title}: interrupted, some jobs may have changed. {error}", row)
            raise
        return operation.done % {"jobs": formatting.job_count(count)}

    def explain(row: Any) -> dict[str, Any]:
        changed = (operation.label, formatting.job_count(operation.count(row.subject)))
        return {"explain": effect, "facts": [*facts(row.subject), changed]}

    return admin.operation_view(
        request,
        object_id,
        permission=operation.permission,
        title=title,
        button=title,
        form=form,
        perform=perform,
        explain=explain,
        danger=operation.danger,
    )
