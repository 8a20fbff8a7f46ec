"""Versions of tags in a shared dictionary."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from django.db import connections

from resty_django.sansio import Step, Steps
from resty_django.shdict import SharedDict
from resty_django.shdict.base import Entry

from ..storage.tag_encoding import Versions

TAG_PREFIX: Final = "mlcache:tags:"
"""Prefix of the versions' keys in a dictionary."""


class TagSnapshot(NamedTuple):
    """The tags of a value that is going to be read. `moment`: `TagIndex.moment` before the versions were read."""

    versions: Versions
    moment: int


class TagVersions:
    """The versions of a cache's tags. `cache`: the name of the cache. All methods may raise `SharedDictError`."""

    def __init__(self, dictionary: SharedDict, cache: str) -> None:
        self._dictionary = dictionary
        self._prefix = f"{TAG_PREFIX}{cache}:"

    def load(self, tags: Iterable[str]) -> Steps[Versions]:
        """Return the versions, after creating missing ones. Call it before the source of the value is read."""
        dictionary = self._dictionary
        versions: dict[str, int] = {}
        names = {tag: self._prefix + tag for tag in tags}
        if names:
            stored = yield self._reading(list(names.values()))
            for tag, name in names.items():
                version = stored.get(name)
                if type(version) is not int:  # of two processes that create it, both receive the same number
                    fresh, days = secrets.randbits(62), 30  # when the version expires, so do the records with the tag
                    version = yield Step(dictionary.incr, dictionary.aincr, (name, 0, fresh, days * 86400.0))
                versions[tag] = version
        return versions

    def are_current(self, versions: Versions) -> Steps[bool]:
        """Return whether no tag has been invalidated since, and no version was lost."""
        names = {self._prefix + tag: version for tag, version in versions.items()}
        stored: Mapping[str, object] = yield self._reading(list(names))
        return len(stored) == len(names) and stored == names

    def revoked(self, versions: Mapping[str, Versions]) -> Steps[set[str]]:
        """Return the keys of which a tag has been invalidated, or a version was lost. One call reads all versions."""
        names = {self._prefix + tag for tags in versions.values() for tag in tags}
        stored: Mapping[str, object] = yield self._reading(list(names))
        return {
            key
            for key, tags in versions.items()
            if any(stored.get(self._prefix + tag) != version for tag, version in tags.items())
        }

    def delete(self, tags: Iterable[str], entry: Entry = None) -> Steps[None]:
        """Invalidate the tags. `entry`: the journal entry that notifies other processes."""
        dictionary = self._dictionary
        yield Step(dictionary.delete_many, dictionary.adelete_many, ([self._prefix + tag for tag in tags], entry))

    def _reading(self, names: Sequence[str]) -> Step:
        dictionary = self._dictionary
        return Step(dictionary.get_many, dictionary.aget_many, (names, _is_absent))


def _is_absent(name: object, error: Exception) -> None:
    """Treat an item of another program as a lost version."""


def are_uncommitted(tags: Collection[str]) -> bool:
    """Return whether a transaction of this thread is going to invalidate one of the tags.

    The data that a callback has read may be rolled back, so other processes must not see it.
    """
    names = frozenset(tags)
    return any(
        function.invalidates(names)
        for connection in connections.all(initialized_only=True)
        for _, function, *_ in connection.run_on_commit
        if hasattr(function, "invalidates")
    )
