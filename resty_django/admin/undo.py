"""Undo of actions in the admin: a link in the message of the action, and a page that asks before it changes anything.

    class BanAdmin(UndoAdmin[KeyBan], ReadOnlyAdmin[KeyBan]):
        undos = {"add": Undo("add_keyban", _lift_again, gettext_lazy("Lift the ban"))}

    message = self.with_undo_link(request, _("Banned."), "add", {"ban": list(ban)})

The link contains the signed argument, works for an hour, and only for the user who did the action, as long as the user
has the permission of the action. An undo changes nothing if the object has been changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.core import signing
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import Error as DatabaseError
from django.db import models, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from resty_django.text import printable

from .base import Model, PageAdmin
from .versions import own_fields, stored_row

LONGEST_UNDO: Final = 2000
"""Maximum length of an undo in characters, since it travels in a URL."""
UNDO_SECONDS: Final = 3600
"""Seconds for which an undo is offered."""
LONGEST_NAME: Final = 200
MOST_NAMED: Final = 5
"""Maximum number of objects that a message names."""


class NotUndone(Exception):
    """An undo is refused; the text says what has changed."""


@dataclass(frozen=True, slots=True)
class Undo:
    """How an action is undone.

    `permission`: the codename of the action's permission. `run` takes the admin, the request and the argument, and
    returns the message; it runs in a transaction, writes the log entries, and may raise `NotUndone`. `label`: what it
    does. `subjects`: the texts of the objects in an argument, for the confirmation.
    """

    permission: str
    run: Callable[[Any, HttpRequest, Any], Any]
    label: Any
    subjects: Callable[[Any], Iterable[str]]


class UndoAdmin(PageAdmin[Model]):
    """An admin whose actions can be undone."""

    undos: ClassVar[Mapping[str, Undo]] = {}

    def undo_url(self) -> URLPattern:
        return self.page_url("undo", self.undo_view, "undo/")

    def with_undo_link(self, request: HttpRequest, message: Any, name: str, argument: Any) -> Any:
        """Return a message with a link to the undo, if the user has the permission and it fits into a URL.

        `argument`: JSON, for `Undo.run`.
        """
        signed = signing.dumps([str(request.user.pk), name, argument], salt=self._salt(), compress=True)
        if len(signed) > LONGEST_UNDO or not self.may(request, self.undos[name].permission):
            return message
        address = f"{reverse(self.url_name('undo'))}?{urlencode({'t': signed})}"
        return format_html('{} <a href="{}">{}</a>', message, address, _("Undo"))

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def undo_view(self, request: HttpRequest) -> HttpResponse:
        """Undo an action. URL parameter `t`: the signed token."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        list_address = reverse(self.url_name("changelist"))
        try:
            owner, name, argument = signing.loads(request.GET.get("t", ""), salt=self._salt(), max_age=UNDO_SECONDS)
        except signing.BadSignature:
            owner, name, argument = "", "", None
        undo = self.undos.get(name)
        if undo is None or owner != str(request.user.pk):
            self.message_user(request, _("This can no longer be undone."), messages.WARNING)
            return HttpResponseRedirect(list_address)
        if not self.may(request, undo.permission):
            raise PermissionDenied
        if request.method == "POST":
            try:
                with transaction.atomic(using=self.undo_database()):
                    message = undo.run(self, request, argument)
            except NotUndone as refusal:
                self.message_user(request, format_html(_("Nothing was changed: {}"), str(refusal)), messages.WARNING)
            except self.refusals as error:
                self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
            except DatabaseError as error:
                self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
            else:
                self.message_user(request, message, messages.SUCCESS)
            return HttpResponseRedirect(list_address)
        context = {
            "title": _("Undo"),
            "button": _("Undo"),
            "form": forms.Form(),
            "object": None,
            "label": undo.label,
            "subjects": [printable(text, LONGEST_NAME) for text in undo.subjects(argument)],
            "back": list_address,
        }
        return self.page(request, "admin/resty_django/undo.html", context)

    def undo_database(self) -> str:
        """Return the alias of the database in whose transaction an undo runs."""
        return router.db_for_write(self.model)

    def _salt(self) -> str:
        return f"resty_django.admin.undo.{self.opts.label_lower}"


# --- Django's own pages -----------------------------------------------------------------------------------------------


