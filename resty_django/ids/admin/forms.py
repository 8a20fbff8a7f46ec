"""The forms of the admin: rules, samples for previews, and options of actions."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from django import forms
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import ValidationError
from django.utils.html import format_html

from resty_django.admin.versions import VersionedForm
from resty_django.conf import conf

from .. import operations, store
from ..engine.rule import MAX_NAME_LENGTH, MAX_NUMBER
from ..models import IdCounter, IdRule

PREVIEW = "_preview"
"""The name of the button that shows the form again with a preview instead of saving it."""
MAX_CHOICES = 50
NEEDED = {
    "lua": ("change_lua_rule", "Can write Lua rules"),
    "python": ("change_python_rule", "Can choose Python rules"),
}
"""The permission that a kind of rule takes, and its name."""

User = AbstractBaseUser | AnonymousUser


@cache
def timezones() -> list[str]:
    """Return all time zones that the system knows."""
    return sorted(zoneinfo.available_timezones())


def may_write(user: User, kind: str) -> bool:
    """Return whether `user` may write the text of rules of this kind."""
    return kind not in NEEDED or user.has_perm(f"resty_ids.{NEEDED[kind][0]}")  # type: ignore[union-attr]


class IdRuleForm(VersionedForm):
    """A rule. `user` decides about the kinds; edits that could repeat an ID need the box `confirm_risks`.

    A form that is `previewed` is never valid: nothing is saved.
    """

    user: ClassVar[User] = AnonymousUser()
    confirm_risks = forms.BooleanField(required=False, label="I have read this, and no ID of the past can come again")

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
        self.previewed = PREVIEW in self.data
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
            self.fields["source"].help_text = f"To change it takes the permission “{NEEDED[mine][1]}”."
            return
        kind.choices = [choice for choice in IdRule.Kind.choices if may_write(self.user, choice[0])]
        kind.error_messages["invalid_choice"] = "This kind does not exist, or you lack the permission to write it."
        if (self.data.get("kind") or mine) == "lua":
            self.fields["source"].widget.attrs["rows"] = 18

    def clean_source(self) -> str:
        """Keep line ends as they were stored, whatever the browser sends.

        Outside of scripts the last line has no end.
        """
        text: str = self.cleaned_data["source"]
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text if self.cleaned_data.get("kind") == "lua" else text.strip("\n")

    def is_valid(self) -> bool:
        return super().is_valid() and not self.previewed

    def validate_unique(self) -> None:
        """Check that the name is free on the database of the ID service, which the router need not lead to."""
        namesakes = IdRule.objects.using(store.database()).filter(name=self.cleaned_data.get("name"))
        if namesakes.exclude(pk=self.instance.pk).exists():
            self.add_error("name", "A rule of this name exists already.")

    def _post_clean(self) -> None:
        super()._post_clean()
        if self.instance.pk is None or self.errors:
            return
        self.risks = self.instance.risks(IdRule.objects.using(store.database()).get(pk=self.instance.pk))
        if self.risks and not self.cleaned_data.get("confirm_risks") and not self.previewed:
            self.add_error("confirm_risks", "Read what this edit can do, and tick the box to save it all the same.")


class SampleForm(forms.Form):
    """The caller's part of a preview: name, salt, and the number to begin with."""

    app = forms.CharField(
        label="sample application name", max_length=MAX_NAME_LENGTH, required=False, strip=False, initial="shop"
    )
    salt = forms.CharField(
        label="sample salt",
        max_length=64,
        required=False,
        strip=False,
        help_text="Empty: one is made up where the rule needs it.",
    )
    prefix = "sample"

    def __init__(self, data: Mapping[str, Any] | None, rule: IdRule | None) -> None:
        super().__init__(data)
        self.counters: dict[str, IdCounter] = {}
        if rule is not None and rule.pk is not None:
            rows = IdCounter.objects.using(store.database()).filter(rule_id=rule.pk).order_by("-updated_at")
            for row in rows[:MAX_CHOICES]:
                row.rule = rule
                self.counters[str(row.pk)] = row
        self.fields["counter"] = forms.ChoiceField(
            label="begin at",
            required=False,
            choices=[
                ("", "the first number"),
                *((key, f"where {row} stands") for key, row in self.counters.items()),
            ],
        )

    def given(self) -> dict[str, Any]:
        """Return app, salt and counter as `preview` takes them.

        The initial ones where the form was not sent or is wrong.
        """
        cleaned = self.cleaned_data if self.is_bound and self.is_valid() else {"app": self["app"].initial}
        return {
            "app": cleaned.get("app", ""),
            "salt": cleaned.get("salt", ""),
            "counter": self.counters.get(cleaned.get("counter", "")),
        }


