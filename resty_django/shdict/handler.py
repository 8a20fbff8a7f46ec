"""The dictionaries of a site by name, as `caches` has the caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

from django.core.signals import setting_changed

from resty_django.conf import SharedDictSettings, conf
from resty_django.schema import SETTING, key_text

from . import forks  # noqa: F401 - its hooks come before those of modules that use dictionaries
from .base import SharedDict


class UnknownDict(LookupError):
    """No shared dictionary has this name."""


class SharedDicts(dict[str, SharedDict]):
    """`shdicts["name"]`: one object for each dictionary in a process, made on first use.

    When settings change, those in use are closed and forgotten; one with the same settings as before is the same
    object again, since a process cannot open one file twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: WeakValueDictionary[tuple[str, SharedDictSettings], SharedDict] = WeakValueDictionary()

    def __missing__(self, name: str) -> SharedDict:
        known = conf.shared_dicts
        if name not in known:
            raise UnknownDict(
                f"There is no shared dictionary {name!r}. Add it to {key_text(('SHARED_DICTS',))}, "
                f"which has {', '.join(known)}."
            )
        which = name, known[name]
        return self.setdefault(name, self._made.get(which) or self._made.setdefault(which, make(*which)))

    def names(self) -> Iterator[str]:
        """The names of all dictionaries in the settings, used or not."""
        return iter(conf.shared_dicts)

    def close_all(self) -> None:
        """Close all dictionaries and forget them."""
        while self:
            self.popitem()[1].close()


def make(name: str, settings: SharedDictSettings) -> SharedDict:
    """A dictionary that is not kept here, of the engine that the settings name."""
    if settings.engine == "redis":
        from .redis import RedisDict

        return RedisDict(name, alias=settings.alias, prefix=settings.prefix, stale=settings.stale)
    from .lmdb import LmdbDict

    return LmdbDict(name, settings.size, settings.path)


shdicts = SharedDicts()


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {SETTING, "CACHES"}:
        shdicts.close_all()


setting_changed.connect(_forget, dispatch_uid="resty_django.shdict")
