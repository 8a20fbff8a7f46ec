"""From the arguments of a job to the pages of what they name; and from an object with a txid to the jobs of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib import admin as contrib
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db import models
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.conf import conf

from ..errors import QlessError
from ..job import Job
from . import shown

MOST: Final = 20
"""Links that a page shows."""
_NAMED: Final = re.compile(r"([a-z_][a-z0-9_]*\.[A-Za-z_]\w*):([^\s:]{1,100})", re.ASCII)
_SAFE: Final = re.compile(r"(https?://|/(?!/)|\?|#)", re.IGNORECASE)


def links(request: HttpRequest, site: AdminSite, job: Job) -> list[tuple[str, str]]:
    """Pairs of text and URL: what the function of the settings gives; else objects whose admin the user may see.

    Found are `{"model": "shop.Order", "pk": 7}` and texts such as `shop.order:7`.
    """
    given: Sequence[tuple[Any, Any]]
    if conf.qless.links:
        given = import_string(conf.qless.links)(job)
    else:
        try:
            given = list(_found(request, site, job.data))
        except QlessError:
            given = []
    safe = [(shown.name(str(text)), str(url)) for text, url in given if _SAFE.match(str(url))]
    return list(dict.fromkeys(safe))[:MOST]


def show_jobs(field: str, description: str = "") -> Any:
    """A column of a list, or a read-only field, of any model's admin: a link to the jobs whose txid is in `field`.

    `description` is the heading.
    """

    @contrib.display(description=description or gettext_lazy("Jobs"))
    def shown_jobs(each: Any) -> Any:
        txid = getattr(each, field)
        return (
            format_html('<a href="{}">{}</a>', shown.list_url("job", q=txid), _("of its request"))
            if txid
            else shown.NONE
        )

    return shown_jobs


def _found(request: HttpRequest, site: AdminSite, data: Any) -> Iterator[tuple[str, str]]:
    for label, pk in _named(data, 0):
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):
            continue
        admin = site._registry.get(model)
        if admin is None or not admin.has_view_or_change_permission(request):
            continue
        yield from _link(site, model, pk)


def _link(site: AdminSite, model: type[models.Model], pk: str) -> Iterator[tuple[str, str]]:
    opts = model._meta
    try:
        url = reverse(f"{site.name}:{opts.app_label}_{opts.model_name}_change", args=[quote(pk)])
    except NoReverseMatch:
        return
    yield f"{opts.verbose_name} {pk}", url


def _named(value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth > 8:
        return
    if isinstance(value, str):
        found = _NAMED.fullmatch(value)
        if found:
            yield found[1], found[2]
    elif isinstance(value, dict):
        model, pk = value.get("model"), value.get("pk")
        if isinstance(model, str) and model.count(".") == 1 and isinstance(pk, str | int):
            yield model, str(pk)
        for each in list(value.values())[:100]:
            yield from _named(each, depth + 1)
    elif isinstance(value, list):
        for each in value[:100]:
            yield from _named(each, depth + 1)


__all__ = ["links", "show_jobs"]
