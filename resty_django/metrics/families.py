"""Metrics as reported by the apps. Pure; does not need prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["counter", "gauge", "summary"]
"""Type: the kind of a metric, such as "counter"."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample. `labels`: the values of the family's labels. Summaries also set `count`, and `value` is the sum."""

    labels: tuple[str, ...]
    value: float
    count: float = 0.0


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: `name` without `_total`, units in seconds and bytes, `help` a sentence, `labels` the label names.

    `adds`: values of different labels can be added, so excess samples are reported as `(others)`; otherwise only the
    lowest values are reported.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Sequence[Sample]
    adds: bool = True

    def bounded(self, most: int) -> Family:
        """Return the family with at most `most` samples."""
        if len(self.samples) <= most:
            return self
        if not self.adds:
            return replace(self, samples=sorted(self.samples, key=lambda sample: sample.value)[:most])
        ranked = sorted(self.samples, key=lambda sample: -(sample.count or sample.value))
        largest, smallest = ranked[: most - 1], ranked[most - 1 :]
        value, count = sum(sample.value for sample in smallest), sum(sample.count for sample in smallest)
        others = Sample(("(others)",) * len(self.labels), value, count)
        return replace(self, samples=[*largest, others])


def family(
    name: str,
    kind: Kind,
    text: str,
    labels: str = "",
    values: float | Iterable[tuple[str | tuple[str, ...], float | None]] | None = (),
    *,
    adds: bool = True,
) -> Family:
    """Return a metric with its values.

    `labels`: names, separated by spaces. `values`: a number, or pairs of the labels' values and a number. A number that
    is None is unknown and left out.
    """
    pairs = [((), values)] if values is None or isinstance(values, int | float) else values
    samples = [Sample((key,) if isinstance(key, str) else key, value) for key, value in pairs if value is not None]
    return Family(name, kind, text, tuple(labels.split()), samples, adds)
