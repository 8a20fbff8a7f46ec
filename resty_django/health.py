"""Health probes: apps register them in `AppConfig.ready()`, `manage.py resty_check` runs them.

    health.register("ids", probe)

A probe takes no arguments and yields `Finding`s. It may raise: that is an error finding of its own, and the other
probes still run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing: `subject` names it ("rule order_id"), `message` is a sentence about it."""

    level: Level
    subject: str
    message: str


Probe = Callable[[], Iterable[Finding]]

_probes: dict[str, Probe] = {}


def register(name: str, probe: Probe) -> None:
    """Add a probe; one of the same name is replaced, so that registering twice does no harm."""
    _probes[name] = probe


def names() -> list[str]:
    """The registered probes, in the order of registration."""
    return list(_probes)


def run(only: Collection[str] | None = None) -> Iterator[tuple[str, Finding]]:
    """Run the probes (all, or those named in `only`) and yield `(probe name, finding)`."""
    for name, probe in list(_probes.items()):
        if only is None or name in only:
            try:
                for finding in probe():
                    yield name, finding
            except Exception as error:
                yield name, Finding("error", name, f"The probe failed: {described(error)}")


def described(error: Exception) -> str:
    """The type and the text of an error, for people who look for its cause."""
    return f"{type(error).__name__}: {error}"


__all__ = ["Finding", "Level", "Probe", "described", "names", "register", "run"]
