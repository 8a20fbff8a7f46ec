"""Validation of policies: a message for each wrong field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from django.utils.translation import gettext

from resty_django.text.durations import parse_duration
from resty_django.text.localized import grouped, translated
from resty_django.text.suggestions import did_you_mean

from ..callers import keys
from ..callers.client_address import Networks
from ..callers.exemptions import METHODS
from ..errors import CostTooHigh
from ..limiters.units import parse_rate, split_rates
from .lines import (
    EXEMPTION_FIELDS,
    LINE_FIELDS,
    MAX_TIER_CHARS,
    USER_PREFIX,
    count_problem,
    first_problems,
    line_problem,
    normalized_lines,
    numbered_lines,
    split_tier,
    text_of,
)
from .policy import (
    ALGORITHMS,
    ALL_NUMBER_FIELDS,
    MAX_FIELD_CHARS,
    MAX_NAME_CHARS,
    MAX_REQUESTS,
    MAX_SPAN_SECONDS,
    MODES,
    NO_LEASE,
    NUMBER_FIELDS,
    ON_ERROR,
    POLICY_FIELDS,
    PolicySpec,
    build,
    is_set,
    rate_specs,
    specs_of_rate,
)

FIELD_TYPES: Final[Mapping[str, str]] = {field.name: str(field.type) for field in fields(PolicySpec)}


class BadPolicy(ValueError):
    """A policy is not valid. `problems`: a message for each wrong field."""

    def __init__(self, name: str, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        texts = " ".join(f"{field}: {text}" for field, text in problems.items())
        super().__init__(f"policy {name!r}: {texts}")


def from_values(values: Mapping[str, object]) -> PolicySpec:
    """Return a policy from values of any type, from code or settings. Raise `BadPolicy` if it is not valid."""
    name = values.get("name", "")
    problems = {str(field): unknown_field(str(field)) for field in values if field not in POLICY_FIELDS}
    for field in ("name", "algorithm"):
        if field not in values:
            problems[field] = gettext("This field is required.")
    cleaned: dict[str, Any] = {}
    for field, value in values.items():
        if field in POLICY_FIELDS:
            cleaned[field], problem = _typed(field, value)
            if problem:
                problems[field] = problem
    if problems:
        raise BadPolicy(str(name), problems)
    spec = PolicySpec(**cleaned)
    validate(spec)
    return spec


def unknown_field(name: str) -> str:
    hint = did_you_mean(name, POLICY_FIELDS, gettext("Use %(names)s.") % {"names": ", ".join(POLICY_FIELDS)}, quote='"')
    return gettext("A policy has no such field. %(hint)s") % {"hint": hint}


def _typed(field: str, value: object) -> tuple[object, str]:
    """Return the value in the type of its field, and a message if it is wrong, or ""."""
    kind = FIELD_TYPES[field]
    if kind == "str":
        if isinstance(value, str):
            return (normalized_lines(field, value) if field in LINE_FIELDS else value), ""
        if field in LINE_FIELDS:
            text = text_of(field, value)
            if text is not None:
                return text, ""
            is_tiers = field == "tiers"
            expected = gettext('an object such as {"pro": "600/m"}') if is_tiers else gettext("a list of strings")
            return text, _wrong_type(expected, value)
        if field == "methods" and isinstance(value, list | tuple) and all(isinstance(method, str) for method in value):
            return " ".join(value), ""
        return value, _wrong_type(gettext("a string"), value)
    if value is None and kind.endswith("None"):
        return None, ""
    if isinstance(value, bool) or not isinstance(value, int if kind.startswith("int") else (int, float)):
        return value, _wrong_type(gettext("a whole number") if kind.startswith("int") else gettext("a number"), value)
    return value, ""


def _wrong_type(expected: str, value: object) -> str:
    return gettext("This must be %(expected)s, not %(kind)s.") % {"expected": expected, "kind": _kind(value)}


def _kind(value: object) -> str:
    names = {
        str: gettext("a string"),
        bool: gettext("true or false"),
        int: gettext("a number"),
        float: gettext("a fraction"),
        list: gettext("a list"),
        dict: gettext("an object"),
    }
    return gettext("nothing") if value is None else names.get(type(value), f"a {type(value).__name__}")


def validate(spec: PolicySpec) -> None:
    """Raise `BadPolicy` if the policy is not valid."""
    problems = find_problems(spec)
    if problems:
        raise BadPolicy(spec.name, problems)


def find_problems(spec: PolicySpec) -> dict[str, str]:
    """Return a message for each wrong field; empty if the policy is valid."""
    problems = {field: text for field, text in _general_problems(spec) if text}
    if spec.algorithm not in ALGORITHMS:
        problems["algorithm"] = _choices(ALGORITHMS)
        return problems
    problems |= dict(_number_problems(spec))
    problem = count_problem(spec.tiers) or first_problems(_tier_problems(spec, bool(problems)))
    if problem and "tiers" in NUMBER_FIELDS[spec.algorithm]:
        problems["tiers"] = problem
    if not problems:
        try:
            for rate_spec in rate_specs(spec):
                build(rate_spec).check(spec.cost)
        except CostTooHigh as error:
            problems["cost" if spec.cost > 1 else "capacity"] = f"{error}"
        except (ValueError, TypeError) as error:
            problems["algorithm"] = translated(error)
    return problems


def _number_problems(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    """Yield the wrong number fields, except tiers, with a message for each."""
    numbers = NUMBER_FIELDS[spec.algorithm]
    title = ALGORITHMS[spec.algorithm]
    yield from _replaced_rate_problems(spec)
    for field in ALL_NUMBER_FIELDS:
        value = getattr(spec, field)
        if field == "tiers" and field in numbers:
            continue
        if field not in numbers:
            if is_set(value):
                text = gettext("%(algorithm)s does not use this field. Clear it, or choose another algorithm.")
                yield field, text % {"algorithm": title}
        elif not is_set(value):
            if (spec.algorithm, field) in (("leaky_bucket", "rate"), ("concurrency", "limit")):
                yield field, gettext("%(algorithm)s requires this field.") % {"algorithm": title}
        else:
            problem = _rates_problem(spec) if field == "rate" else _number_problem(field, value)
            if not problem and field == "burst" and spec.algorithm == "concurrency" and value != int(value):
                problem = gettext("This must be a whole number of requests.")
            if problem:
                yield field, problem


def _number_problem(field: str, value: Any) -> str:
    """Return what is wrong with a number field other than the rate, or ""."""
    match field:
        case "limit" | "quantum":
            return _count(1, value)
        case "burst" | "capacity":
            return _count(0, value)
        case "max_wait":
            return _wait(value)
        case "lease" if value == NO_LEASE:
            return ""
        case _:
            return _span(value)


def _replaced_rate_problems(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set although the rate defines them, or missing although there is no rate."""
    is_window = spec.algorithm in ("fixed_window", "sliding_window")
    if not is_window and spec.algorithm != "token_bucket":
        return
    if spec.rate:
        for field in ("limit", "window") if is_window else ("interval", "quantum"):
            if is_set(getattr(spec, field)):
                yield field, gettext("The rate already defines this. Clear this field, or the rate.")
        return
    for field in ("limit", "window") if is_window else ("interval", "capacity"):
        if not is_set(getattr(spec, field)):
            text = gettext("%(algorithm)s requires this field, or a rate.")
            yield field, text % {"algorithm": ALGORITHMS[spec.algorithm]}


