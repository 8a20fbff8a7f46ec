"""Live figures for the demo's public start page. Real sites use the overview in the admin."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.admin.overview import figure_view
from resty_django.cache import cached

SHOWN = {
    "ids": ("per_minute",),
    "limits": ("passed", "refused"),
    "cache": ("l1", "l2", "l3"),
    "jobs": ("waiting", "running", "failed", "per_minute"),
    "dictionaries": ("fill", "forcible"),
    "events": ("waiting",),
}
"""The panels that are shown, and their figures."""


@cached(ttl=2, stale_while_revalidate=60)
def figures() -> list[dict[str, Any]]:
    """Return the components with their figures as text, at most two seconds old."""
    panels = [panel for panel in overview.panels() if panel.name in SHOWN]
    return [
        {
            "title": str(answer.panel.title),
            "url": reverse(f"admin:{answer.panel.page or 'resty_django_overview_changelist'}"),
            "figures": [
                [view.label, str(view.text)]
                for view in map(figure_view, answer.tile.figures if answer.tile else ())
                if view.name in SHOWN[answer.panel.name]
            ],
            "note": answer.tile.notes[0] if answer.tile and answer.tile.notes else _("Not available"),
        }
        for answer in overview.answers(panels)
        if answer.tile or answer.error
    ]
