"""Template tags that show the overview on any page, such as the index of the admin.

{% load resty_overview %}
{% block extrahead %}{{ block.super }}{% resty_overview_media %}{% endblock %}
{% block content %}{% resty_overview %}{{ block.super }}{% endblock %}
"""

# Django imports template libraries at startup, so the overview is imported by the tags.

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.admin import site
from django.utils.safestring import SafeString

register = template.Library()


@register.inclusion_tag("admin/resty_django/overview/brief.html", takes_context=True)
def resty_overview(context: dict[str, Any]) -> dict[str, Any]:
    """Return the tiles that the user may see, for a short version of the overview.

    There are none without the permission for the overview, nor on the page of a single app, which uses the template of
    the index.
    """
    from resty_django.admin.overview import REFRESH_SECONDS, page_url, visible_tiles

    request = context["request"]
    site_name = getattr(request, "current_app", None) or site.name
    return {
        "tiles": [] if context.get("app_label") and "app_list" in context else visible_tiles(request, site_name),
        "url": page_url(site_name, "resty_django_overview_changelist"),
        "every": REFRESH_SECONDS,
    }


@register.simple_tag
def resty_overview_media() -> SafeString:
    """Return the style sheet and the script of the overview, for the head of the page."""
    from resty_django.admin.overview import OverviewAdmin
    from resty_django.models import Overview

    return OverviewAdmin(Overview, site).media.render()
