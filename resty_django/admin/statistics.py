"""Statistics of a shared dictionary and its items, for the admin. Unavailable figures carry the reason."""

from __future__ import annotations

import base64
import binascii
import socket
from dataclasses import dataclass
from datetime import datetime
from pprint import pformat
from typing import Final

from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.circuit_breaker import Outage
from resty_django.conf import conf
from resty_django.shdict import DictStats, SharedDict, SharedDictError, WrongKind
from resty_django.shdict.facts import DictFacts
from resty_django.text import printable

from .formatting import NONE, duration, free_space_bar, local_time, number

MAX_VALUE_CHARS: Final = 4000
"""Maximum length of a shown value in characters."""
MAX_SCANNED: Final = 10_000
"""Maximum number of keys that a search examines."""


@dataclass(frozen=True, slots=True)
class DictionaryView:
    """The state of a dictionary as texts; `error` says why its figures are unavailable."""

    facts: DictFacts

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def engine(self) -> str:
        return self.facts.dictionary.engine if self.facts.dictionary else ""

    @property
    def where(self) -> str:
        """The location: the memory of this machine, or the Redis cache."""
        if not self.engine:
            return ""
        if self.engine == "lmdb":
            return _("memory of %(name)s") % {"name": socket.gethostname()}
        return _("cache %(name)s") % {"name": conf.shared_dicts[self.name].alias}

    @property
    def stats(self) -> DictStats | None:
        return self.facts.stats

    @property
    def error(self) -> str:
        return why(self.facts.error) if self.facts.error else ""

    @property
    def capacity(self) -> str:
        return filesizeformat(self.stats.capacity) if self.stats and self.stats.capacity else NONE

    @property
    def keys(self) -> str:
        return number(self.stats.keys if self.stats else None)

    @property
    def forcible(self) -> str:
        return number(self.stats.forcible if self.stats else None)

    @property
    def free(self) -> SafeString | str:
        """A bar with the free bytes; without a capacity, only the bytes."""
        if self.stats is None:
            return NONE
        text = _("%(size)s free") % {"size": filesizeformat(self.stats.free_space)}
        if not self.stats.capacity:
            return text
        return free_space_bar(min(1.0, self.stats.free_space / self.stats.capacity), text)


def why(error: Exception) -> str:
    """Return the message of an error; for errors other than `SharedDictError`, with the type."""
    text = printable(str(error), MAX_VALUE_CHARS)
    return text if isinstance(error, SharedDictError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True, slots=True)
class OutageView:
    """An outage of a store as this process sees it. `calls`: the count of calls without the store."""

    store: str
    since: datetime
    error: str
    calls: int

    @classmethod
    def of(cls, outage: Outage) -> OutageView:
        return cls(printable(outage.store, 200), local_time(outage.since), printable(outage.error, 500), outage.calls)


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key as the page shows it. `token` stands for it in a URL, since a key may be bytes that are not text."""

    text: str
    token: str

    @classmethod
    def of(cls, key: str) -> KeyView:
        name = key.encode("utf-8", "surrogateescape")
        # A longer key does not fit into a URL, so it gets no link.
        token = base64.urlsafe_b64encode(name).decode() if len(name) <= 1000 else ""
        return cls(printable(key, 200), token)


def key_of(token: str) -> str:
    """Return the key that a token stands for; "" if the token is not valid."""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item as text, with a value of bounded length."""

    kind: str
    size: str
    life: str
    value: str = ""
    flags: int | None = None
    stale: bool = False


def find_item(dictionary: SharedDict, key: str) -> ItemView | None:
    """Return the item, even an expired one that is still stored. Raise `SharedDictError`."""
    try:
        item = dictionary.get_stale(key)
    except WrongKind:
        life = dictionary.ttl(key)
        return None if life is None else _list_view(dictionary.llen(key), life)
    if item is None:
        return None
    value = item.value
    life = None if item.stale else dictionary.ttl(key)
    return ItemView(kind_of(value), size_of(value), life_text(life), value_text(value), item.flags, item.stale)


def kind_of(value: object) -> str:
    """Return the type of a value in words."""
    kinds = {
        str: _("text"),
        int: _("whole number"),
        float: _("number"),
        bool: _("true or false"),
        bytes: _("bytes"),
        list: _("list, as msgpack"),
        dict: _("dict, as msgpack"),
    }
    return kinds.get(type(value), type(value).__name__)


def _list_view(length: int, life: float | None) -> ItemView:
    text = ngettext("%(count)s item", "%(count)s items", length) % {"count": number(length)}
    return ItemView(_("list"), text, life_text(life))


def life_text(ttl: float | None) -> str:
    if ttl is None:
        return _("has expired")
    if not ttl:
        return _("never expires")
    return duration(ttl)


def size_of(value: object) -> str:
    if isinstance(value, str):
        return ngettext("%(count)s character", "%(count)s characters", len(value)) % {"count": number(len(value))}
    if isinstance(value, bytes):
        return ngettext("%(count)s byte", "%(count)s bytes", len(value)) % {"count": number(len(value))}
    if isinstance(value, list | dict):
        return ngettext("%(count)s entry", "%(count)s entries", len(value)) % {"count": number(len(value))}
    return ""


def value_text(value: object) -> str:
    """Return the value as text of at most about `MAX_VALUE_CHARS` characters."""
    if isinstance(value, str):
        return printable(value, MAX_VALUE_CHARS)
    if isinstance(value, bytes):
        return printable(repr(value[:MAX_VALUE_CHARS]), MAX_VALUE_CHARS)
    text = repr(value)
    if len(text) <= MAX_VALUE_CHARS and isinstance(value, list | dict):
        text = pformat(value, width=100, sort_dicts=False)
    return printable(text, MAX_VALUE_CHARS)


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Keys that contain a text."""

    keys: list[KeyView]
    truncated: bool
    """More keys match than are listed."""
    incomplete: bool
    """The search stopped before the last key."""


def search(dictionary: SharedDict, text: str) -> KeySearch:
    """Search the first keys of a dictionary. Raise `SharedDictError`."""
    keys = dictionary.get_keys(MAX_SCANNED)
    matches = [key for key in keys if text in key]
    max_listed = 100
    listed = [KeyView.of(key) for key in matches[:max_listed]]
    return KeySearch(listed, len(matches) > max_listed, len(keys) >= MAX_SCANNED)
