"""The site's dictionaries by name, similar to `django.core.cache.caches`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from resty_django import extras
from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING, key_text
from resty_django.conf.sections.core import SharedDictSettings
from resty_django.text.suggestions import did_you_mean

from . import fork_hooks  # noqa: F401 - its hooks come before those of modules that use dictionaries
from .base import SharedDict


class UnknownDict(LookupError):
    """No shared dictionary has this name."""


class SharedDicts(Mapping[str, SharedDict]):
    """A mapping of all dictionaries in the settings: `shdicts["name"]`, each opened on first use.

    `list(shdicts)` lists the configured names, and `"name" in shdicts` is true before the first use. A process has one
    object per dictionary. When settings change, open dictionaries are closed and dropped. A dictionary in LMDB whose
    settings did not change keeps its object, because a process cannot open the same file twice. One in Redis does not:
    its alias may lead to another server now.
    """

    def __init__(self) -> None:
        self._open: dict[str, SharedDict] = {}
        self._instances: WeakValueDictionary[tuple[str, SharedDictSettings], SharedDict] = WeakValueDictionary()

    def __getitem__(self, name: str) -> SharedDict:
        dictionary = self._open.get(name)
        return self._opened(name) if dictionary is None else dictionary

    def _opened(self, name: str) -> SharedDict:
        configured = conf.shared_dicts
        if name not in configured:
            hint = did_you_mean(name, configured)
            raise UnknownDict(
                f"There is no shared dictionary {name!r}. {hint}{' Or add' if hint else 'Add'} it to "
                f"{key_text(('SHARED_DICTS',))}, which has {', '.join(configured)}."
            )
        key = name, configured[name]
        if configured[name].engine == "redis":
            return self._open.setdefault(name, make(*key))
        instance = self._instances.get(key) or self._instances.setdefault(key, make(*key))
        return self._open.setdefault(name, instance)

    def __iter__(self) -> Iterator[str]:
        return iter(conf.shared_dicts)

    def __contains__(self, name: object) -> bool:
        return name in conf.shared_dicts

    def __len__(self) -> int:
        return len(conf.shared_dicts)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the dictionary, or `default` if the name is not in the settings."""
        return self[name] if name in self else default  # noqa: SIM401 - this is what get() is

    def close_all(self) -> None:
        """Close and drop the open dictionaries."""
        while True:
            try:
                _, dictionary = self._open.popitem()
            except KeyError:
                return
            dictionary.close()


def make(name: str, settings: SharedDictSettings) -> SharedDict:
    """Return a new dictionary with the engine from the settings, without adding it to `shdicts`."""
    if settings.engine == "redis":
        extras.require(f"{key_text(('SHARED_DICTS', name, 'ENGINE'))} needs", "redis")
        from .redis import RedisDict

        return RedisDict(name, alias=settings.alias, prefix=settings.prefix, stale=settings.stale)
    from .lmdb import LmdbDict

    return LmdbDict(name, settings.size, settings.path)


shdicts = SharedDicts()
"""The shared dictionaries of the settings by name."""


on_change(shdicts.close_all, SETTING, "CACHES")