class IssueForm(forms.Form):
    """The application name and salt of an ID to issue; at a counter the name is fixed."""

    app = forms.CharField(
        label="Application name", max_length=MAX_NAME_LENGTH, required=False, strip=False, help_text="May be empty."
    )
    salt = forms.CharField(
        label="Salt", max_length=64, required=False, strip=False, help_text="Where the rule shows one."
    )

    def __init__(self, data: Mapping[str, Any] | None, obj: IdRule | IdCounter) -> None:
        super().__init__(data)
        if isinstance(obj, IdCounter):
            del self.fields["app"]


class NumberForm(forms.Form):
    """A number to set a counter to."""

    to = forms.IntegerField(
        label="Next number",
        min_value=0,
        max_value=MAX_NUMBER + 1,
        help_text="The counter goes on at this number, or at the next one that belongs to the node.",
    )

    def __init__(self, data: Mapping[str, Any] | None, counter: IdCounter) -> None:
        super().__init__(data)
        self.counter = counter

    @property
    def name(self) -> str:
        """What has to be typed, apart from the number."""
        return f"{self.counter.rule.name}/{self.counter.app_name}"


class _TypedForm(NumberForm):
    """A number that must be typed a second time, after the counter's name."""

    confirmation = forms.CharField(
        label="Confirm", strip=False, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, data: Mapping[str, Any] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        self.fields["confirmation"].help_text = format_html(
            "Type the counter’s name, a space and the number, as in <code>{} 123</code>", self.name
        )

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        number, typed = cleaned.get("to"), cleaned.get("confirmation")
        if number is not None and typed is not None and typed != f"{self.name} {number}":
            raise ValidationError(
                {"confirmation": f"This is not the text “{self.name} {number}”. Nothing was changed."}
            )
        return cleaned


class LowerForm(_TypedForm):
    cycle_back = forms.BooleanField(label="Also set the cycle back to now", required=False)

    def __init__(self, data: Mapping[str, Any] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        if not operations.is_ahead(counter):
            del self.fields["cycle_back"]
        self.order_fields(["to", "cycle_back", "confirmation"])


class StepForm(_TypedForm):
    def __init__(self, data: Mapping[str, Any] | None, counter: IdCounter) -> None:
        super().__init__(data, counter)
        self.fields["to"].label = "Floor"
        self.fields["to"].initial = operations.highest_bound(counter)
        self.fields["to"].help_text = (
            "No node, on this database or another, has given out numbers of this cycle from here on. All nodes of "
            f"step {conf.ids.step} go on at or above it."
        )


class DeleteForm(forms.Form):
    """The name of a rule that has counters, typed by the person who deletes it."""

    confirmation = forms.CharField(
        label="Name", strip=False, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, data: Mapping[str, Any] | None, rule: IdRule) -> None:
        super().__init__(data)
        self.rule = rule

    def clean_confirmation(self) -> str:
        typed: str = self.cleaned_data["confirmation"]
        if typed != self.rule.name:
            raise ValidationError("This is not the rule’s name. Nothing was deleted.")
        return typed
