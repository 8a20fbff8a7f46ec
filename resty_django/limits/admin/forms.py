"""Admin forms for policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.forms import DeleteKeyForm
from resty_django.admin.versions import VersionedForm
from resty_django.text.durations import parse_duration
from resty_django.text.localized import grouped, translated

from ..models import LimitOverride, LimitPolicy
from ..policies import simulation
from ..requests.chosen_rates import tier_problem
from ..specs.lines import LINE_FIELDS, USER_PREFIX, lines_of, shown
from ..specs.override import is_known
from ..specs.policy import ALL_NUMBER_FIELDS, MAX_NAME_CHARS, NUMBER_FIELDS, PolicySpec


class LimitPolicyForm(VersionedForm):
    """The form of a policy. The numbers of other algorithms are ignored and stored as empty."""

    class Meta:
        model = LimitPolicy
        exclude = ()
        widgets: ClassVar = {
            name: forms.TextInput(attrs={"class": "resty-wide"})
            for name in ("description", "rate", "key", "path", "route", "view")
        } | {
            name: forms.Textarea(attrs={"class": "resty-wide", "rows": 3, "spellcheck": "false"})
            for name in LINE_FIELDS
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None and "name" in self.fields:
            self.fields["name"].required = False
            self.fields["name"].help_text = _("The name in code and in the statistics. Empty: made from the route.")
        burst = self.initial.get("burst")
        if isinstance(burst, float) and burst.is_integer():
            self.initial["burst"] = int(burst)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("name") == "":
            cleaned["name"] = re.sub(r"[^A-Za-z0-9]+", "-", cleaned.get("route", "")).strip("-")[:MAX_NAME_CHARS]
            if not cleaned["name"]:
                self.add_error("name", self.fields["name"].error_messages["required"])
        used = NUMBER_FIELDS.get(cleaned.get("algorithm", ""))
        if used is not None:
            for name in ALL_NUMBER_FIELDS:
                if name not in used and name in self.fields:
                    self.errors.pop(name, None)
                    cleaned[name] = getattr(self.fields[name], "empty_value", None)
        problem = tier_problem() if cleaned.get("tiers") else ""
        if problem:
            self.add_error("tiers", problem)
        self._check_names("exempt_users", _unknown_users(lines_of(cleaned.get("exempt_users", ""))))
        self._check_names("exempt_groups", _unknown_groups(lines_of(cleaned.get("exempt_groups", ""))))
        return cleaned

    def _check_names(self, field: str, unknown: list[str]) -> None:
        if unknown:
            names = ", ".join(f"“{shown(name)}”" for name in unknown[:5])
            template = (
                _("There is no user %(names)s. Correct the name, or remove it.")
                if field == "exempt_users"
                else _("There is no group %(names)s. Correct the name, or remove it.")
            )
            self.add_error(field, template % {"names": names})

    def clean_methods(self) -> str:
        return " ".join(self.cleaned_data["methods"].upper().replace(",", " ").split())


def _unknown_users(entries: tuple[str, ...]) -> list[str]:
    """Return the user names that no user has. Primary keys are not looked up: their type depends on the model."""
    names = [entry for entry in entries if not entry.startswith(USER_PREFIX)]
    model = get_user_model()
    field = model.USERNAME_FIELD
    known = set(model._default_manager.filter(**{f"{field}__in": names}).values_list(field, flat=True))
    return [name for name in names if name not in known]


def _unknown_groups(names: tuple[str, ...]) -> list[str]:
    known = set(Group.objects.filter(name__in=names).values_list("name", flat=True))
    return [name for name in names if name not in known]


def _user_named(key: str) -> Any:
    """Return the user with this name, or None; also None if it is the ID of another user."""
    users = get_user_model()._default_manager
    with suppress(ValueError, TypeError, ValidationError, OverflowError):  # no ID
        if users.filter(pk=key).exists():
            return None
    return users.filter(**{get_user_model().USERNAME_FIELD: key}).first()


class LimitOverrideForm(VersionedForm):
    """The form of an override."""

    class Meta:
        model = LimitOverride
        exclude = ()
        widgets: ClassVar = {
            name: forms.TextInput(attrs={"class": "resty-wide"}) for name in ("key", "limit", "reason")
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # Django's date and time inputs have no label
            for widget, part in zip(getattr(field.widget, "widgets", ()), (_("date"), _("time")), strict=False):
                widget.attrs["aria-label"] = f"{field.label}: {part}"

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        key = cleaned.get("key", "")
        user = _user_named(key) if cleaned.get("kind") == "user" else None
        if user is not None:
            text = _("The user “%(name)s” has the ID %(id)s. Enter the ID.") % {"name": shown(key), "id": user.pk}
            self.add_error("key", text)
        return cleaned

    def clean_limit(self) -> str:
        """Refuse a limit that no process has used, which is probably misspelt."""
        limit = str(self.cleaned_data["limit"])
        if limit and limit != self.instance.limit and not is_known(limit):
            text = _("There is no limit %(name)s. Copy its name from its figures, or leave this empty for all limits.")
            raise ValidationError(text % {"name": repr(limit)})
        return limit


class SpanField(forms.CharField):
    """A duration of up to one day with its unit, as seconds."""

    max_seconds = 86_400

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=32, **kwargs)

    def clean(self, value: object) -> float:
        text = super().clean(value)
        if not text:
            return 0.0
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValidationError(translated(error)) from error
        if seconds > self.max_seconds:
            text = _("The duration is too long. Enter at most %(seconds)s seconds.")
            raise ValidationError(text % {"seconds": grouped(self.max_seconds)})
        return seconds


class TrialForm(forms.Form):
    """A series of requests to simulate. The form uses GET, because it changes nothing.

    `specs`: the limits of a policy to choose from, by their names.
    """

    limit = forms.ChoiceField(label=gettext_lazy("Limit"), help_text=gettext_lazy("Several rates decide together."))
    key = forms.CharField(
        label=gettext_lazy("Key"), max_length=200, required=False, help_text=gettext_lazy("The key of all requests.")
    )
    arrivals = forms.IntegerField(
        label=gettext_lazy("Requests"), min_value=1, max_value=simulation.MAX_REQUESTS, initial=20
    )
    interval = SpanField(
        label=gettext_lazy("Interval"),
        initial="100ms",
        help_text=gettext_lazy("0s: all at once."),
    )
    lasts = SpanField(
        label=gettext_lazy("Duration of each"),
        initial="500ms",
        required=False,
        help_text=gettext_lazy("Starts after the delay."),
    )

    def __init__(self, data: Mapping[str, Any] | None, specs: Mapping[str, PolicySpec]) -> None:
        super().__init__(data)
        if all(spec.algorithm != "concurrency" for spec in specs.values()):
            del self.fields["lasts"]
        if len(specs) > 1:
            cast("forms.ChoiceField", self.fields["limit"]).choices = [(name, name) for name in specs]
        else:
            del self.fields["limit"]


class ResetForm(DeleteKeyForm):
    """A key: from the token in the URL, else entered by the user."""

    key = forms.CharField(
        label=gettext_lazy("Key"),
        strip=False,
        max_length=1000,
        help_text=gettext_lazy("As shown in the statistics, without the name of the policy. Case-sensitive."),
    )
