"""Operations on many objects: selected rows of a list, or the entire list.

A page shows the number of objects before anything happens. Long lists are changed in steps. Each step is one POST of
the same page. Hidden form fields carry the progress from step to step, so the server keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.text import one_line, printable

from .base import Model, ReadOnlyAdmin
from .formatting import number
from .lists import BulkContext
from .operations import Operation, OperationResult, Refused, UserForm

MAX_ALL: Final = 1000
"""Maximum number of rows of a list that an operation changes in one step."""
MAX_NAMED: Final = 25
"""Maximum number of objects that a confirmation names."""

FactList = list[tuple[str | Promise, object]]
"""Labels and values."""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The content of a confirmation. `count`: the number of objects that the operation would change."""

    count: int
    facts: FactList


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of a step, each with the row in whose history it is, and errors."""

    changes: list[tuple[models.Model, OperationResult]]
    errors: list[str]


@dataclass(slots=True)
class BulkProgress:
    """Progress over all steps, in hidden fields of a form.

    `index`, `left`: the index in the current list of its next object, and the number of objects left in it.
    """

    done: int = 0
    skipped: int = 0
    total: int = 0
    index: int = 0
    left: int = 0

    @classmethod
    def from_post(cls, post: QueryDict) -> BulkProgress:
        return cls(**{key: _count(post.get(f"run-{key}", "")) for key in cls.__slots__})

    @property
    def seen(self) -> int:
        return self.done + self.skipped

    def fields(self) -> list[tuple[str, int]]:
        return [(f"run-{key}", getattr(self, key)) for key in self.__slots__]


class Selection(Protocol):
    """The objects of a bulk operation."""

    def fields(self) -> Sequence[tuple[str, str]]:
        """Return the hidden form fields that name the objects that are left."""

    def preview(self, operation: Operation[Any]) -> BulkPreview:
        """Return what the operation would change."""

    def step(self, operation: Operation[Any], data: dict[str, Any], progress: BulkProgress) -> StepResult:
        """Change the next objects, and update `progress`."""

    def is_finished(self) -> bool:
        """Return whether no objects are left."""


class BulkAdmin(ReadOnlyAdmin[Model]):
    """A list with check boxes, and operations on the selected rows or on all rows that match the filter."""

    # --- for subclasses -----------------------------------------------------------------------------------------------

    missing: str | Promise = ""
    """The message about an object that does not exist."""

    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the targets of operations by name, for the objects with these names that exist."""
        raise NotImplementedError

    def listed_names(self, request: HttpRequest) -> list[str]:
        """Return the names of all rows of the list in the URL."""
        raise NotImplementedError

    def count_text(self, count: int) -> str:
        """Return a text such as "5 queues"."""
        raise NotImplementedError

    def name_of(self, pk: str) -> str:
        """Return the name of an object from its primary key, which is the value of its check box."""
        return pk

    def row(self, name: str, target: Any) -> Model:
        """Return an object as a row of the admin."""
        raise NotImplementedError

    def described(self, row: Any, target: Any) -> str:
        """Return a short text that identifies an object for people."""
        return one_line(row, 60)

    def list_address(self, request: HttpRequest) -> str:
        """Return the URL of the list with the request's filter."""
        return reverse(self.url_name("changelist")) + (f"?{request.GET.urlencode()}" if request.GET else "")

    def selection(self, request: HttpRequest, names: Sequence[str] | None) -> Selection:
        """Return the objects with these names, or all objects of the list in the URL (None). May raise a refusal."""
        selected = self.listed_names(request) if names is None else names
        if len(selected) > MAX_ALL:
            text = _("The list has more than %(most)s rows. Select rows or add a filter.")
            raise Refused(text % {"most": number(MAX_ALL)})
        return SelectedRows(self, selected, self.load(selected), names is None)

    def named_facts(self, operation: Operation[Any], targets: Mapping[str, Any]) -> FactList:
        """Return a fact that names the first of the objects that an operation would change."""
        rows = [self.row(name, target) for name, target in [*targets.items()][:MAX_NAMED]]
        urls = [reverse(self.url_name("change"), args=[quote(row.pk)]) for row in rows]
        links = zip(urls, map(self.described, rows, targets.values()), strict=True)
        text = format_html_join(", ", '<a href="{}">{}</a>', links)
        if left := len(targets) - len(rows):
            text = format_html("{}, {}", text, _("and %(count)s more") % {"count": number(left)})
        return [(operation.label, text)] if rows else []

    # --- the page -----------------------------------------------------------------------------------------------------

    def target(self, obj: Any) -> Any:
        name = self.name_of(obj.pk)
        targets = self.load([name])
        if name not in targets:
            raise Refused(self.missing or _("It no longer exists."))
        return targets[name]

    def offered(self, request: HttpRequest, operations: Sequence[Operation[Any]] = ()) -> list[Operation[Any]]:
        """Return the operations on many objects that the user may do."""
        return [
            operation
            for operation in operations or self.operations
            if operation.done and self.may(request, operation.permission)
        ]

    def bulk_context(
        self, request: HttpRequest, total: int | None, operations: Sequence[Operation[Any]] = (), url: str = ""
    ) -> BulkContext:
        """Return the context of a list with check boxes, of this class or with the operations at `url`.

        `total`: the number of its rows, on all pages.
        """
        query = f"?{request.GET.urlencode()}" if request.GET else ""
        return {
            "bulk": url or reverse(self.url_name("bulk")) + query,
            "operations": self.offered(request, operations),
            "select_all": total,
        }

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Run an operation on rows of the list in the URL.

        Form fields: `verb` (the operation), `pick` or `all`, the operation's own, and `confirmed`.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        back = self.list_address(request)
        verb, picks = request.POST.get("verb", ""), request.POST.getlist("pick")[:500]
        operation = next((entry for entry in self.operations if entry.done and entry.name == verb), None)
        if operation is None or not (picks or "all" in request.POST):
            if request.method == "POST":
                self.message_user(request, _("Nothing selected. Select rows and an operation."), messages.WARNING)
            return HttpResponseRedirect(back)
        if not self.may(request, operation.permission):
            raise PermissionDenied
        names = None if "all" in request.POST else list(dict.fromkeys(map(self.name_of, picks)))
        refusals: tuple[type[Exception], ...] = (Refused, *self.refusals)
        try:
            selection = self.selection(request, names)
        except refusals as error:
            self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
            return HttpResponseRedirect(back)
        is_confirmed = "confirmed" in request.POST
        form = operation.form(request.POST if is_confirmed else None, None)
        if isinstance(form, UserForm):
            form.user = request.user
        if is_confirmed and form.is_valid():
            return self._step(request, operation, selection, form, back)
        preview = selection.preview(operation)
        return self._page(
            request,
            operation,
            [("verb", operation.name), ("confirmed", "yes"), *selection.fields()],
            button=operation.label if preview.count else "",
            form=form,
            effect=operation.effect if preview.count else _("There is nothing to do."),
            facts=preview.facts,
            back=back,
        )

    def _step(
        self, request: HttpRequest, operation: Operation[Any], selection: Selection, form: forms.Form, back: str
    ) -> HttpResponse:
        """Run the next step, and show the progress unless it was the last one."""
        progress = BulkProgress.from_post(request.POST)
        result = selection.step(operation, form.cleaned_data, progress)
        self.add_changes(request, result.changes)
        errors = [printable(error, 300) for error in dict.fromkeys(result.errors)][:3]
        if not selection.is_finished():
            entered = [(key, request.POST[key]) for key in form.fields if request.POST.get(key)]
            text = _("%(seen)s of %(jobs)s")
            return self._page(
                request,
                operation,
                [
                    ("verb", operation.name),
                    ("confirmed", "yes"),
                    *selection.fields(),
                    *entered,
                    *progress.fields(),
                ],
                button=_("Continue"),
                effect=" ".join(errors),
                progress=progress,
                progress_text=text % {"seen": number(progress.seen), "jobs": self.count_text(progress.total)},
                back=back,
            )
        sentences = [_("%(done)s %(objects)s.") % {"done": operation.done, "objects": self.count_text(progress.done)}]
        if progress.skipped:
            sentences.append(_("Unchanged: %(count)s.") % {"count": number(progress.skipped)})
        level = messages.WARNING if errors else messages.SUCCESS
        self.message_user(request, " ".join([*sentences, *errors]), level)
        return HttpResponseRedirect(back)

    def _page(
        self, request: HttpRequest, operation: Operation[Any], hidden: Sequence[tuple[str, object]], **context: object
    ) -> HttpResponse:
        shared = {"title": operation.label, "danger": operation.danger, "hidden": hidden, "object": None, "live": False}
        return self.page(request, "admin/resty_django/action.html", {**shared, **context})


