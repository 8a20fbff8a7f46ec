"""The form for purging a cache."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from resty_django.admin.forms import FlushForm


class PurgeForm(FlushForm):
    """Asks for the name of the cache. `keeps_stale`: whether the cache can keep purged values as stale values."""

    label = gettext_lazy("Type “%(name)s” to purge it")
    mismatch = gettext_lazy("This is not the name of the cache.")
    free = forms.BooleanField(
        required=False,
        label=gettext_lazy("Free the memory at once"),
        help_text=gettext_lazy(
            "Otherwise, purged values may be served as stale values if the source fails (resurrect_ttl)."
        ),
    )

    def __init__(self, data: Any, name: str, keeps_stale: bool) -> None:
        super().__init__(data, name)
        if not keeps_stale:
            del self.fields["free"]
