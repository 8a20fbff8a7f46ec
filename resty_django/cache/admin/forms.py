"""The form for purging a cache."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.forms import FlushForm


class PurgeForm(FlushForm):
    """Asks for the name of the cache. `keeps_stale`: whether the cache can keep purged values as stale values."""

    free = forms.BooleanField(
        required=False,
        label=gettext_lazy("Free the memory at once"),
        help_text=gettext_lazy(
            "Otherwise, purged values may be served as stale values if the source fails (resurrect_ttl)."
        ),
    )

    def __init__(self, data: Any, name: str, keeps_stale: bool) -> None:
        super().__init__(data, name)
        self.fields["confirmation"].label = _("Type “%(name)s” to purge it") % {"name": name}
        if not keeps_stale:
            del self.fields["free"]

    def clean_confirmation(self) -> str:
        if self.cleaned_data["confirmation"] != self.name:
            raise ValidationError(_("This is not the name of the cache."))
        return self.name
