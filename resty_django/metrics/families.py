"""Metrics as the apps report them. Pure; does not need prometheus-client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["counter", "gauge", "summary"]

OTHERS: Final = "(others)"


@dataclass(frozen=True, slots=True)
class Sample:
    """`labels` are the values of the labels of its family. A summary has `count` too, and `value` is its sum."""

    labels: tuple[str, ...]
    value: float
    count: float = 0.0


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: `name` without `_total`, seconds and bytes as units, `help` a sentence, `labels` their names.

    `adds`: the values of different labels can be added, so that what is too much is told as `(others)`; else the
    lowest values are told and the others left out.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Sequence[Sample]
    adds: bool = True

    def bounded(self, most: int) -> Family:
        """Return the family with `most` samples at most."""
        if len(self.samples) <= most:
            return self
        if not self.adds:
            return replace(self, samples=sorted(self.samples, key=lambda sample: sample.value)[:most])
        ranked = sorted(self.samples, key=lambda sample: -(sample.count or sample.value))
        largest, smallest = ranked[: most - 1], ranked[most - 1 :]
        value, count = sum(sample.value for sample in smallest), sum(sample.count for sample in smallest)
        others = Sample((OTHERS,) * len(self.labels), value, count)
        return replace(self, samples=[*largest, others])


def family(name: str, kind: Kind, text: str, labels: str = "", *, adds: bool = True) -> Family:
    """Return a family without samples; `labels` are names with blanks between."""
    return Family(name, kind, text, tuple(labels.split()), [], adds)
