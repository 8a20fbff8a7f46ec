"""Follows the journals of LMDB dictionaries, to which writers append an invalidation together with the value.

The listener of events polls the followers of all dictionaries in use.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from weakref import WeakSet, WeakValueDictionary

from resty_django.events import runtime
from resty_django.events.wire import NOT_EVENT
from resty_django.shdict import SharedDictError
from resty_django.shdict.lmdb import LmdbDict
from resty_django.text import logger

from .journal_entries import decode, sender

if TYPE_CHECKING:
    from .events import EventChannel

log = logger("resty_django.cache")


RETRY_SECONDS: Final = 1.0
"""Time after which a journal that failed is read again."""


class JournalFollower:
    """Follows the journal of one dictionary for all channels of this process."""

    def __init__(self, dictionary: LmdbDict) -> None:
        self.channels: WeakSet[EventChannel] = WeakSet()
        self.error: SharedDictError | None = None
        """Why the last read failed; None if it succeeded."""
        self.dictionary = dictionary
        self._position: int | None = None
        self._retry_at = 0.0

    def has_news(self) -> bool:
        """Return whether `read` is likely to find entries, with one read of a shared value."""
        if self.error is not None and time.monotonic() < self._retry_at:
            return False
        try:
            return self.dictionary.journal_end() != self._position
        except SharedDictError:
            return True

    def read(self) -> None:
        """Apply all invalidations up to now. An unavailable dictionary is logged once, and left alone for
        `RETRY_SECONDS`."""
        if self.error is not None and time.monotonic() < self._retry_at:
            return
        try:
            while self._read_some():
                pass
            self.error = None
        except SharedDictError as error:
            if self.error is None:
                log.error("Invalidations in %r are not received until it is back: %s", self.dictionary, error)
            self.error = error
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def _read_some(self) -> bool:
        """Return whether there may be more."""
        position, end = self._position, self.dictionary.journal_end()
        if position is None:  # L1 may contain values from before
            self._position = end
            self._forget()
            return False
        if end == position:
            return False
        batch = self.dictionary.read_journal(position)
        if batch.lost or batch.replaced:
            log.info("Invalidations in %r were evicted before this process polled, so L1 is emptied", self.dictionary)
            self._forget()
        for number, entry in batch.entries:
            if entry is None:
                self._forget()
            elif entry[0] == NOT_EVENT:
                self._apply(entry)
            self._position = number
        return bool(batch.entries)

    def _apply(self, entry: bytes) -> None:
        token, name, data = decode(entry)
        if token != sender.token:
            for channel in list(self.channels):
                channel.hear(name, data)

    def _forget(self) -> None:
        for channel in list(self.channels):
            channel.forget()


_followers: WeakValueDictionary[int, JournalFollower] = WeakValueDictionary()


def follower_of(dictionary: LmdbDict) -> JournalFollower:
    """Return the follower of a dictionary's journal. It exists as long as a channel uses it."""
    follower = _followers.get(id(dictionary))
    if follower is None:
        follower = _followers[id(dictionary)] = JournalFollower(dictionary)
        runtime.follow(follower)
    return follower