class UndoEditsAdmin(UndoAdmin[Model]):
    """An admin of a model with a field `version`: what Django's pages add, change and delete can be undone."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        before = stored_row(obj, lock=True) if change else None
        super().save_model(request, obj, form, change)
        if before is None:
            self._offer(request, "add", {"rows": [{"pk": obj.pk, "name": str(obj), "version": obj.version}]})
        elif obj.version != before.version:
            changed = [name for name in own_fields(obj) if getattr(before, name) != getattr(obj, name)]
            self._offer(
                request,
                "change",
                {
                    "rows": [
                        {"pk": obj.pk, "name": str(obj), "version": obj.version, "values": _values(before, changed)}
                    ]
                },
            )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        deleted = _deleted(stored_row(obj) or obj)
        super().delete_model(request, obj)
        self._offer(request, "delete", {"rows": [deleted]})

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        deleted = list(map(_deleted, queryset))
        super().delete_queryset(request, queryset)
        self._offer(request, "delete", {"rows": deleted})

    def message_user(
        self, request: HttpRequest, message: Any, level: Any = messages.INFO, *args: Any, **kw: Any
    ) -> None:
        """Add the link to the undo to Django's message about the change."""
        offer = getattr(request, "resty_undo", None)
        if offer is not None and level == messages.SUCCESS:
            request.resty_undo = None  # type: ignore[attr-defined]
            message = self.with_undo_link(request, message, *offer)
        super().message_user(request, message, level, *args, **kw)

    @staticmethod
    def _offer(request: HttpRequest, name: str, argument: Any) -> None:
        request.resty_undo = (name, argument)  # type: ignore[attr-defined]


def edit_undos(model_name: str) -> dict[str, Undo]:
    """Return the undos of Django's pages for a model."""
    return {
        "add": Undo(f"add_{model_name}", _undo_add, gettext_lazy("Delete again:"), _names),
        "change": Undo(
            f"change_{model_name}", _undo_change, gettext_lazy("Restore the values before the change:"), _names
        ),
        "delete": Undo(f"delete_{model_name}", _undo_delete, gettext_lazy("Create again as before:"), _names),
    }


def _names(argument: Any) -> list[str]:
    return [row["name"] for row in argument["rows"]]


def unchanged_rows(admin: PageAdmin[Any], entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the stored rows of the entries, locked. Raise `NotUndone` if one has another version or is gone."""
    rows = admin.model._default_manager.using(router.db_for_write(admin.model)).select_for_update()
    stored = rows.in_bulk([entry["pk"] for entry in entries])
    gone = [entry["name"] for entry in entries if entry["pk"] not in stored]
    if gone:
        raise NotUndone(_("No longer there: %(names)s.") % {"names": _listed(gone)})
    changed = [entry["name"] for entry in entries if stored[entry["pk"]].version != entry["version"]]
    if changed:
        raise NotUndone(_("Changed again since then: %(names)s.") % {"names": _listed(changed)})
    return [stored[entry["pk"]] for entry in entries]


def _undo_add(admin: Any, request: HttpRequest, argument: Any) -> Any:
    (row,) = unchanged_rows(admin, argument["rows"])
    log(request, row, DELETION, "Undone: deleted again.")
    row.delete()
    return _("Undone: %(names)s was deleted again.") % {"names": _listed(_names(argument))}


def _undo_change(admin: Any, request: HttpRequest, argument: Any) -> Any:
    (row,) = unchanged_rows(admin, argument["rows"])
    values = argument["rows"][0]["values"]
    for name, value in values.items():
        setattr(row, name, row._meta.get_field(name).to_python(value))
    _check(row)
    row.save(update_fields=[*values])
    log(request, row, CHANGE, f"Undone: restored {', '.join(values)}.")
    return _("Undone: the values of %(names)s are restored.") % {"names": _listed(_names(argument))}


def _undo_delete(admin: Any, request: HttpRequest, argument: Any) -> Any:
    alias = router.db_for_write(admin.model)
    for entry in argument["rows"]:
        if admin.model._default_manager.using(alias).filter(pk=entry["pk"]).exists():
            raise NotUndone(_("Created again since then: %(names)s.") % {"names": _listed([entry["name"]])})
        row = admin.model(pk=entry["pk"], version=entry["version"] + 1)
        for name, value in entry["values"].items():
            setattr(row, name, row._meta.get_field(name).to_python(value))
        _check(row)
        row.save(force_insert=True, using=alias)
        log(request, row, ADDITION, "Undone: created again.")
    return _("Undone: created again: %(names)s.") % {"names": _listed(_names(argument))}


def log(request: HttpRequest, row: models.Model, flag: int, text: str) -> None:
    """Add a log entry to the history of a row."""
    LogEntry.objects.log_actions(str(request.user.pk), [row], flag, text, single_object=True)


def _check(row: models.Model) -> None:
    """Raise `NotUndone` if a row is not valid, for example because there is another one for the same object now."""
    try:
        row.full_clean()
    except ValidationError as error:
        raise NotUndone(" ".join(error.messages)) from error


def _deleted(row: Any) -> dict[str, Any]:
    return {"pk": row.pk, "name": str(row), "version": row.version, "values": _values(row, own_fields(row))}


def _values(row: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return values of fields as JSON, which `to_python` of the fields accepts."""
    values = ((name, getattr(row, name)) for name in names)
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values}


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(f"“{printable(name, LONGEST_NAME)}”" for name in names[:MOST_NAMED])
    return listed if len(names) <= MOST_NAMED else f"{listed}, …"
