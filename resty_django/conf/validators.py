"""Validators for single values of settings sections.

Each takes a value of the right type and returns None, or the end of a sentence that begins with the key
("must not be empty").
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping

from django.conf import settings

from .raw import ALWAYS_DICTS, raw_section


def known_database(alias: str) -> str | None:
    return _known(alias, "database", "DATABASES", settings.DATABASES)


def known_databases(aliases: tuple[str, ...]) -> str | None:
    return next(filter(None, map(known_database, aliases)), None) if aliases else "must name a database"


def known_cache(alias: str) -> str | None:
    return _known(alias, "cache", "CACHES", settings.CACHES)


def known_dict(name: str) -> str | None:
    raw = raw_section("SHARED_DICTS")
    names = dict.fromkeys((*ALWAYS_DICTS, *(raw if isinstance(raw, Mapping) else ())))
    return _known(name, "shared dictionary", "SHARED_DICTS", names)


def _known(name: str, kind: str, key: str, names: Collection[str]) -> str | None:
    if name in names:
        return None
    return f"names the {kind} {name!r}, which {key} does not have (it has {', '.join(names)})"


def networks(values: tuple[str, ...]) -> str | None:
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            return f'holds {value!r}, which is not a network such as "10.0.0.0/8" ({error})'
    return None


def networks_or_unix(values: tuple[str, ...]) -> str | None:
    return networks(tuple(value for value in values if value != "unix"))


def header(value: str) -> str | None:
    return (
        None
        if re.fullmatch("[A-Za-z0-9-]+", value)
        else f"must contain only letters, digits and hyphens, not {value!r}"
    )


def dotted_path(value: str) -> str | None:
    return dotted_paths((value,)) and f'must be a dotted path such as "shop.caches.to_product", not {value!r}'


def dotted_paths(values: tuple[str, ...]) -> str | None:
    for value in values:
        if not all(name.isidentifier() for name in value.split(".")) or "." not in value:
            return f'holds {value!r}, which is not a dotted path to a class such as "shop.ids.OrderRule"'
    return None


def no_empty_texts(values: tuple[str, ...]) -> str | None:
    return None if all(values) else "contains an empty string"


def queue_names(values: tuple[str, ...]) -> str | None:
    return no_empty_texts(values) if values else "must name a queue"


def share(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and less than 1, not {value}"


def tokens(values: tuple[str, ...]) -> str | None:
    short = any(len(value) < 16 for value in values)
    return (
        "contains a token of fewer than 16 characters; generate one with `secrets.token_urlsafe()`" if short else None
    )


def not_blank(value: str) -> str | None:
    return None if value.strip() else "must not be empty"


def redis_url(value: str) -> str | None:
    if re.match(r"(rediss?|unix)://", value):
        return None
    return 'must be a URL such as "redis://10.0.0.1:6379/0"'


def key_prefix(value: str) -> str | None:
    if re.fullmatch(r"[\w.:{}-]+", value, re.ASCII):
        return None
    return f"must contain only letters, digits and _.:{{}}-, not {value!r}"


def modules(values: tuple[str, ...]) -> str | None:
    for value in values:
        if not all(name.isidentifier() for name in value.split(".")):
            return f'holds {value!r}, which is not a module such as "shop.background"'
    return None
