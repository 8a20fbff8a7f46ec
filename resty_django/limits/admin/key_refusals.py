"""The recent refusals of one key in all limits, with their times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext_lazy as _

from resty_django.admin.formatting import local_time
from resty_django.admin.statistics import KeyView
from resty_django.text import one_line, printable

from ..statistics import catalog
from ..statistics.events import EventOutcome, RefusalEvent
from ..statistics.reporter import stats
from .all_limits import KIND_LABELS
from .columns import MAX_SHOWN_CHARACTERS
from .key_forms import forms_of, has


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
    """The refusals of a key in the last two days, the most recent first.

    `listed`: the newest 100. `count`: the number of stored ones. `keys`: up to 500 pairs for further searches, the name
    of a limit in the statistics and the key.
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
    listed = [_shown(*event) for event in events[:100]]
    return KeyRefusals(listed, len(events), list(keys)[:500])


def _shown(event: RefusalEvent, series: str) -> KeyRefusal:
    kind, name = catalog.kind_and_name(series)
    return KeyRefusal(
        local_time(event.time / 1000),
        printable(name, MAX_SHOWN_CHARACTERS),
        KIND_LABELS[kind],
        KeyView.of(event.key).text,
        urlencode({"key": event.key}, errors="replace"),
        one_line(event.request),
        event.txid,
        _("would have been refused") if event.outcome == EventOutcome.SHADOWED else _("refused"),
    )
