"""Registry of health probes. Apps register them in `AppConfig.ready()`; `manage.py resty_check` runs them.

    health.register("ids", probe)

A probe takes no arguments and yields `Finding`s. If it raises, that becomes an error finding, and the other probes
still run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from django.db import DatabaseError

from resty_django.text import one_line

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing: `subject` names it ("rule order_id"), `message` describes its state in a sentence."""

    level: Level
    subject: str
    message: str


Probe = Callable[[], Iterable[Finding]]

_probes: dict[str, Probe] = {}


def register(name: str, probe: Probe) -> None:
    """Add a probe. It replaces one of the same name, so it is safe to register a probe twice."""
    _probes[name] = probe


def names() -> list[str]:
    """Return the names of the registered probes, in the order of registration."""
    return list(_probes)


def run(only: Collection[str] | None = None) -> Iterator[tuple[str, Finding]]:
    """Run the probes (all, or those named in `only`) and yield `(probe name, finding)`."""
    for name, probe in list(_probes.items()):
        if only is None or name in only:
            try:
                for finding in probe():
                    yield name, _shown(finding)
            except DatabaseError as error:
                text = f"The database cannot be read: {described(error)}. If a table is missing, run manage.py migrate."
                yield name, _shown(Finding("error", name, text))
            except Exception as error:
                yield name, _shown(Finding("error", name, f"The probe failed: {described(error)}"))


def findings_or(ok: Finding, *parts: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of all parts of a probe, or `ok` if there are none."""
    findings = chain(*parts)
    yield next(findings, ok)
    yield from findings


def _shown(finding: Finding) -> Finding:
    """Escape line breaks and control characters, which queue names and server errors may contain."""
    return Finding(finding.level, one_line(finding.subject, 200), one_line(finding.message, 2000))


def described(error: Exception) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error}"
