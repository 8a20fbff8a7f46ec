"""Lists of event names by source, so that a misspelt name is an error instead of an event without handlers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .errors import UnknownEvent


class EventNames(Mapping[str, str]):
    """The event names of a source: `names.started == names["started"] == "started"`; `names.source` is the source.

    Other names raise `UnknownEvent`. Iteration yields only the event names.
    """

    __slots__ = ("_names", "source")
    source: str
    _names: dict[str, str]

    def __init__(self, source: str, *names: str) -> None:
        if "source" in names:
            raise ValueError(
                "An event cannot be called 'source', since names.source is the source. Choose another name."
            )
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "_names", {name: name for name in names})

    def __getitem__(self, name: str) -> str:
        try:
            return self._names[name]
        except KeyError:
            raise UnknownEvent(
                f"event {name!r} is an unknown event of {self.source!r}, which has {', '.join(self._names) or 'none'}."
            ) from None

    def __getattr__(self, name: str) -> str:
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("A list of events cannot be changed. Create another one with event_list().")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("A list of events cannot be changed. Create another one with event_list().")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type[EventNames], tuple[str, ...]]:
        return EventNames, (self.source, *self._names)

    def __repr__(self) -> str:
        return f"event_list({', '.join(map(repr, (self.source, *self._names)))})"


def event_list(source: str, *names: str) -> EventNames:
    """Return the names of the events of `source`.

    orders = event_list("orders", "placed", "paid")
    post(orders.source, orders.paid)
    """
    return EventNames(source, *names)


events: Final = event_list("resty-worker-events", "started", "stopping", "missed")
"""The built-in events. `missed` is delivered only to the process that may have missed events."""
