"""What the overview and the metrics tell of what every site has: dictionaries, events, shipped logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django import metrics, overview
from resty_django.conf import conf
from resty_django.events.lag import Lag, lag
from resty_django.health import described
from resty_django.logs import handlers
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Level, Panel, Row, Tile
from resty_django.shdict import Stats, shdicts
from resty_django.shdict.figures import quick_stats

LATE = 1000
"""Events that wait from which on it is a warning."""


# --- dictionaries ---------------------------------------------------------------------------------------------------


def _dictionaries() -> Iterator[tuple[str, Stats | Exception]]:
    for name in shdicts.names():
        try:
            yield name, quick_stats(shdicts[name])
        except Exception as error:  # one that cannot be used hides no other
            yield name, error


def dictionaries() -> Tile:
    """How full each dictionary is."""
    found = list(_dictionaries())
    fills = [used for _name, one in found if isinstance(one, Stats) and (used := _used(one)) is not None]
    figures = [
        Figure("dictionaries", _("Dictionaries"), len(found)),
        Figure("fill", _("The fullest"), max(fills, default=None), "share"),
        Figure(
            "forcible",
            _("Forcible evictions"),
            sum(one.forcible or 0 for _name, one in found if isinstance(one, Stats)),
            note=_("Items thrown out before their time: usual in a cache, a loss elsewhere."),
        ),
    ]
    rows = [
        Row(
            name,
            [
                Figure("fill", _("Full"), _used(one), "share"),
                Figure("free", _("Free"), one.free_space, "bytes"),
                Figure("keys", _("Keys"), one.keys),
                Figure("forcible", _("Evicted"), one.forcible),
            ],
        )
        if isinstance(one, Stats)
        else Row(name, error=described(one))
        for name, one in found
    ]
    return overview.tile(figures, rows)


def _used(stats: Stats) -> float | None:
    return 1 - min(1.0, stats.free_space / stats.capacity) if stats.capacity else None


def dictionary_families() -> Iterator[Family]:
    """The metrics of the dictionaries."""
    found = [(name, one) for name, one in _dictionaries() if isinstance(one, Stats)]
    rows: dict[str, tuple[str, Callable[[Stats], int | None]]] = {
        "resty_dict_capacity_bytes": ("Bytes that a dictionary may take.", lambda one: one.capacity or None),
        "resty_dict_free_bytes": ("Bytes that are free in it.", lambda one: one.free_space),
        "resty_dict_keys": ("Keys in it, where they are known without a search.", lambda one: one.keys),
    }
    for name, (text, read) in rows.items():
        samples = [Sample((each,), value) for each, one in found if (value := read(one)) is not None]
        yield Family(name, "gauge", text, ("dict",), samples)
    samples = [Sample((each,), one.forcible) for each, one in found if one.forcible is not None]
    yield Family("resty_dict_evictions", "counter", "Items thrown out before their time.", ("dict",), samples)


# --- events ---------------------------------------------------------------------------------------------------------


def events() -> Tile:
    """How far this process is behind the last event."""
    found: Lag = lag()
    note = "" if found.listening else _("This process does not listen.")
    return overview.tile(
        [
            Figure("waiting", _("Events that wait"), found.waiting, level=_late(found), note=note),
            Figure("store_seconds", _("Answer of the store"), found.seconds, "seconds"),
        ],
        notes=[_("Of the process that made this page; the dictionary is %(name)s.") % {"name": conf.events.dict}],
    )


def _late(found: Lag) -> Level:
    return "warning" if (found.waiting or 0) >= LATE else "ok"


def event_families() -> Iterator[Family]:
    """The metrics of the events."""
    found = lag()
    waiting = [] if found.waiting is None else [Sample((), found.waiting)]
    text = "Events that were posted and not yet heard by the process that is scraped."
    yield Family("resty_events_waiting", "gauge", text, (), waiting)
    text = "How long the store of the events took to tell the last one."
    yield Family("resty_events_store_seconds", "gauge", text, (), [Sample((), found.seconds)])


# --- logs -----------------------------------------------------------------------------------------------------------


def logs() -> Tile:
    """What the handlers of this process have shipped."""
    rows = []
    for handler in handlers():
        one = handler.figures()
        rows.append(
            Row(
                handler.options.place,
                [
                    Figure("sent", _("Sent"), one.sent),
                    Figure("waiting", _("Waiting"), one.waiting),
                    Figure("dropped", _("Dropped"), one.dropped, level="warning" if one.dropped else "ok"),
                    Figure("failures", _("Failures"), one.failures, level="warning" if one.error else "ok"),
                ],
            )
        )
    figures = [
        Figure(name, label, sum(figure.value or 0 for row in rows for figure in row.figures if figure.name == name))
        for name, label in (("sent", _("Sent")), ("waiting", _("Waiting")), ("dropped", _("Dropped")))
    ]
    notes = [_("Of the process that made this page.") if rows else _("No handler of LOGGING ships records.")]
    return overview.tile(figures, rows, notes=notes)


def log_families() -> Iterator[Family]:
    """The metrics of shipped logs."""
    found = [(handler.options.place, handler.figures()) for handler in handlers()]
    yield Family(
        "resty_logs_messages",
        "counter",
        "Log messages of the process that is scraped, by what became of them.",
        ("server", "outcome"),
        [
            Sample((place, outcome), getattr(one, outcome))
            for place, one in found
            for outcome in ("sent", "resent", "dropped")
        ],
    )
    yield Family(
        "resty_logs_waiting_bytes",
        "gauge",
        "Bytes of log messages that wait in the process that is scraped.",
        ("server",),
        [Sample((place,), one.size) for place, one in found],
    )


def register() -> None:
    """Register the panels and the metrics of the core app."""
    view = ("resty_django.view_shareddictionary",)
    own = ("resty_django.view_overview",)
    page = "resty_django_shareddictionary_changelist"
    overview.register(Panel("dictionaries", gettext_lazy("Shared dictionaries"), dictionaries, view, page))
    overview.register(Panel("events", gettext_lazy("Events"), events, own))
    overview.register(Panel("logs", gettext_lazy("Shipped logs"), logs, own))
    metrics.register("dictionaries", dictionary_families)
    metrics.register("events", event_families)
    metrics.register("logs", log_families)


__all__ = ["dictionaries", "events", "logs", "register"]
