"""Policies as plain values: the common form of a row, a declaration in code and an entry of a JSON file.

Times and rates are texts with their unit ("200/s", "1h", "500ms"), so that a number cannot be taken for
seconds or milliseconds by mistake. "" and None mean that a field is not set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from resty_django.suggestions import did_you_mean

from ..enforcement import keys
from ..errors import CostTooHigh
from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.rate import IDLE, SITE, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from ..limiters.units import parse_duration, parse_rate, refill_of

ALGORITHMS: Final[Mapping[str, str]] = {
    "leaky_bucket": "Leaky bucket",
    "fixed_window": "Fixed window",
    "sliding_window": "Sliding window",
    "token_bucket": "Token bucket",
    "concurrency": "Concurrency",
}
NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "leaky_bucket": ("rate", "burst"),
    "fixed_window": ("limit", "window"),
    "sliding_window": ("limit", "window"),
    "token_bucket": ("rate", "interval", "capacity", "quantum", "max_wait"),
    "concurrency": ("limit", "burst", "default_delay", "lease"),
}
"""The fields that hold the numbers of an algorithm. A token bucket has a `rate`, or an `interval` and a `quantum`."""
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "leaky_bucket": ("rate",),
    "fixed_window": ("limit", "window"),
    "sliding_window": ("limit", "window"),
    "token_bucket": (),
    "concurrency": ("limit",),
}
ALL_NUMBERS: Final = tuple(dict.fromkeys(name for names in NUMBERS.values() for name in names))
MODES: Final[Mapping[str, str]] = {
    "enforce": "Enforce",
    "shadow": "Shadow: decide and count, let pass",
    "off": "Off",
}
ON_ERROR: Final[Mapping[str, str]] = {
    "open": "Let pass",
    "closed": "Refuse",
    "local": "Limit in each process by itself",
}
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
LONGEST_NAME: Final = 64
LONGEST_KEY: Final = 200
LONGEST_PATTERN: Final = 200
LONGEST_SPAN: Final = 366 * 86_400
"""Seconds of the longest window, interval or wait."""
MOST: Final = 1_000_000_000
"""The highest number of requests in any field."""
NO_LEASE: Final = "none"
"""The lease of a policy whose slots are held until they are given back."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """The fields of a policy. `methods`: names with spaces between. `status`: of the refusing response."""

    name: str
    algorithm: str
    description: str = ""
    rate: str = ""
    burst: float | None = None
    limit: int | None = None
    window: str = ""
    interval: str = ""
    capacity: int | None = None
    quantum: int | None = None
    max_wait: str = ""
    default_delay: str = ""
    lease: str = ""
    key: str = "ip"
    path: str = ""
    route: str = ""
    view: str = ""
    methods: str = ""
    cost: int = 1
    mode: str = "enforce"
    on_error: str = ""
    status: int | None = None
    order: int = 0

    @property
    def matches_requests(self) -> bool:
        """Whether the middleware applies it to requests, and not only code that names it."""
        return bool(self.path or self.route or self.view)


FIELDS: Final = tuple(field.name for field in fields(PolicySpec))
TYPES: Final[Mapping[str, str]] = {field.name: str(field.type) for field in fields(PolicySpec)}


class BadPolicy(ValueError):
    """A policy that cannot be used. `problems`: a sentence for each field that is wrong."""

    def __init__(self, name: str, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(f"policy {name!r}: " + " ".join(f"{field}: {text}" for field, text in problems.items()))


def is_set(value: object) -> bool:
    """Whether a field has a value: "" and None stand for none."""
    return value is not None and value != ""


def from_values(values: Mapping[str, object]) -> PolicySpec:
    """Return a policy from values of any type, as code and JSON have them. Raises `BadPolicy`."""
    name = values.get("name", "")
    problems = {str(field): unknown_field(str(field)) for field in values if field not in FIELDS}
    for field in ("name", "algorithm"):
        if field not in values:
            problems[field] = "This has to be given."
    cleaned: dict[str, Any] = {}
    for field, value in values.items():
        if field in FIELDS:
            cleaned[field], problem = _typed(field, value)
            if problem:
                problems[field] = problem
    if problems:
        raise BadPolicy(str(name), problems)
    spec = PolicySpec(**cleaned)
    validate(spec)
    return spec


def unknown_field(name: str) -> str:
    return "A policy has no such field. " + did_you_mean(name, FIELDS, f"It has {', '.join(FIELDS)}.", quote='"')


def _typed(field: str, value: object) -> tuple[object, str]:
    """Return the value in the type of its field, and what is wrong with it, or ""."""
    kind = TYPES[field]
    if kind == "str":
        if isinstance(value, str):
            return value, ""
        if field == "methods" and isinstance(value, list | tuple) and all(isinstance(method, str) for method in value):
            return " ".join(value), ""
        return value, f"This is a text, not {_kind(value)}."
    if value is None and kind.endswith("None"):
        return None, ""
    if isinstance(value, bool) or not isinstance(value, int if kind.startswith("int") else (int, float)):
        return value, f"This is a {'whole ' if kind.startswith('int') else ''}number, not {_kind(value)}."
    return value, ""


def _kind(value: object) -> str:
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a fraction",
        list: "a list",
        dict: "an object",
    }
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")


def validate(spec: PolicySpec) -> None:
    """Raise `BadPolicy` where the policy cannot be used."""
    problems = find_problems(spec)
    if problems:
        raise BadPolicy(spec.name, problems)


def find_problems(spec: PolicySpec) -> dict[str, str]:
    """Return a sentence for each field that is wrong; empty where the policy can be used."""
    problems = dict(_general_problems(spec))
    if spec.algorithm not in ALGORITHMS:
        problems["algorithm"] = f"This is one of {', '.join(ALGORITHMS)}."
        return problems
    numbers = NUMBERS[spec.algorithm]
    title = ALGORITHMS[spec.algorithm]
    for field in ALL_NUMBERS:
        value = getattr(spec, field)
        if field not in numbers:
            if is_set(value):
                problems[field] = f"{title} has no such number. Empty this, or choose another algorithm."
        elif not is_set(value):
            if field in NEEDED[spec.algorithm]:
                problems[field] = f"{title} needs this."
        else:
            problem = _CHECKS[field](value)
            if not problem and field == "burst" and spec.algorithm == "concurrency" and value != int(value):
                problem = "This is a whole number of requests."
            if problem:
                problems[field] = problem
    if spec.algorithm == "token_bucket":
        problems = dict(_refill_problems(spec)) | problems
    if not problems:
        try:
            build(spec).check(spec.cost)
        except CostTooHigh as error:
            problems["cost" if spec.cost > 1 else "capacity"] = f"{error}"
        except (ValueError, TypeError) as error:
            problems["algorithm"] = f"{error}"
    return problems


def _refill_problems(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    if spec.rate:
        for field in ("interval", "quantum"):
            if is_set(getattr(spec, field)):
                yield field, "The rate says this already. Empty this, or the rate."
        return
    if not spec.interval:
        yield "interval", "Token bucket needs this, or a rate."
    if spec.capacity is None:
        yield "capacity", "Token bucket needs this, or a rate."


def _general_problems(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(spec.name) or len(spec.name) > LONGEST_NAME:
        yield (
            "name",
            f"A name begins with a letter or digit, goes on with letters, digits and . _ -, and has at most "
            f"{LONGEST_NAME} characters.",
        )
    if len(spec.description) > 200:
        yield "description", "This has at most 200 characters."
    try:
        keys.parse(spec.key)
    except ValueError as error:
        yield "key", str(error)
    if len(spec.key) > LONGEST_KEY:
        yield "key", f"This has at most {LONGEST_KEY} characters."
    for field in ("path", "route", "view"):
        problem = _pattern(field, getattr(spec, field))
        if problem:
            yield field, problem
    names = spec.methods.split()
    wrong = [word for word in names if word not in METHODS]
    if wrong:
        yield "methods", f"“{wrong[0]}” is not a method. Methods are words in capitals with a space between: GET POST."
    if not 1 <= spec.cost <= MOST:
        yield "cost", f"This is from 1 to {MOST:,}."
    if spec.mode not in MODES:
        yield "mode", f"This is one of {', '.join(MODES)}."
    if spec.on_error and spec.on_error not in ON_ERROR:
        yield "on_error", f"This is empty, or one of {', '.join(ON_ERROR)}."
    if spec.status is not None and not 400 <= spec.status <= 599:
        yield "status", "This is the status of an error, from 400 to 599."
    if not -(2**31) <= spec.order < 2**31:
        yield "order", "This is a whole number of 32 bits."


def _pattern(field: str, text: str) -> str:
    if len(text) > LONGEST_PATTERN:
        return f"This has at most {LONGEST_PATTERN} characters."
    if any(char.isspace() for char in text):
        return "This has no spaces in it."
    if field == "path" and text and not text.startswith(("/", "*")):
        return f"A path begins with / (or *): /{text}"
    return ""


def _span(text: str) -> str:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        return str(error)
    return "" if 0.001 <= seconds <= LONGEST_SPAN else "This is from 1ms to 366d."


def _wait(text: str) -> str:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        return f"{error} A policy always has a bound: leave this empty for that of the setting MAX_WAIT."
    return "" if 0 <= seconds <= LONGEST_SPAN else "This is from 0s to 366d."


def _rate(text: str) -> str:
    try:
        rate = parse_rate(text)
    except ValueError as error:
        return str(error)
    return "" if 0 < rate <= MOST else f"This is more than 0 and at most {MOST:,} requests a second."


def _count(low: int) -> Callable[[float], str]:
    return lambda value: "" if low <= value <= MOST else f"This is from {low} to {MOST:,}."


_CHECKS: Final[Mapping[str, Callable[[Any], str]]] = {
    "rate": _rate,
    "burst": _count(0),
    "limit": _count(1),
    "window": _span,
    "interval": _span,
    "capacity": _count(0),
    "quantum": _count(1),
    "max_wait": _wait,
    "default_delay": _span,
    "lease": lambda text: "" if text == NO_LEASE else _span(text),
}


def state_prefix(spec: PolicySpec) -> str:
    """Return the prefix of the keys of a policy in the store: new numbers keep the state, a new algorithm does not."""
    return f"policy:{spec.name}:{spec.algorithm}:"


def build(spec: PolicySpec, **options: Any) -> Limiter[Any]:
    """Return the limiter of a policy without problems; `options` are those of the limiter."""
    burst = spec.burst or 0
    match spec.algorithm:
        case "leaky_bucket":
            return LeakyBucket(parse_rate(spec.rate), burst, **options)
        case "fixed_window":
            return FixedWindow(spec.limit or 0, parse_duration(spec.window), **options)
        case "sliding_window":
            return SlidingWindow(spec.limit or 0, parse_duration(spec.window), **options)
        case "token_bucket":
            max_wait: float | Literal["site"] = _milliseconds(spec.max_wait) if spec.max_wait else SITE
            if spec.rate:
                numbers: tuple[float, int, int] = refill_of(spec.rate, spec.capacity)
            else:
                numbers = _milliseconds(spec.interval), spec.capacity or 0, spec.quantum or 1
            return TokenBucket.from_interval(*numbers, max_wait, idle=IDLE, **options)
        case _:
            if spec.default_delay:
                options["default_delay"] = parse_duration(spec.default_delay)
            if spec.lease:
                options["lease"] = None if spec.lease == NO_LEASE else parse_duration(spec.lease)
            return Concurrency(spec.limit or 0, int(burst), **options)


def _milliseconds(text: str) -> float:
    return round(parse_duration(text) * 1000, 6)


def describe(spec: PolicySpec) -> str:
    """Return the numbers of a policy without problems in words."""
    return build(spec).describe()
