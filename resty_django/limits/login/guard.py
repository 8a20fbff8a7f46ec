"""The rules of the login guard: refuse log-ins, count failed ones, and reset counts after successful ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple, cast

from django.contrib.auth import get_user_model
from django.http import HttpRequest

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.sansio import Step, Steps
from resty_django.text.durations import whole_rate

from ..bans.banning import Banning
from ..callers import request_settings
from ..callers.names import LOGIN_BANS, LOGIN_GUARD, normalized, spelling
from ..decision import Decision
from ..overrides.current import current, now
from ..overrides.override_set import Override
from ..refusals import Refusal
from ..specs.ban import BanRule
from ..specs.override import LOGIN_SERIES


class Scope(NamedTuple):
    """One way to count failed log-ins, with its bans."""

    banning: Banning
    failures: int
    per: str


@cache
def scopes() -> dict[str, Scope]:
    """Return the scopes that the settings do not turn off."""
    section = conf.limits.login
    active = {}
    for setting, name in LOGIN_BANS.items():
        text = getattr(section, setting)
        if text is not None:
            failures, within = whole_rate(text)
            rule = BanRule(
                ban=section.ban, after=failures, within=within, longest=section.max_ban, memory=section.ban_memory
            )
            banning = Banning(rule, name, prefix=f"{name}:")
            banning.list_in_catalog(LOGIN_GUARD)
            active[setting] = Scope(banning, failures, text)
    return active


on_change(scopes.cache_clear, SETTING)


def plain_request(request: HttpRequest | None) -> HttpRequest | None:
    """Return Django's request; a request of Django REST framework wraps it."""
    return cast("HttpRequest | None", getattr(request, "_request", request))


def name_in(credentials: Mapping[str, object]) -> str:
    """Return the name in the credentials, or "" if they contain none."""
    for field in (get_user_model().USERNAME_FIELD, "username", "email"):
        value = credentials.get(field)
        if value is not None:
            return str(value)
    return ""


def keys_of(request: HttpRequest | None, name: str, form: Callable[[str], str] = normalized) -> dict[str, str]:
    """Return the keys of a log-in by scope: without those that need an address or a name that it does not have.

    A log-in from an exempt network has none. `form`: the form of the name; by default all spellings with which a
    database may find the same user have one key.
    """
    name = form(name)
    address = ""
    if request is not None:
        settings = request_settings.current()
        if settings.exempt is not None and settings.clients.address(request.META) in settings.exempt:
            return {}
        address = settings.clients.name(request.META)
    both = f"{address}|{name}" if address and name else ""
    keys = {"address_and_name": both, "address": address, "name": name}
    return {scope: key for scope, key in keys.items() if key and scope in scopes()}


def both_keys_of(request: HttpRequest | None, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the keys of a log-in, and those with the spelling of its name."""
    return keys_of(request, name), keys_of(request, name, spelling)


def refusing(keys: Mapping[str, str], counted: bool = False) -> Steps[Refusal | None]:
    """Return the refusal of a log-in, or None. `counted`: count the decisions in the statistics."""
    for setting, key in keys.items():
        banning, failures, _ = scopes()[setting]
        override = None if current.active is None else (yield from overriding(setting, key))
        decision: Decision | None
        if override is None:
            decision = yield from banning.refusing(key, failures)
        elif override.lifts:
            continue
        else:
            decision = override.refusal(failures, now())
        if counted:
            banning.record(key, decision)
        if decision is not None:
            return Refusal(banning.name, "login", Banning, key, decision, banned=True)
    return None


def identifying_parts(setting: str, key: str) -> tuple[tuple[str, str], ...]:
    """Return the kind and the value of the address in a key; nothing for a name, which is never taken for one."""
    address = {"address_and_name": key.partition("|")[0], "address": key}.get(setting)
    return () if address is None else (("address", address),)


def overriding(setting: str, key: str) -> Steps[Override | None]:
    """Return the override of a log-in: one that blocks the key, or one of this limit that lifts it; else None.

    An override of all limits does not lift the guard.
    """
    active = yield Step(current.get, current.aget, ())
    if active is None:
        return None
    series = LOGIN_SERIES[setting]
    override: Override | None = active.find_for(series, key, identifying_parts(setting, key), now())
    if override is not None and (override.blocks or (override.lifts and override.limit == series)):
        return override
    return None


def counting(keys: Mapping[str, str], spellings: Mapping[str, str]) -> Steps[None]:
    """Count a failed log-in, unless it was refused: then its key is still banned.

    `spellings`: the keys with the spelling of the name, which are counted too.
    """
    if (yield from refusing(keys)) is not None:
        return
    for setting, key in keys.items():
        banning, _, per = scopes()[setting]
        if current.active is not None and (yield from overriding(setting, key)) is not None:
            continue
        yield from banning.counting(key, f"failed log-ins: {per}", spellings[setting])


def resetting(keys: Mapping[str, str], spellings: Mapping[str, str]) -> Steps[None]:
    """Forget the failed log-ins with the spelling of a name after a successful one.

    The counts of the address and of other spellings are kept: else an attacker with one account, whose name differs by
    an accent, could reset them at will.
    """
    for setting, key in keys.items():
        if setting != "address":
            yield from scopes()[setting].banning.resetting(key, spellings[setting])
