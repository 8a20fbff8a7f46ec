"""The base of the admins of edited rows, and bulk actions: modes, with a confirmation page, and the export of rows."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import PageAdmin
from resty_django.admin.operations import changed_text
from resty_django.models import Model

from ..models import LimitPolicy
from ..policies import files


@admin.action(description=gettext_lazy("Export the selected %(verbose_name_plural)s"), permissions=["view"])
def export_selected(model_admin: PageAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
    """Return a file for `limits_policies load`."""
    headers = {"Content-Disposition": f'attachment; filename="{model_admin.opts.label_lower}.json"'}
    return HttpResponse(files.dump(queryset), content_type="application/json", headers=headers)


class EditableAdmin(PageAdmin[Model]):
    """The admin of rows that operators edit, read from the database that is written."""

    readonly_fields: ClassVar[tuple[str, ...]] = ("version", "shown_created_at", "shown_updated_at")
    written: ClassVar = (gettext_lazy("Written"), {"fields": [readonly_fields]})

    class Media:
        css: ClassVar = {"all": ["resty_limits/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).using(router.db_for_write(self.model))


class ModesAdmin(EditableAdmin[LimitPolicy]):
    actions = ["enforce", "shadow", "off", export_selected]

    @admin.action(description=gettext_lazy("Enforce the selected policies"), permissions=["change"])
    def enforce(self, request: HttpRequest, queryset: QuerySet[LimitPolicy]) -> HttpResponse | None:
        return self._change_mode(request, queryset, "enforce")

    @admin.action(description=gettext_lazy("Set the selected policies to shadow mode"), permissions=["change"])
    def shadow(self, request: HttpRequest, queryset: QuerySet[LimitPolicy]) -> HttpResponse | None:
        return self._change_mode(request, queryset, "shadow")

    @admin.action(description=gettext_lazy("Turn off the selected policies"), permissions=["change"])
    def off(self, request: HttpRequest, queryset: QuerySet[LimitPolicy]) -> HttpResponse | None:
        return self._change_mode(request, queryset, "off")

    def _change_mode(self, request: HttpRequest, queryset: QuerySet[LimitPolicy], mode: str) -> HttpResponse | None:
        rows = list(queryset.order_by("order", "name"))
        changing = [row for row in rows if row.mode != mode]
        if not changing:
            self.message_user(request, _("All selected policies already have this mode. Nothing was changed."))
            return None
        if "confirmed" not in request.POST:
            title = _("Change to “%(mode)s”") % {"mode": mode}
            effects = {
                "enforce": _("Requests over the limit are refused from now on."),
                "shadow": _("Requests over the limit pass. Decisions are made and counted."),
                "off": _("All requests pass. Decisions are neither made nor counted."),
            }
            picks = [(ACTION_CHECKBOX_NAME, str(row.pk)) for row in changing]
            context: dict[str, Any] = {
                "title": title,
                "button": title,
                "effect": effects[mode],
                "rows": changing,
                "hidden": [*picks, ("action", mode), ("confirmed", "yes")],
                "back": reverse(self.url_name("changelist")),
            }
            return self.page(request, "admin/resty_limits/limitpolicy/mode.html", context)
        with transaction.atomic(using=router.db_for_write(LimitPolicy)):
            for row in changing:
                before, row.mode = row.mode, mode
                row.save(update_fields=["mode"])
                self.log_change(request, row, f"Changed {changed_text('Mode', before, mode)}.")
        names = ", ".join(row.name for row in changing)
        self.message_user(request, _("Changed to %(mode)s: %(names)s.") % {"mode": mode, "names": names})
        return None
