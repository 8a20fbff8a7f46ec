"""Keys as Redis has them, in dicts and lists; and the form in which both sides are compared."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

NUMBERS = {"priority", "retries", "remaining", "time", "scheduled", "interval", "count", "backlog", "grace", "expires"}
JSON_FIELDS = {"tags", "failure"}


class Refused(Exception):
    """An error that the core raises."""


class Store:
    """A key is gone when nothing is left in it."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.events: deque[tuple[str, Any]] = deque()

    def hash(self, key: str) -> dict[str, Any]:
        mapping: dict[str, Any] = self.keys.setdefault(key, {})
        return mapping

    zset = hash

    def set(self, key: str) -> set[str]:
        members: set[str] = self.keys.setdefault(key, set())
        return members

    def list(self, key: str) -> list[Any]:
        elements: list[Any] = self.keys.setdefault(key, [])
        return elements

    def tidy(self) -> None:
        for key in [key for key, value in self.keys.items() if not value]:
            del self.keys[key]

    def publish(self, channel: str, payload: Any) -> None:
        self.events.append((channel, payload))

    def ordered(self, key: str) -> list[tuple[str, float]]:
        """Members and scores, lowest first; equal scores by the bytes of the member."""
        return sorted(self.keys.get(key, {}).items(), key=lambda pair: (pair[1], pair[0].encode()))

    def due(self, key: str, now: float, count: int | None = None) -> list[tuple[str, float]]:
        return [pair for pair in self.ordered(key) if 0 <= pair[1] <= now][:count]


def short(number: float) -> float:
    """A number as cjson writes it: 14 digits."""
    return float(f"{number:.14g}")


def plain(key: str, value: Any) -> Any:
    """A key's content, from Redis (texts) or from the oracle, in the form that is compared."""
    if isinstance(value, dict) and (":j:" in key or ":r:" in key or ":s:" in key):
        return {name: _field(name, text, ":s:" in key) for name, text in value.items()}
    if isinstance(value, dict):
        return {name: number(text) for name, text in value.items()}
    if isinstance(value, list) and key.endswith("-history"):
        return [json.loads(entry) if isinstance(entry, str) else entry for entry in value]
    return value


def number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _field(name: str, value: Any, every: bool) -> Any:
    if every or name in NUMBERS:
        return number(value)
    if name in JSON_FIELDS and isinstance(value, str):
        value = json.loads(value)
    return {} if value == [] else value
