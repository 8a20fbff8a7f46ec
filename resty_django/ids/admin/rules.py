"""The admin of rules: a list with example IDs, a form with a live preview, issuing and deleting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_POST

from resty_django.admin.formatting import duration, number
from resty_django.admin.operations import Operation
from resty_django.admin.versions import save_changes

from .. import declared, store
from ..engine.cycle import DAY_SECONDS, WEEK_SECONDS
from ..models import IdCounter, IdRule
from ..preview import PREVIEWED_IDS, Preview, example, preview
from .base import ServiceAdmin, issue_one
from .forms import DeleteRuleForm, IdRuleForm, IssueForm, SampleForm, timezones
from .statistics import CounterStatistics

MAX_DELETED_COUNTERS = 20
"""Maximum number of counters that the page for deleting a rule lists."""


class ResetFilter(admin.SimpleListFilter):
    title = gettext_lazy("reset")
    parameter_name = "reset"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[IdRule]) -> list[tuple[str, str]]:
        return [("never", _("never")), ("seconds", _("fixed interval")), ("calendar", _("month or year"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[IdRule]) -> QuerySet[IdRule]:
        match self.value():
            case "never":
                return queryset.filter(reset_seconds=0, reset_calendar="")
            case "seconds":
                return queryset.filter(reset_seconds__gt=0)
            case "calendar":
                return queryset.exclude(reset_calendar="")
        return queryset


class IdRuleAdmin(ServiceAdmin[IdRule]):
    form = IdRuleForm
    list_display = ("name", "kind", "example", "reset", "numbers", "names", "enabled")
    list_filter = ("kind", "enabled", "gapless", ResetFilter)
    search_fields = ("name", "description", "source")
    search_help_text = gettext_lazy("Name, description or source of a rule")
    list_per_page = 50
    actions = None
    operations = (
        Operation(
            "issue",
            gettext_lazy("Issue one ID now"),
            "issue_id",
            lambda rule, data: issue_one(rule, data["app"], data["salt"]),
            form=IssueForm,
            button=gettext_lazy("Issue"),
            template="admin/resty_ids/issue.html",
        ),
    )
    save_on_top = False
    readonly_fields = ("origin", "version", "shown_created_at", "shown_updated_at")
    change_form_template = "admin/resty_ids/idrule/change_form.html"
    change_list_template = "admin/resty_django/change_list.html"
    delete_confirmation_template = "admin/resty_ids/idrule/delete_confirmation.html"

    fieldsets: ClassVar = [
        (None, {"fields": ["name", "description", "enabled"]}),
        (gettext_lazy("Format"), {"fields": ["kind", "source"]}),
        (
            gettext_lazy("Numbers"),
            {"fields": [("min_counter", "max_counter"), ("reset_seconds", "reset_calendar"), "timezone", "gapless"]},
        ),
        (gettext_lazy("Service"), {"fields": ["segment_size", "max_names"]}),
        (
            gettext_lazy("Lua and Python rules"),
            {
                "fields": ["salt_length", "fixed_length"],
                "classes": ["collapse"],
                "description": gettext_lazy(
                    "The format of these IDs is not visible from the source, so describe it here."
                ),
            },
        ),
    ]
    written: ClassVar = (
        gettext_lazy("Written"),
        {"fields": ["origin", ("version", "shown_created_at", "shown_updated_at")]},
    )

    def get_fieldsets(self, request: HttpRequest, obj: IdRule | None = None) -> Any:
        return [*self.fieldsets, self.written] if obj is not None else self.fieldsets

    def has_change_permission(self, request: HttpRequest, obj: IdRule | None = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or not declared.is_declared(obj))

    def has_delete_permission(self, request: HttpRequest, obj: IdRule | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not declared.is_declared(obj))

    # --- list ------------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[IdRule]:
        return super().get_queryset(request).annotate(names_used=Count("counters__app_name", distinct=True))

    @admin.display(description=gettext_lazy("example"))
    def example(self, rule: IdRule) -> SafeString:
        text = example(rule)
        if not text:
            return format_html('<span class="resty-alarm">{}</span>', _("does not work"))
        return format_html('<code class="resty-id">{}</code>', text)

    @admin.display(description=gettext_lazy("reset"), ordering="reset_seconds")
    def reset(self, rule: IdRule) -> str:
        if rule.reset_calendar:
            return _("each month") if rule.reset_calendar == "month" else _("each year")
        periods = {
            0: _("never"),
            60: _("each minute"),
            3600: _("each hour"),
            DAY_SECONDS: _("each day"),
            WEEK_SECONDS: _("each Monday"),
        }
        return periods.get(rule.reset_seconds) or _("each %(time)s") % {"time": duration(rule.reset_seconds)}

    @admin.display(description=gettext_lazy("range"), ordering="max_counter")
    def numbers(self, rule: IdRule) -> str:
        return f"{number(rule.min_counter)} – {number(rule.max_counter)}"

    @admin.display(description=gettext_lazy("names in use"), ordering="names_used")
    def names(self, rule: Any) -> str:
        return f"{number(rule.names_used)} / {number(rule.max_names)}"

    @admin.display(description=gettext_lazy("declared in"))
    def origin(self, rule: IdRule) -> str:
        if declared.is_declared(rule):
            return _("RESTY_DJANGO['IDS']['RULES']. Change it there; it is read-only here.")
        return _("the admin")

    # --- form ------------------------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: IdRule | None = None, change: bool = False, **kwargs: Any) -> Any:
        form = cast("type[IdRuleForm]", super().get_form(request, obj, change=change, **kwargs))
        form.user = request.user
        return form

    def save_model(self, request: HttpRequest, obj: IdRule, form: ModelForm[IdRule], change: bool) -> None:
        if change:
            save_changes(obj, store.database())
        else:
            obj.save(using=store.database())

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        form = context["adminform"].form
        rule = context.get("original")
        sample = SampleForm(request.POST if request.method == "POST" else None, rule)
        if form.is_bound:
            panel: Preview | None = look(form, sample)
        else:
            panel = preview(rule, **sample.given()) if rule is not None else None
        context |= {
            "sample": sample,
            "preview": panel,
            "count": PREVIEWED_IDS,
            "preview_url": reverse(self.url_name("preview"), query={"rule": rule.pk} if rule else None),
            "timezones": timezones(),
            "may_issue": rule is not None and self.may(request, "issue_id", rule),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """Return the preview of the submitted form as an HTML fragment.

        For users with view permission only, preview the stored rule.
        """
        key = request.GET.get("rule", "")
        rule = self.get_object(request, key) if key else None
        if key and rule is None:
            return HttpResponse(_("This rule no longer exists."), status=404, content_type="text/plain")
        sample = SampleForm(request.POST, rule)
        allowed = self.has_add_permission(request) if rule is None else self.has_change_permission(request, rule)
        if allowed:
            form = self.get_form(request, rule, change=rule is not None)(request.POST, instance=rule)
            form.previewed = True
            panel = look(form, sample)
            panel = replace(panel, warnings=[*getattr(form, "risks", []), *panel.warnings])
        elif rule is not None and self.has_view_permission(request, rule):
            panel = preview(rule, **sample.given())
        else:
            raise PermissionDenied
        return render(request, "admin/resty_ids/preview.html", {"preview": panel, "sample": sample})

    # --- other pages -----------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("preview", require_POST(self.preview_view), "preview/"),
            *self.operation_urls(),
            *super().get_urls(),
        ]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """List the counters that are deleted with their rule; this requires the permission `delete_idcounter`."""
        deletions, count, needed, protected = super().get_deleted_objects(objs, request)
        if request.user.has_perm("resty_ids.delete_idcounter"):
            needed = set(needed) - {IdCounter._meta.verbose_name}
        return deletions, count, needed, protected

    @method_decorator(csrf_protect)
    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        rule = self.get_object(request, object_id)
        context = dict(extra_context or {})
        if rule is not None:
            counters = IdCounter.objects.using(store.database()).filter(rule=rule).select_related("rule")
            total = counters.count()
            if total:
                form = DeleteRuleForm(request.POST if request.method == "POST" else None, rule)
                context |= {
                    "form": form,
                    "counters": [
                        CounterStatistics.of(counter)
                        for counter in counters.order_by("-updated_at")[:MAX_DELETED_COUNTERS]
                    ],
                    "more": max(0, total - MAX_DELETED_COUNTERS),
                    "total": total,
                }
                if request.method == "POST" and not form.is_valid():
                    request.POST = QueryDict()  # show the page again without deleting
        return super().delete_view(request, object_id, context)

    def delete_model(self, request: HttpRequest, obj: IdRule) -> None:
        obj.delete(using=store.database())


def look(form: ModelForm[IdRule], sample: SampleForm) -> Preview:
    """Return the preview of a form's data: the next IDs, or the errors that prevent them."""
    rule = form.instance
    errors = {name: list(messages) for name, messages in form.errors.items() if name != "confirm_risks"}
    labels = {name: str(form.fields[name].label) if name in form.fields else "" for name in errors}
    lines = [f"{labels[name]}: {text}".removeprefix(": ") for name in errors for text in errors[name]]
    if set(errors) <= {"name", "description", "max_names", "seen_version"}:  # fields that do not change the IDs
        panel = preview(rule, **sample.given())
        return replace(panel, warnings=[*lines, *panel.warnings])
    plain = preview(rule, count=1) if set(errors) == {"source"} else Preview()
    return Preview(error=plain.error or "\n".join(lines), place=plain.place)