def _rates_problem(spec: PolicySpec) -> str:
    """Return what is wrong with the rates of a policy, or ""."""
    if len(spec.rate) > MAX_FIELD_CHARS:
        return _too_long(MAX_FIELD_CHARS)
    try:
        specs = rate_specs(spec)
    except ValueError as error:
        return translated(error)
    if specs[0].rate == spec.rate:
        return _rate(spec.rate)
    for text, rate_spec in zip(split_rates(spec.rate), specs, strict=True):
        for _, problem in _number_problems(rate_spec):
            return f"“{text}”: {problem}"
    return ""


def _tier_problems(spec: PolicySpec, only_rates: bool) -> Iterator[str]:
    """Yield a message for each wrong line of the tiers; `only_rates`: the policy is not valid without them."""
    tiers_before: set[str] = set()
    for number, entry in numbered_lines(spec.tiers):
        tier, rate = split_tier(entry)
        if not tier or not rate:
            problem = gettext("Write a tier, a colon and its rate: pro: 600/m, or pro: none.")
        elif len(tier) > MAX_TIER_CHARS:
            problem = gettext("The name of the tier is too long. Use at most %(max)s characters.") % {
                "max": MAX_TIER_CHARS
            }
        elif tier in tiers_before:
            problem = gettext("An earlier line is for the same tier. Remove one of them.")
        else:
            tiers_before.add(tier)
            problem = _tier_problem(spec, rate, only_rates)
        if problem:
            yield line_problem(number, entry, problem)


def _tier_problem(spec: PolicySpec, rate: str, only_rates: bool) -> str:
    try:
        specs = specs_of_rate(spec, rate)
    except ValueError as error:
        return translated(error)
    if only_rates:
        return ""
    return next((text for rate_spec in specs for text in find_problems(rate_spec).values()), "")