@dataclass(slots=True)
class SelectedRows:
    """Rows that one step changes."""

    admin: BulkAdmin[Any]
    names: Sequence[str]
    targets: Mapping[str, Any]
    is_all: bool

    def fields(self) -> list[tuple[str, str]]:
        if self.is_all:
            return [("all", "yes")]
        return [("pick", self.admin.row(name, self.targets.get(name)).pk) for name in self.names]

    def preview(self, operation: Operation[Any]) -> BulkPreview:
        applicable = self._applicable(operation)
        chosen = self.admin.count_text(len(self.names))
        selection = _("%(count)s of %(chosen)s selected.") % {"count": number(len(applicable)), "chosen": chosen}
        if missing := len(self.names) - len(self.targets):
            selection += " " + _("Gone: %(gone)s.") % {"gone": number(missing)}
        facts: FactList = [(_("Selection"), selection)]
        if unfit := len(self.targets) - len(applicable):
            facts.append((_("Unchanged"), _("%(count)s of these, because of their state") % {"count": number(unfit)}))
        return BulkPreview(len(applicable), [*facts, *self.admin.named_facts(operation, applicable)])

    def _applicable(self, operation: Operation[Any]) -> dict[str, Any]:
        return {name: target for name, target in self.targets.items() if operation.applies(target)}

    def step(self, operation: Operation[Any], data: dict[str, Any], progress: BulkProgress) -> StepResult:
        targets = self._applicable(operation)
        result = operation.change(targets, data, Refused, *self.admin.refusals)
        progress.done = len(result.changes)
        progress.skipped = len(self.names) - progress.done
        changes = [(self.admin.row(name, targets[name]), change) for name, change in result.changes.items()]
        return StepResult(changes, result.errors)

    def is_finished(self) -> bool:
        return True


def _count(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
