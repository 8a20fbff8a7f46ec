"""The recent refusals of one key in all limits, with their times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.utils.translation import gettext_lazy as _

from resty_django.admin.formatting import local_time
from resty_django.admin.statistics import KeyView
from resty_django.text import one_line, printable

from ..statistics import catalog
from ..statistics.events import SHADOWED, Event
from ..statistics.reporter import stats
from .all_limits import LABELS
from .key_forms import forms_of, has

SHOWN: Final = 100
"""The maximum number of refusals on the page."""
MOST_KEYS: Final = 500
"""The maximum number of pairs of limit and key, for further searches."""


@dataclass(frozen=True, slots=True)
class KeyRefusal:
    """A refusal. `outcome`: what happened to the request. `key_query`: the query that finds the key."""

    at: datetime
    name: str
    kind_label: Any
    key: str
    key_query: str
    request: str
    txid: str
    outcome: Any


@dataclass(frozen=True, slots=True)
class KeyRefusals:
    """The newest refusals of a key in the last two days, the most recent first. `count`: the number of stored ones.

    `keys`: the names of their limits in the statistics and their keys, each pair once, the most recent first.
    """

    listed: list[KeyRefusal]
    count: int
    keys: list[tuple[str, str]]


def refusals_of(key: str) -> KeyRefusals:
    """Return the refusals of a key in each form in which limits store it, alone or as a part. Raise `SharedDictError`.

    A txid finds the refusals of its request.

    Includes limits that this process has not loaded.
    """
    forms = forms_of(key)
    events = [
        (event, series)
        for series in stats.names()
        for event in stats.refusals(series)
        if key in (event.key, event.txid) or has(event.key, forms)
    ]
    events.sort(reverse=True)
    keys = dict.fromkeys((series, event.key) for event, series in events)
    listed = [_shown(*event) for event in events[:SHOWN]]
    return KeyRefusals(listed, len(events), list(keys)[:MOST_KEYS])


def _shown(event: Event, series: str) -> KeyRefusal:
    kind, name = catalog.kind_and_name(series)
    return KeyRefusal(
        local_time(event.time / 1000),
        printable(name, 200),
        LABELS[kind],
        KeyView.of(event.key).text,
        urlencode({"key": event.key}, errors="replace"),
        one_line(event.request),
        event.txid,
        _("would have been refused") if event.outcome == SHADOWED else _("refused"),
    )
