"""Export and import of policies in the admin; a file may also contain overrides."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE, DELETION
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from resty_django.admin.base import PageAdmin

from ..models import LimitPolicy
from ..overrides import files
from ..policies import export
from .forms import ImportForm

FLAGS = {"new": ADDITION, "changed": CHANGE, "deleted": DELETION}


class ExchangeAdmin(PageAdmin[LimitPolicy]):
    def exchange_urls(self) -> list[URLPattern]:
        return [
            self.page_url("export", self.export_view, "export/"),
            self.page_url("import", self.import_view, "import/"),
        ]

    @method_decorator(require_safe)
    def export_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        return download(self.get_queryset(request))

    @admin.action(description=gettext_lazy("Export the selected policies"), permissions=["view"])
    def export_selected(self, request: HttpRequest, queryset: QuerySet[LimitPolicy]) -> HttpResponse:
        return download(queryset)

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def import_view(self, request: HttpRequest) -> HttpResponse:
        """Show the changes of an uploaded file, and apply them after confirmation."""
        if not self.may(request, "import_policies"):
            raise PermissionDenied
        posted = request.method == "POST"
        may_override = request.user.has_perms(["resty_limits.add_limitoverride", "resty_limits.change_limitoverride"])
        data, uploaded = (request.POST, request.FILES) if posted else (None, None)
        form = ImportForm(data, uploaded, may_override=may_override)
        may_prune = self.has_delete_permission(request)
        if not may_prune:
            del form.fields["prune"]
        plan = None
        if posted and form.is_valid():
            cleaned = form.cleaned_data
            prune = may_prune and cleaned["prune"]
            try:
                if "confirmed" in request.POST:
                    return self._import(request, cleaned["content"], prune)
                plan = files.plan(
                    cleaned["content"], prune=prune, prune_overrides=prune and _may_delete_overrides(request)
                )
            except DatabaseError as error:
                self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
        context = {
            "title": _("Import policies"),
            "object": None,
            "form": form,
            "plan": plan,
            "text": form.cleaned_data["text"] if plan else "",
            "prune": bool(plan and form.cleaned_data.get("prune")),
        }
        return self.page(request, "admin/resty_limits/limitpolicy/import.html", context)

    def _import(self, request: HttpRequest, content: files.Content, prune: bool) -> HttpResponse:
        applied = files.apply(content, prune=prune, prune_overrides=prune and _may_delete_overrides(request))
        for change, row in applied:
            text = f"Imported ({change.what}). {'; '.join(change.lines)}".strip()
            self.add_history(request, text, row, flag=FLAGS[change.what])
        names = ", ".join(f"{change.name} ({change.kind})" for change, _row in applied)
        text = _("Imported: %(names)s.") % {"names": names} if names else _("Imported: nothing has changed.")
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(reverse(self.url_name("changelist")))


def download(rows: Iterable[LimitPolicy]) -> HttpResponse:
    return file_response(export.write(row.spec() for row in rows), "limit-policies.json")


def file_response(text: str, name: str) -> HttpResponse:
    """Return a JSON file to save under this name."""
    return HttpResponse(
        text,
        content_type="application/json; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _may_delete_overrides(request: HttpRequest) -> bool:
    return request.user.has_perm("resty_limits.delete_limitoverride")
