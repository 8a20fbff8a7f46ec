"""The template tag of the links that export a table.

{% load resty_export %}
{% export_links "bans" %}
"""

# Django imports template libraries at startup, so exports are imported by the tag.

from __future__ import annotations

from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from resty_django.text.localized import grouped

register = template.Library()


@register.simple_tag(takes_context=True)
def export_links(context: Any, name: str, title: object = "") -> SafeString | str:
    """Return the links "CSV" and "JSON" to the export `name` of the page. `title`: of the table, for screen readers."""
    from resty_django.admin.export import FORMATS, MAX_ROWS, export_query

    request = getattr(context, "request", None)
    if request is None or not name:
        return ""
    links = [(format.upper(), export_query(request, format, name)) for format in FORMATS]
    shown = {"links": links, "title": title, "maximum": grouped(MAX_ROWS)}
    return render_to_string("admin/resty_django/export_links.html", shown)
