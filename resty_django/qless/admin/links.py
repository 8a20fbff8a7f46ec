"""Links from a job's arguments to the objects they name, and from objects with a txid to their jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin as contrib
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.formatting import NONE
from resty_django.conf import conf

from ..clients.job import Job
from ..errors import QlessError
from . import formatting


def links(request: HttpRequest, site: AdminSite, job: Job) -> list[tuple[str, str]]:
    """Return at most 20 pairs of text and URL: from the function in the setting LINKS, else for objects in the data.

    Objects are named by `{"model": "shop.Order", "pk": 7}` or by strings such as `shop.order:7`.
    """
    labelled_urls: Sequence[tuple[object, object]]
    if conf.qless.links:
        labelled_urls = import_string(conf.qless.links)(job)
    else:
        try:
            labelled_urls = list(_found(request, site, job.data))
        except QlessError:
            labelled_urls = []
    is_safe = re.compile(r"https?://|/(?!/)|\?|#", re.IGNORECASE).match
    safe = [(formatting.name(str(text)), str(url)) for text, url in labelled_urls if is_safe(str(url))]
    return list(dict.fromkeys(safe))[:20]


def show_jobs(field: str, description: str = "") -> Any:
    """Return a column or read-only field for any model's admin: a link to the jobs whose txid is in `field`.

    `description` is the heading.
    """

    @contrib.display(description=description or gettext_lazy("Jobs"))
    def shown_jobs(obj: object) -> str:
        txid = getattr(obj, field)
        if not txid:
            return NONE
        return format_html('<a href="{}">{}</a>', formatting.list_url("job", q=txid), _("of the same request"))

    return shown_jobs


def _found(request: HttpRequest, site: AdminSite, data: object) -> Iterator[tuple[str, str]]:
    for label, pk in _named(data, 0):
        try:
            opts = apps.get_model(label)._meta
            url = reverse(f"{site.name}:{opts.app_label}_{opts.model_name}_change", args=[quote(pk)])
        except (LookupError, ValueError, NoReverseMatch):
            continue
        admin = site._registry.get(opts.model)
        if admin is not None and admin.has_view_or_change_permission(request):
            yield f"{opts.verbose_name} {pk}", url


def _named(value: object, depth: int) -> Iterator[tuple[str, str]]:
    if depth > 8:
        return
    if isinstance(value, str):
        match = re.fullmatch(r"([a-z_][a-z0-9_]*\.[A-Za-z_]\w*):([^\s:]{1,100})", value, re.ASCII)
        if match:
            yield match[1], match[2]
    elif isinstance(value, dict):
        model, pk = value.get("model"), value.get("pk")
        if isinstance(model, str) and model.count(".") == 1 and isinstance(pk, str | int):
            yield model, str(pk)
        for member in list(value.values())[:100]:
            yield from _named(member, depth + 1)
    elif isinstance(value, list):
        for member in value[:100]:
            yield from _named(member, depth + 1)
