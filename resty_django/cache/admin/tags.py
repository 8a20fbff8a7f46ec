"""The latest invalidated tags of a cache for the admin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from resty_django.admin.formatting import local_time
from resty_django.admin.statistics import KeyView
from resty_django.sansio import run

from ..errors import BadOption
from ..inventory import CacheInfo
from ..tags.names import MAX_TAG_LENGTH, invalidated


@dataclass(frozen=True, slots=True)
class TagRow:
    """A tag, the number of its invalidations while it was listed, and the time of the last one."""

    key: KeyView
    times: int
    when: datetime


def latest_tags(info: CacheInfo) -> list[TagRow]:
    """Return the tags with the latest invalidations in all processes. Raise `SharedDictError`."""
    if info.counter is None:
        return []
    run(info.counter.flush())
    return [TagRow(KeyView.of(row.tag), row.times, local_time(row.when)) for row in run(info.counter.tags.load())]


class TagForm(forms.Form):
    """Form that names a tag. `initial_tag`: the tag in the URL."""

    tag = forms.CharField(
        strip=False, max_length=MAX_TAG_LENGTH, label=_("Tag"), help_text=_("Case and spaces matter.")
    )

    def __init__(self, data: Any, initial_tag: str) -> None:
        super().__init__(data, initial={"tag": initial_tag})

    def clean_tag(self) -> str:
        tag: str = self.cleaned_data["tag"]
        try:
            invalidated((tag,))
        except BadOption as error:
            raise ValidationError(str(error)) from error
        return tag
