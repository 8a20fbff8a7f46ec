"""Rules of alerts, as a site writes them in its settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from resty_django.durations import parse_duration
from resty_django.suggestions import did_you_mean

MOST_RULES: Final = 100


class BadRule(ValueError):
    """A rule that cannot be used. The text says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rule: a metric, compared with a threshold. Counters are compared by their increase per minute.

    `match`: values of labels. `unless`: a metric that is 1 for the label values of which the rule does not hold.
    `unit`: `""`, `"s"`, `"/min"` or `"share"`.
    """

    title: str | Promise
    metric: str
    above: float | None = None
    below: float | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    unit: str = ""
    unless: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    "failures": Kind(_("Failed jobs per minute"), "resty_jobs_failures", 10, labels=("queue",), unit="/min"),
    "latency": Kind(
        _("Age of the oldest runnable job"),
        "resty_jobs_latency_seconds",
        300,
        labels=("queue",),
        unit="s",
        unless="resty_jobs_queue_paused",
    ),
    "stalled": Kind(_("Jobs with an expired lock"), "resty_jobs", 0, match={"state": "stalled"}, labels=("queue",)),
    "workers": Kind(_("Workers that stopped reporting while they hold jobs"), "resty_jobs_silent_workers", 0),
    "headroom": Kind(_("Numbers left for IDs"), "resty_ids_left_ratio", below=0.1, labels=("rule",), unit="share"),
    "runs_out": Kind(
        _("Time until the numbers for IDs run out"),
        "resty_ids_runs_out_seconds",
        below=2 * 86_400,
        labels=("rule",),
        unit="s",
    ),
    "refusals": Kind(
        _("Refused requests per minute"),
        "resty_limits_decisions",
        60,
        match={"outcome": "refused"},
        labels=("kind", "limit"),
        unit="/min",
    ),
    "limits_store": Kind(
        _("Decisions of limits without their store, per minute"),
        "resty_limits_storeless_decisions",
        0,
        labels=("kind", "limit"),
        unit="/min",
    ),
    "cache_store": Kind(
        _("Calls of caches without their store, per minute"),
        "resty_cache_storeless_calls",
        0,
        labels=("cache",),
        unit="/min",
    ),
    "dictionaries": Kind(_("Shared dictionary is down"), "resty_dict_up", below=1, labels=("dict",)),
    "sources": Kind(_("Component is down"), "resty_source_up", below=1, labels=("source",)),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: values of `metric` above or below the threshold for `duration` seconds are an incident."""

    name: str
    title: str | Promise
    metric: str
    match: Mapping[str, str]
    threshold: float
    is_above: bool
    duration: float = 0.0
    unit: str = ""
    unless: str = ""
    hidden: frozenset[str] = frozenset()
    """Labels that are not part of an incident's subject."""

    def is_met(self, value: float) -> bool:
        return value > self.threshold if self.is_above else value < self.threshold


def parse_rules(values: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """Return the rules. Raise `BadRule` for the first one that cannot be used."""
    rules: dict[str, Rule] = {}
    for number, value in enumerate(values, 1):
        try:
            rule = parse_rule(value)
        except BadRule as error:
            raise BadRule(f"Rule {number}: {error}") from None
        if rule.name in rules:
            raise BadRule(f"Rule {number}: another rule has the name {rule.name!r}. Set a different `name`.")
        if len(rules) == MOST_RULES:
            raise BadRule(f"There are more than {MOST_RULES} rules. Remove some.")
        rules[rule.name] = rule
    return list(rules.values())


def parse_rule(value: Mapping[str, Any]) -> Rule:
    """Return the rule of a dict. Raise `BadRule`."""
    value = dict(value)
    if ("kind" in value) == ("metric" in value):
        raise BadRule("it needs either `kind` or `metric`.")
    metric = value.pop("metric", None)
    if metric is None:
        name = value.pop("kind")
        if name not in KINDS:
            raise BadRule(f"{name!r} is not a kind of rule. {_nearest(str(name), KINDS)}")
        kind = KINDS[name]
        match = {**kind.match, **{label: value.pop(label) for label in kind.labels if label in value}}
        known = kind.labels
    else:
        if not isinstance(metric, str) or not metric:
            raise BadRule("`metric` must be the name of a metric.")
        labels = value.pop("labels", {})
        if not isinstance(labels, Mapping):
            raise BadRule("`labels` must be a dict of label names and values.")
        name, match, known = metric, dict(labels), ("labels",)
        kind = Kind(metric, metric.removesuffix("_total"), unit="s" if metric.endswith("_seconds") else "")
    if not all(isinstance(text, str) for pair in match.items() for text in pair):
        raise BadRule("the values of labels must be strings.")
    threshold, is_above = _threshold(value, kind)
    duration = _duration(value.pop("for", 0))
    title = value.pop("name", None)
    if value:
        unknown = next(iter(value))
        raise BadRule(f"{unknown!r} is unknown. {_nearest(str(unknown), ('name', 'above', 'below', 'for', *known))}")
    if title is not None and (not isinstance(title, str) or not title.strip()):
        raise BadRule("`name` must be a text.")
    own = {label: text for label, text in match.items() if label not in kind.match}
    return Rule(
        title or " ".join([name, *own.values()]),
        title or kind.title,
        kind.metric,
        match,
        threshold,
        is_above,
        duration,
        kind.unit,
        kind.unless,
        frozenset(kind.match if metric is None else match),
    )


def _threshold(value: dict[str, Any], kind: Kind) -> tuple[float, bool]:
    written = {side: value.pop(side) for side in ("above", "below") if side in value}
    if len(written) > 1:
        raise BadRule("it has both `above` and `below`.")
    if not written:
        written = {side: limit for side in ("above", "below") if (limit := getattr(kind, side)) is not None}
    for side, limit in written.items():
        if isinstance(limit, str) and kind.unit == "s":
            limit = _duration(limit, side)
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise BadRule(f"`{side}` must be a number, not {limit!r}.")
        return float(limit), side == "above"
    raise BadRule("it needs `above` or `below`.")


def _duration(value: Any, key: str = "for") -> float:
    try:
        return parse_duration(value)
    except (ValueError, TypeError) as error:
        raise BadRule(f"`{key}` is not valid. {error}") from None


def _nearest(word: str, words: Iterable[str]) -> str:
    listed = sorted(words)
    return did_you_mean(word, listed, f"Choose from: {', '.join(listed)}.", quote='"')
