"""The values that rules are compared with, read from metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from resty_django.metrics.families import Family

from .rules import Rule


class Reading(NamedTuple):
    """Values of one rule by subject, such as a queue. `is_counter`: the values only grow, until they restart at 0."""

    values: Mapping[str, float]
    is_counter: bool = False


def read(rules: Iterable[Rule], families: Sequence[Family]) -> dict[str, Reading]:
    """Return the readings by the rules' names. A rule whose metric is not available is left out."""
    by_name: dict[str, list[Family]] = {}
    for family in families:
        by_name.setdefault(family.name, []).append(family)
    return {rule.name: _reading(rule, by_name) for rule in rules if rule.metric in by_name}


def _reading(rule: Rule, families: Mapping[str, list[Family]]) -> Reading:
    values: dict[str, float] = {}
    muted = _values(families.get(rule.unless, []), {}, rule.hidden)
    for subject, value in _values(families[rule.metric], rule.match, rule.hidden).items():
        if not muted.get(subject):
            values[subject] = value
    return Reading(values, any(family.kind == "counter" for family in families[rule.metric]))


def _values(families: Iterable[Family], match: Mapping[str, str], hidden: frozenset[str]) -> dict[str, float]:
    """Return the values of the samples that match, by the values of their other labels."""
    values: dict[str, float] = {}
    for family in families:
        if any(label not in family.labels for label in match):
            continue
        for sample in family.samples:
            labels = dict(zip(family.labels, sample.labels, strict=True))
            if all(labels[label] == text for label, text in match.items()):
                subject = " ".join(text for label, text in labels.items() if label not in hidden)
                values[subject] = sample.value
    return values
