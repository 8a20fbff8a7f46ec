"""The overview on a page of the site's own, such as the index of its admin.

{% load resty_overview %}
{% block extrahead %}{{ block.super }}{% resty_overview_media %}{% endblock %}
{% block sidebar %}{{ block.super }}{% resty_overview %}{% endblock %}
"""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.admin import site
from django.utils.safestring import SafeString

from resty_django.admin import overview
from resty_django.admin.overview import OverviewAdmin, shown_tiles
from resty_django.models import Overview

register = template.Library()


@register.inclusion_tag("admin/resty_django/overview/tiles.html", takes_context=True)
def resty_overview(context: dict[str, Any]) -> dict[str, Any]:
    """The tiles that the user of the request may see; without the permission for the overview, none."""
    request = context["request"]
    return {"tiles": shown_tiles(request, getattr(request, "current_app", None) or site.name), "every": overview.EVERY}


@register.simple_tag
def resty_overview_media() -> SafeString:
    """The style sheet and the script that it needs, for the head of the page."""
    return OverviewAdmin(Overview, site).media.render()
