"""Admin forms: rules, sample input for previews, and the options of actions."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from django import forms
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.versions import VersionedForm
from resty_django.conf import conf

from .. import operations, store
from ..engine.rule import MAX_NAME_LENGTH, MAX_NUMBER
from ..models import IdCounter, IdRule

KIND_PERMISSIONS = {
    "lua": ("change_lua_rule", gettext_lazy("Can write Lua rules")),
    "python": ("change_python_rule", gettext_lazy("Can choose Python rules")),
}
"""The permission that each kind of rule requires: codename and label."""

User = AbstractUser | AnonymousUser


@cache
def timezones() -> list[str]:
    """Return all time zones that the system knows."""
    return sorted(zoneinfo.available_timezones())


def may_write(user: User, kind: str) -> bool:
    """Return whether `user` may write the text of rules of this kind."""
    return kind not in KIND_PERMISSIONS or user.has_perm(f"resty_ids.{KIND_PERMISSIONS[kind][0]}")


def _typed(label: Any) -> forms.CharField:
    """Return the field for a text that confirms an action, which browsers must not fill in or correct."""
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    return forms.CharField(label=label, strip=False, widget=widget)


class IdRuleForm(VersionedForm):
    """The form of a rule. The permissions of `user` limit the kinds; edits that could repeat an ID require the
    checkbox `confirm_risks`.

    A form that is `previewed` is never valid, so nothing is saved.
    """

    user: ClassVar[User] = AnonymousUser()
    confirm_risks = forms.BooleanField(
        required=False, label=gettext_lazy("I have read this, and no earlier ID can be issued again")
    )

    class Meta:
        model = IdRule
        exclude = ()
        widgets: ClassVar = {
            "source": forms.Textarea(
                attrs={
                    "class": "resty-source",
                    "cols": 80,
                    "rows": 3,
                    "spellcheck": "false",
                    "autocapitalize": "off",
                    "autocomplete": "off",
                    "placeholder": "O{now:%y%m%d}{counter:06d}",
                }
            ),
            "description": forms.TextInput(attrs={"class": "resty-wide"}),
            "timezone": forms.TextInput(attrs={"list": "resty-timezones", "autocomplete": "off"}),
        }

    class Media:
        js: ClassVar = [forms.Script("resty_ids/preview.js", defer=True)]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.risks: list[str] = []
        self.previewed = "_preview" in self.data  # the name of a button
        source = self.fields.get("source")
        if isinstance(source, forms.CharField):
            source.strip = False
        kind = self.fields.get("kind")
        if not isinstance(kind, forms.ChoiceField):
            return  # shown read-only
        mine = self.instance.kind if self.instance.pk else None
        if mine is not None and not may_write(self.user, mine):
            for name in ("kind", "source", "salt_length", "fixed_length"):
                if name in self.fields:
                    self.fields[name].disabled = True
            self.fields["source"].help_text = _("Changing this requires the permission “%(permission)s”.") % {
                "permission": KIND_PERMISSIONS[mine][1]
            }
            return
        kind.choices = [choice for choice in IdRule.Kind.choices if may_write(self.user, choice[0])]
        kind.error_messages["invalid_choice"] = _("This kind does not exist, or you do not have permission to use it.")
        if (self.data.get("kind") or mine) == "lua":
            self.fields["source"].widget.attrs["rows"] = 18

    def clean_source(self) -> str:
        """Return the source with the line endings of the stored rule, whatever the browser sends.

        Except in scripts, the trailing line ending is removed.
        """
        text: str = self.cleaned_data["source"]
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text if self.cleaned_data.get("kind") == "lua" else text.strip("\n")

    def is_valid(self) -> bool:
        return super().is_valid() and not self.previewed

    def validate_unique(self) -> None:
        """Check that the name is unused in the database of the ID service; the router may point to another one."""
        namesakes = IdRule.objects.using(store.database()).filter(name=self.cleaned_data.get("name"))
        if namesakes.exclude(pk=self.instance.pk).exists():
            self.add_error("name", _("A rule with this name already exists."))

    def _post_clean(self) -> None:
        super()._post_clean()
        if self.instance.pk is None or self.errors:
            return
        self.risks = self.instance.risks(IdRule.objects.using(store.database()).get(pk=self.instance.pk))
        if self.risks and not self.cleaned_data.get("confirm_risks") and not self.previewed:
            self.add_error("confirm_risks", _("Read what this change can do, and tick the box to save it anyway."))


class SampleForm(forms.Form):
    """The caller's input to a preview: application name, salt and first number."""

    app = forms.CharField(
        label=gettext_lazy("sample application name"),
        max_length=MAX_NAME_LENGTH,
        required=False,
        strip=False,
        initial="shop",
    )
    salt = forms.CharField(
        label=gettext_lazy("sample salt"),
        max_length=64,
        required=False,
        strip=False,
        help_text=gettext_lazy("Leave this empty to use a generated salt if the rule needs one."),
    )
    prefix = "sample"

    def __init__(self, data: Mapping[str, object] | None, rule: IdRule | None) -> None:
        super().__init__(data)
        self.counters: dict[str, IdCounter] = {}
        if rule is not None and rule.pk is not None:
            rows = IdCounter.objects.using(store.database()).filter(rule_id=rule.pk).order_by("-updated_at")
            for row in rows[:50]:
                row.rule = rule
                self.counters[str(row.pk)] = row
        self.fields["counter"] = forms.ChoiceField(
            label=_("begin at"),
            required=False,
            choices=[
                ("", _("the first number")),
                *((key, _("the position of %(counter)s") % {"counter": row}) for key, row in self.counters.items()),
            ],
        )

    def given(self) -> dict[str, Any]:
        """Return app, salt and counter as arguments for `preview`.

        If the form was not sent or is invalid, return the initial values.
        """
        cleaned = self.cleaned_data if self.is_bound and self.is_valid() else {"app": self["app"].initial}
        return {
            "app": cleaned.get("app", ""),
            "salt": cleaned.get("salt", ""),
            "counter": self.counters.get(cleaned.get("counter", "")),
        }


