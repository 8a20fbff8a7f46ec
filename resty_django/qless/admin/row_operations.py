"""Operations on rows of the lists of queues, workers, recurring jobs and options: on one, on selected ones, on all.

The page of a bulk operation shows the number of objects before anything happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html_join
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ..errors import QlessError
from ..models import name_of, token
from . import formatting
from .base import TEMPLATES, ActionContext, JobsAdmin, M, PicksContext

MAX_SELECTED: Final = 250
"""Maximum number of rows selected by check boxes."""
MAX_ALL: Final = 1000
"""Maximum number of rows of a list that an operation can select entirely."""
MAX_NAMED: Final = 25
"""Maximum number of objects that a confirmation names."""
MAX_ERRORS: Final = 3
"""Maximum number of errors in a message."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an object.

    `log_text`: its entry in the history; `message`: for users who changed only this object, in place of the
    operation's own.
    """

    log_text: str
    message: Any = ""


@dataclass(frozen=True, slots=True)
class RowOperation:
    """An operation on an object.

    `run` takes the admin, the request, the object as `RowOperations.load` returns it, and the argument; it may raise
    `QlessError`. `applies`: whether the object's state allows the operation. `form`: of the argument, which is its
    cleaned data. `listed`: offered for selected rows.
    """

    name: str
    label: Any
    done_label: Any
    permission: str
    run: Callable[[Any, HttpRequest, Any, Any], Change]
    effect: Any = ""
    applies: Callable[[Any], bool] = lambda target: True
    form: Callable[[Any], forms.Form] = forms.Form
    danger: bool = False
    listed: bool = True


@dataclass(slots=True)
class RowOutcome:
    """The outcome of an operation: names of the changed objects by entry in the history, and errors."""

    done: dict[str, list[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.done.values()))


def picks_context(
    admin: JobsAdmin[Any],
    request: HttpRequest,
    operations: Mapping[str, RowOperation],
    url: str,
    total: int | None,
) -> PicksContext:
    """Return the context of a list with check boxes whose operations are at `url`."""
    return {
        "bulk": url,
        "picks_label": _("Action for selected rows"),
        "operations": [
            operation
            for operation in operations.values()
            if operation.listed and admin.may(request, operation.permission)
        ],
        "select_all": total,
    }


class RowOperations(JobsAdmin[M]):
    """Check boxes of a list with their operations. The pages of one object use the same operations."""

    row_operations: ClassVar[Mapping[str, RowOperation]] = {}

    def load(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the objects with these names that exist."""
        raise NotImplementedError

    def listed_names(self, request: HttpRequest) -> list[str]:
        """Return the names of all rows of the list in the URL."""
        raise NotImplementedError

    def count_text(self, count: int) -> str:
        """Return a text such as "5 queues"."""
        raise NotImplementedError

    def list_address(self, request: HttpRequest) -> str:
        """Return the URL of the list with the request's filter."""
        return reverse(self.url_name("changelist")) + (f"?{request.GET.urlencode()}" if request.GET else "")

    def row_urls(self) -> list[URLPattern]:
        return [self.page_url("bulk", self.bulk_view, "bulk/")]

    def picks_context(self, request: HttpRequest, total: int | None) -> PicksContext:
        """Return the context of a list with check boxes. `total`: the number of its rows, on all pages."""
        query = f"?{request.GET.urlencode()}" if request.GET else ""
        return picks_context(self, request, self.row_operations, reverse(self.url_name("bulk")) + query, total)

    # --- one object ---------------------------------------------------------------------------------------------------

    def change_one(self, request: HttpRequest, row: M, name: str, argument: Any = None) -> tuple[str, str]:
        """Apply an operation to an object; return the message and the entry of the history. Raise `QlessError`."""
        operation = self.row_operations[name]
        target = self.load([row.name]).get(row.name)
        if target is None:
            raise QlessError(_("It no longer exists."))
        change = operation.run(self, request, target, argument)
        return change.message or operation.done_label, change.log_text

    # --- many objects -------------------------------------------------------------------------------------------------

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Run an operation on rows of the list in the URL.

        Form fields: `verb` (the operation), `pick` or `all`, the operation's argument, and `confirmed`.
        """
        self.check_view_permission(request)
        list_address = self.list_address(request)
        operation = self.row_operations.get(request.POST.get("verb", ""))
        selects_all = "all" in request.POST
        names = list(dict.fromkeys(name_of(key) for key in request.POST.getlist("pick")))[:MAX_SELECTED]
        if request.method != "POST" or operation is None or not operation.listed or not (names or selects_all):
            if request.method == "POST":
                self.message_user(request, _("Nothing selected. Select rows and an operation."), messages.WARNING)
            return HttpResponseRedirect(list_address)
        if not self.may(request, operation.permission):
            raise PermissionDenied
        if selects_all:
            names = self.listed_names(request)
        if len(names) > MAX_ALL:
            text = _("The list has more than %(most)s rows. Select rows or add a filter.")
            self.message_user(request, text % {"most": formatting.number(MAX_ALL)}, messages.WARNING)
            return HttpResponseRedirect(list_address)
        targets = self.load(names)
        confirmed = "confirmed" in request.POST
        form = operation.form(request.POST if confirmed else None)
        if not confirmed or not form.is_valid():
            hidden = [("all", "yes")] if selects_all else [("pick", token(name)) for name in names]
            context = self._confirmation(operation, form, names, targets, hidden, list_address)
            return self.page(request, f"{TEMPLATES}/action.html", context)
        outcome = self._apply(request, operation, form.cleaned_data, names, targets)
        text = f"{operation.done_label} {self.count_text(outcome.count)}."
        self._report(request, text, len(names) - outcome.count, outcome)
        return HttpResponseRedirect(list_address)

    def _confirmation(
        self,
        operation: RowOperation,
        form: forms.Form,
        names: Sequence[str],
        targets: Mapping[str, Any],
        hidden: Sequence[tuple[str, str]],
        list_address: str,
    ) -> ActionContext:
        """Return the confirmation form: the number of objects to which the operation would apply."""
        model = str(self.opts.model_name)
        applicable = [name for name in names if name in targets and operation.applies(targets[name])]
        selection = _("%(count)s of %(chosen)s selected.") % {
            "count": formatting.number(len(applicable)),
            "chosen": self.count_text(len(names)),
        }
        if len(targets) < len(names):
            selection += " " + _("Gone: %(gone)s.") % {"gone": formatting.number(len(names) - len(targets))}
        facts: list[tuple[Any, Any]] = [(_("Selection"), selection)]
        if unfit := len(targets) - len(applicable):
            facts.append((_("Unchanged"), _("%(count)s of these, because of their state") % {"count": unfit}))
        links = [formatting.link(model, name, formatting.name(name, 60)) for name in applicable[:MAX_NAMED]]
        if links:
            left = len(applicable) - len(links)
            more = [_("and %(count)s more") % {"count": formatting.number(left)}] if left else []
            facts.append((operation.label, format_html_join(", ", "{}", ((link,) for link in [*links, *more]))))
        return {
            "title": operation.label,
            "button": operation.label if applicable else "",
            "form": form,
            "danger": operation.danger,
            "explain": operation.effect if applicable else _("There is nothing to do."),
            "facts": facts,
            "hidden": [("verb", operation.name), ("confirmed", "yes"), *hidden],
            "back": list_address,
            "live": False,
        }

    def _apply(
        self,
        request: HttpRequest,
        operation: RowOperation,
        argument: Any,
        names: Sequence[str],
        targets: Mapping[str, Any],
    ) -> RowOutcome:
        """Run an operation on the objects whose state allows it, and log it."""
        outcome = RowOutcome()
        for name in names:
            target = targets.get(name)
            if target is None or not operation.applies(target):
                continue
            try:
                change = operation.run(self, request, target, argument)
            except QlessError as error:
                outcome.errors.append(f"{printable(name, 60)}: {error}")
                continue
            except StoreError as error:  # report the objects that are already changed
                outcome.errors.append(str(error))
                break
            outcome.done.setdefault(change.log_text, []).append(name)
        for text, changed in outcome.done.items():
            self.add_history(request, text, *(self.model.from_name(name) for name in changed))
        return outcome

    def _report(self, request: HttpRequest, text: str, skipped: int, outcome: RowOutcome) -> None:
        """Show a message with the number of unchanged objects and the first errors."""
        sentences = [text]
        if skipped:
            sentences.append(_("Unchanged: %(count)s.") % {"count": formatting.number(skipped)})
        sentences += [printable(error, 300) for error in outcome.errors[:MAX_ERRORS]]
        level = messages.WARNING if outcome.errors else messages.SUCCESS
        self.message_user(request, " ".join(sentences), level)
