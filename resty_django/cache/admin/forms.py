"""The form of the page that purges a cache."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from resty_django.admin.forms import FlushForm


class PurgeForm(FlushForm):
    """Requires the name of the cache to be typed. `keeps_stale`: whether the cache can keep purged values as stale
    ones."""

    free = forms.BooleanField(
        required=False,
        label="Free the memory at once",
        help_text="Otherwise what was there may be served as a stale value where the source fails (resurrect_ttl).",
    )

    def __init__(self, data: Any, name: str, keeps_stale: bool) -> None:
        super().__init__(data, name)
        self.fields["confirmation"].label = f"Type “{name}” to purge it"
        if not keeps_stale:
            del self.fields["free"]

    def clean_confirmation(self) -> str:
        if self.cleaned_data["confirmation"] != self.name:
            raise ValidationError("This is not the name of the cache.")
        return self.name