def _general_problems(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    """Yield the fields except numbers with a message for each, which is "" for some that are valid."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", spec.name) or len(spec.name) > MAX_NAME_CHARS:
        text = gettext(
            "A name must begin with a letter or digit, contain only letters, digits and . _ -, and have at most "
            "%(max)s characters."
        )
        yield "name", text % {"max": MAX_NAME_CHARS}
    if len(spec.description) > 200:
        yield "description", _too_long(200)
    try:
        keys.parse(spec.key)
    except ValueError as error:
        yield "key", str(error)
    if len(spec.key) > MAX_FIELD_CHARS:
        yield "key", _too_long(MAX_FIELD_CHARS)
    for field in ("path", "route", "view"):
        yield field, _pattern(field, getattr(spec, field))
    for field in EXEMPTION_FIELDS:
        yield field, exemption_problem(field, getattr(spec, field))
    names = spec.methods.split()
    wrong = [word for word in names if word not in METHODS]
    if wrong:
        text = gettext("“%(word)s” is not a method. Write methods in capitals, separated by spaces: GET POST.")
        yield "methods", text % {"word": wrong[0]}
    if not 1 <= spec.cost <= MAX_REQUESTS:
        yield "cost", _from_to(1, MAX_REQUESTS)
    if spec.ban:
        yield "ban", _span(spec.ban)
    if spec.ban_after is not None:
        text = gettext("This needs a length of the ban. Set it, or clear this field.")
        yield "ban_after", _count(1, spec.ban_after) if spec.ban else text
    if spec.mode not in MODES:
        yield "mode", _choices(MODES)
    if spec.on_error and spec.on_error not in ON_ERROR:
        yield "on_error", gettext("Leave this empty, or choose one of %(names)s.") % {"names": ", ".join(ON_ERROR)}
    if spec.status is not None and not 400 <= spec.status <= 599:
        yield "status", gettext("This must be an error status from 400 to 599.")
    if not -(2**31) <= spec.order < 2**31:
        yield "order", gettext("This must be a whole number of 32 bits.")


def _pattern(field: str, text: str) -> str:
    if len(text) > MAX_FIELD_CHARS:
        return _too_long(MAX_FIELD_CHARS)
    if any(char.isspace() for char in text):
        return gettext("This must not contain spaces.")
    if field == "path" and text and not text.startswith(("/", "*")):
        return gettext("A path must begin with / or *. Write /%(path)s") % {"path": text}
    return ""


def exemption_problem(field: str, text: str) -> str:
    """Return a message that names the wrong lines of an exemption, or ""."""
    return count_problem(text) or first_problems(
        line_problem(number, entry, problem)
        for number, entry in numbered_lines(text)
        if (problem := _entry_problem(field, entry))
    )


def _entry_problem(field: str, entry: str) -> str:
    if field == "exempt_networks":
        try:
            Networks([entry])
        except ValueError:
            return gettext("This is not a network. Write 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7.")
    if field == "exempt_paths":
        return _pattern("path", entry)
    if entry == USER_PREFIX and field == "exempt_users":
        return gettext("The primary key is missing. Write user:7.")
    return ""


def _span(text: str) -> str:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        return translated(error)
    return "" if 0.001 <= seconds <= MAX_SPAN_SECONDS else gettext("This must be from 1ms to 366d.")


def _wait(text: str) -> str:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        text = gettext(
            "%(error)s The wait of a policy must have a limit. Leave this empty to use the setting MAX_WAIT."
        )
        return text % {"error": translated(error)}
    return "" if 0 <= seconds <= MAX_SPAN_SECONDS else gettext("This must be from 0s to 366d.")


def _rate(text: str) -> str:
    try:
        rate = parse_rate(text)
    except ValueError as error:
        return translated(error)
    if 0 < rate <= MAX_REQUESTS:
        return ""
    return gettext("This must be more than 0 and at most %(max)s requests per second.") % {"max": grouped(MAX_REQUESTS)}


def _count(low: int, value: float) -> str:
    return "" if low <= value <= MAX_REQUESTS else _from_to(low, MAX_REQUESTS)


def _from_to(low: int, high: int) -> str:
    return gettext("This must be from %(low)s to %(high)s.") % {"low": low, "high": grouped(high)}


def _too_long(most: int) -> str:
    return gettext("This is too long. Use at most %(max)s characters.") % {"max": most}


def _choices(names: Iterable[str]) -> str:
    return gettext("Choose one of %(names)s.") % {"names": ", ".join(names)}
