"""Contributions of the core to the timeline: outages, deploys, alerts, and edits in the admin."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _

from resty_django import circuit_breaker
from resty_django.alerts import store as alerts
from resty_django.alerts.delivery import amount, condition
from resty_django.overview import Viewer

from . import MOST_ENTRIES, Entry, Span, Story, log, story


def outages(span: Span) -> Story:
    """Return outages of stores as all processes noted them, and current ones of this process."""
    current = {outage.store: (outage.since, outage.error) for outage in circuit_breaker.outages()}
    entries = []
    for stored in log.load().outages:
        if stored.lasts(span.now):
            current[stored.store] = (stored.at, stored.error)
        elif span.contains(stored.at, stored.until):
            title = _("Store %(store)s was down") % {"store": stored.store}
            entries.append(Entry(stored.at, title, stored.error, stored.until, "error"))
    entries += [
        Entry(since, _("Store %(store)s is down") % {"store": store}, error, None, "error")
        for store, (since, error) in current.items()
        if span.contains(since, span.now)
    ]
    note = _(
        "Processes note an outage when it begins, every 30 seconds, and when it ends, but not while the dictionary of"
        " the alerts is down itself. Then, of current outages, only the process that made this page is asked."
    )
    return story(entries, notes=[note])


def deploys(span: Span) -> Story:
    """Return the first starts of new versions."""
    return story(
        [
            Entry(
                deploy.at,
                _("New version: %(version)s") % {"version": deploy.version},
                _("First seen in a process of the kind “%(process)s”.") % {"process": deploy.process}
                + (" " + _("Before: %(version)s") % {"version": deploy.before} if deploy.before else ""),
            )
            for deploy in log.load().deploys
            if span.contains(deploy.at)
        ]
    )


def incidents(span: Span) -> Story:
    """Return the beginnings and the ends of alerts."""
    state = alerts.load()
    entries = []
    for incident in (*state.active, *state.past):
        if incident.fired is None or not span.contains(incident.fired, incident.resolved or incident.fired):
            continue
        value = amount(incident.value, incident.unit)
        text = f"{incident.rule}: {value} ({condition(incident)})"
        title = " ".join(filter(None, [incident.title, incident.subject]))
        url = ("resty_django_alert_changelist", ())
        if span.contains(incident.fired):
            entries.append(Entry(incident.fired, _("Alert: %(title)s") % {"title": title}, text, None, "error", url))
        if incident.resolved is not None and span.contains(incident.resolved):
            entries.append(Entry(incident.resolved, _("Resolved: %(title)s") % {"title": title}, text, None, "ok", url))
    return story(entries)


def edits(span: Span) -> Story:
    """Return the changes of operators, from the log of Django's admin, of the models that the viewer may see."""
    if not apps.is_installed("django.contrib.admin"):
        return Story()
    from datetime import UTC, datetime

    from django.contrib.admin.models import LogEntry

    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (span.start, span.end))
    rows = (
        LogEntry.objects.filter(
            content_type__in=_visible_types(span.viewer), action_time__gte=start, action_time__lt=end
        )
        .select_related("user", "content_type")
        .order_by("action_time")[: MOST_ENTRIES + 1]
    )
    return story([_edit(row) for row in rows])


def _edit(row: Any) -> Entry:
    kind = row.content_type.model_class()
    name = str(kind._meta.verbose_name) if kind is not None else row.content_type.model
    title = _("%(user)s: %(kind)s “%(object)s”") % {
        "user": row.user.get_username(),
        "kind": name,
        "object": row.object_repr,
    }
    opts = row.content_type
    url = None if row.is_deletion() else (f"{opts.app_label}_{opts.model}_change", (row.object_id,))
    return Entry(row.action_time.timestamp(), title, row.get_change_message(), None, "ok", url)


def _visible_types(viewer: Viewer | None) -> list[Any]:
    """Return the content types of this package's models whose changes the viewer may see.

    Models without own permissions to view or to change belong to the component of their app.
    """
    from django.contrib.contenttypes.models import ContentType

    visible = []
    for config in apps.get_app_configs():
        parts = getattr(config, "parts", None)
        if parts is None:
            continue
        of_app = [permission for part in parts for permission in part.permissions]
        for model in config.get_models():
            opts = model._meta
            codenames = [action for action in ("view", "change") if action in opts.default_permissions]
            needed = [f"{opts.app_label}.{action}_{opts.model_name}" for action in codenames] or of_app
            if viewer is None or any(map(viewer.has_perm, needed)):
                visible.append(model)
    return list(ContentType.objects.get_for_models(*visible, for_concrete_models=False).values())
