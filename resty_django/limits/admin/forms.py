"""The forms of the admin of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError

from resty_django.admin.statistics import key_of
from resty_django.admin.versions import VersionedForm

from ..limiters.units import parse_duration
from ..models import LimitPolicy
from ..policies import export, simulation
from ..policies.spec import ALL_NUMBERS, NUMBERS, PolicySpec

LONGEST_INTERVAL = 86_400.0


class LimitPolicyForm(VersionedForm):
    """A policy. Numbers of algorithms other than the chosen one are ignored, and stored empty."""

    class Meta:
        model = LimitPolicy
        exclude = ()
        widgets: ClassVar = {
            "description": forms.TextInput(attrs={"class": "resty-wide"}),
            **{name: forms.TextInput(attrs={"class": "resty-wide"}) for name in ("key", "path", "route", "view")},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        burst = self.initial.get("burst")
        if isinstance(burst, float) and burst.is_integer():
            self.initial["burst"] = int(burst)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        used = NUMBERS.get(cleaned.get("algorithm", ""))
        if used is not None:
            for name in ALL_NUMBERS:
                if name not in used and name in self.fields:
                    self.errors.pop(name, None)
                    cleaned[name] = getattr(self.fields[name], "empty_value", None)
        return cleaned

    def clean_methods(self) -> str:
        return " ".join(self.cleaned_data["methods"].upper().replace(",", " ").split())


class SpanField(forms.CharField):
    """A duration with its unit, as seconds."""

    def __init__(self, *, most: float, **kwargs: Any) -> None:
        super().__init__(max_length=32, **kwargs)
        self.most = most

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return 0.0
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error
        if seconds > self.most:
            raise ValidationError(f"This is at most {self.most:,.0f} seconds.")
        return seconds


class TrialForm(forms.Form):
    """A series of requests to simulate. It is sent by GET, since it changes nothing."""

    key = forms.CharField(label="Key", max_length=200, required=False, help_text="All requests come from this one.")
    arrivals = forms.IntegerField(label="Requests", min_value=1, max_value=simulation.MOST, initial=20)
    interval = SpanField(most=LONGEST_INTERVAL, label="One each", initial="100ms", help_text="0s: all at once.")
    lasts = SpanField(
        most=LONGEST_INTERVAL, label="Each lasts", initial="500ms", required=False, help_text="After its delay."
    )

    def __init__(self, data: Mapping[str, Any] | None, spec: PolicySpec) -> None:
        super().__init__(data)
        if spec.algorithm != "concurrency":
            del self.fields["lasts"]


class ResetForm(forms.Form):
    """A key: the one of a token in the URL, else one that is typed."""

    key = forms.CharField(
        label="Key",
        strip=False,
        max_length=1000,
        help_text="As the figures list it, without the name of the policy. Upper and lower case matter.",
    )

    def __init__(self, data: Any, token: str) -> None:
        super().__init__(data)
        self.key_in_url = key_of(token)
        if self.key_in_url:
            del self.fields["key"]

    def clean(self) -> dict[str, Any]:
        return {"key": self.key_in_url} if self.key_in_url else self.cleaned_data


class ImportForm(forms.Form):
    """A file with policies, uploaded or pasted. The cleaned `policies` are its content."""

    file = forms.FileField(label="File", required=False, help_text="As the export writes it.")
    text = forms.CharField(
        label="or its text",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"class": "resty-source", "rows": 12, "cols": 80, "spellcheck": "false"}),
    )
    prune = forms.BooleanField(
        label="Delete the policies that the file does not have", required=False, help_text="Leave it off to add."
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        file = cleaned.get("file")
        text = cleaned.get("text", "")
        if file is not None:
            if file.size > 4 * export.LONGEST:
                raise ValidationError({"file": f"The file has more than {export.LONGEST:,} characters."})
            try:
                text = file.read().decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise ValidationError({"file": f"The file is not a text in UTF-8: {error}"}) from error
        if not text.strip():
            raise ValidationError("Choose a file, or paste its text.")
        try:
            cleaned["policies"] = export.read(text)
        except export.BadFile as error:
            raise ValidationError({"file" if file is not None else "text": error.problems[: export.SHOWN]}) from error
        cleaned["text"] = text
        return cleaned
