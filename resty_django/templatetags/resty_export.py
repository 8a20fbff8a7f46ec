"""Template tags of the admin pages: charts, and links that export charts and tables.

{% load resty_export %}
{% chart figures.chart %}
{% export_links "bans" %}
"""

# Django imports template libraries at startup, so charts and exports are imported by the tags.

from __future__ import annotations

from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from resty_django.numbers import grouped

register = template.Library()


@register.simple_tag(takes_context=True)
def export_links(context: Any, name: str, title: object = "", day: Any = None) -> SafeString | str:
    """Return the links "CSV" and "JSON" to the export `name` of the page. `title`: of the table, for screen readers.

    `day`: the changes of the URL with which the page exports 24 hours, which adds a link for each format.
    """
    from resty_django.admin.export import FORMATS, MAX_ROWS, export_query

    request = getattr(context, "request", None)
    if request is None or not name:
        return ""
    links = [(format.upper(), export_query(request, format, name)) for format in FORMATS]
    if day:
        hours = [(_("%(format)s (24 h)") % {"format": format.upper()}, format) for format in FORMATS]
        links += [(label, export_query(request, format, name, day)) for label, format in hours]
    shown = {"links": links, "title": title, "maximum": grouped(MAX_ROWS)}
    return render_to_string("admin/resty_django/export_links.html", shown)


@register.simple_tag(takes_context=True)
def chart(context: Any, chart: Any) -> SafeString:
    """Return a chart, with the links to its export if it has a name."""
    return chart.render(export_links(context, chart.name, chart.title, chart.day))  # type: ignore[no-any-return]
