"""The site's settings: the dict `RESTY_DJANGO`, read lazily and typed.

    RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": 1, "UDP": {"PORT": 1201}}}

    from resty_django.conf import conf
    conf.ids.udp.port   # 1201

A section is read on first use and kept until a setting changes, so `override_settings` works. A wrong key, type or
value raises `ImproperlyConfigured` on use; `manage.py check` reports it earlier. All durations are seconds, all sizes
bytes. To add a section: a frozen dataclass in `sections`, and one line in `Conf`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .raw import ALWAYS_CACHES, ALWAYS_DICTS, raw_section, raw_settings
from .schema import SETTING, Problem, unknown_key, wrong_type
from .section import NamedSections, Section

if TYPE_CHECKING:
    from .sections.cache import CacheSettings
    from .sections.core import EventsSettings, MetricsSettings, SharedDictSettings, TxidSettings
    from .sections.ids import IdsSettings
    from .sections.limits import LimitsSettings
    from .sections.qless import QlessSettings

T = TypeVar("T")


class Conf:
    """The typed settings. Each attribute is a section; access may raise `ImproperlyConfigured`."""

    ids: Section[IdsSettings] = Section("IDS", "ids.IdsSettings", "resty_django.ids")
    shared_dicts: NamedSections[SharedDictSettings] = NamedSections(
        "SHARED_DICTS", "core.SharedDictSettings", "resty_django", ALWAYS_DICTS
    )
    events: Section[EventsSettings] = Section("EVENTS", "core.EventsSettings", "resty_django")
    limits: Section[LimitsSettings] = Section("LIMITS", "limits.LimitsSettings", "resty_django.limits")
    txid: Section[TxidSettings] = Section("TXID", "core.TxidSettings", "resty_django")
    caches: NamedSections[CacheSettings] = NamedSections(
        "CACHES", "cache.CacheSettings", "resty_django.cache", ALWAYS_CACHES
    )
    qless: Section[QlessSettings] = Section("QLESS", "qless.QlessSettings", "resty_django.qless")
    metrics: Section[MetricsSettings] = Section("METRICS", "core.MetricsSettings", "resty_django")

    def __init__(self) -> None:
        self.cache: dict[str, Any] = {}

    def load(self, section: Section[T]) -> T:
        """Read a section from Django's settings and cache it."""
        problems = top_problems()
        values, section_problems = section.decode(raw_section(section.key))
        problems += section_problems
        if values is None or problems:
            first = problems[0]
            raise ImproperlyConfigured(f"{first.message}{first.reference}")
        self.cache[section.key] = values
        return values

    def clear(self) -> None:
        """Drop the cached sections; the next use reads the settings again."""
        self.cache.clear()


SECTIONS: Final[Mapping[str, Section[Any]]] = {
    section.key: section for section in vars(Conf).values() if isinstance(section, Section)
}

conf: Final = Conf()


def top_problems() -> list[Problem]:
    """Return the problems of the dict itself, apart from its sections."""
    raw = raw_settings()
    if not isinstance(raw, Mapping):
        return [wrong_type(raw, (), "a dict")]
    return [unknown_key(key, (), SECTIONS) for key in raw if key not in SECTIONS]


def all_problems() -> list[Problem]:
    """Return all problems of the settings, section by section.

    The defaults are valid, so sections that the site does not set are skipped, and their dataclasses are not imported.
    """
    problems = top_problems()
    for key, section in SECTIONS.items():
        raw = raw_section(key)
        if raw != {}:
            problems += section.decode(raw)[1]
            problems += section.missing(raw)
    return problems


def on_change(callback: Callable[[], object], *names: str) -> None:
    """Call `callback` whenever one of the named Django settings changes, as `override_settings` does in tests."""

    def forget(*, setting: str, **kwargs: object) -> None:
        if setting in names:
            callback()

    setting_changed.connect(forget, weak=False)


on_change(conf.clear, SETTING, "DATABASES", "CACHES")

__all__ = ["SECTIONS", "Conf", "all_problems", "conf", "on_change", "raw_section"]