class IssueForm(forms.Form):
    """The application name and salt of an ID to issue; for a counter, the name is fixed."""

    app = forms.CharField(
        label=gettext_lazy("Application name"),
        max_length=MAX_NAME_LENGTH,
        required=False,
        strip=False,
        help_text=gettext_lazy("May be empty."),
    )
    salt = forms.CharField(
        label=gettext_lazy("Salt"),
        max_length=64,
        required=False,
        strip=False,
        help_text=gettext_lazy("Used only if the rule shows a salt."),
    )

    def __init__(self, data: Mapping[str, object] | None, obj: IdRule | IdCounter) -> None:
        super().__init__(data)
        if isinstance(obj, IdCounter):
            del self.fields["app"]


class NumberForm(forms.Form):
    """A number to set a counter to."""

    to = forms.IntegerField(
        label=gettext_lazy("Next number"),
        min_value=0,
        max_value=MAX_NUMBER + 1,
        help_text=gettext_lazy("The counter continues at this number, or at the node’s next number after it."),
    )

    def __init__(self, data: Mapping[str, object] | None, counter: IdCounter) -> None:
        super().__init__(data)
        self.counter = counter

    @property
    def name(self) -> str:
        """The counter's name, which the user types to confirm."""
        return f"{self.counter.rule.name}/{self.counter.app_name}"


class _TypedForm(NumberForm):
    """A number that must be typed a second time, after the counter's name."""

    confirmation = _typed(gettext_lazy("Confirm"))

    def __init__(self, data: Mapping[str, object] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        self.fields["confirmation"].help_text = format_html(
            _("Type the counter’s name, a space and the number, as in <code>{} 123</code>"), self.name
        )

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        number, typed = cleaned.get("to"), cleaned.get("confirmation")
        if number is not None and typed is not None and typed != f"{self.name} {number}":
            problem = _("The text is not “%(text)s”. Nothing was changed.") % {"text": f"{self.name} {number}"}
            raise ValidationError({"confirmation": problem})
        return cleaned


class LowerForm(_TypedForm):
    cycle_back = forms.BooleanField(label=gettext_lazy("Also set the cycle back to now"), required=False)

    def __init__(self, data: Mapping[str, object] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        if not operations.is_ahead(counter):
            del self.fields["cycle_back"]
        self.order_fields(["to", "cycle_back", "confirmation"])


class StepForm(_TypedForm):
    def __init__(self, data: Mapping[str, object] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        self.fields["to"].label = _("Floor")
        self.fields["to"].initial = operations.highest_bound(counter)
        self.fields["to"].help_text = _(
            "Every number that any node has issued in this cycle, on this database or another, must be below this one. "
            "All nodes of step %(step)s continue at or above it."
        ) % {"step": conf.ids.step}


class DeleteRuleForm(forms.Form):
    """The confirmation for deleting a rule that has counters: the user types the rule's name."""

    confirmation = _typed(gettext_lazy("Name"))

    def __init__(self, data: Mapping[str, object] | None, rule: IdRule) -> None:
        super().__init__(data)
        self.rule = rule

    def clean_confirmation(self) -> str:
        typed: str = self.cleaned_data["confirmation"]
        if typed != self.rule.name:
            raise ValidationError(_("The text is not the rule’s name. Nothing was deleted."))
        return typed
