"""Erasure of a key from limits: states, bans, refused keys, recorded requests, rows of overrides and quotas,
exemptions of policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final

from django.db import router
from django.db.models import Q

from resty_django.conf import conf
from resty_django.erasing import Erased
from resty_django.shdict import SharedDict, shdicts

from .bans import registry as bans
from .enforcement.client_address import parse_address
from .enforcement.keys import plain
from .enforcement.names import normalized
from .enforcement.settings import request_settings
from .models import LimitOverride, LimitPolicy, QuotaUsage
from .policies.lines import lines_of
from .statistics.recorder import recorder
from .statistics.reporter import OWN, stats

BATCH: Final = 500

KEPT: Final = (
    "Limits that each process counts locally while their store is down (on_error local): they end with their window.",
    "Limits in other dictionaries than the one in the settings: name the dictionaries with --dictionary.",
    "Keys that a custom key function returns: pass the returned string to resty_forget.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase a key in every form that limits store; `dry`: only count. Raise `SharedDictError` and `django.db.Error`."""
    forms = forms_of(key)
    names = dict.fromkeys((conf.limits.store, *dictionaries))
    yield Erased("states of limits", sum(_states(shdicts[name], forms, dry) for name in names))
    yield Erased("bans", bans.forget(lambda banned: has(banned, forms), dry))
    yield Erased("entries in the lists of the most refused keys", stats.forget(lambda listed: has(listed, forms), dry))
    yield Erased("recent refusals", stats.forget_refusals(lambda refused: has(refused, forms), dry))
    yield Erased("recorded requests", recorder.forget(lambda recorded: has(recorded, forms), dry))
    yield Erased("overrides", _overrides(forms, dry))
    yield Erased("exemptions of policies", _exemptions(forms, dry))
    yield Erased("rows of quotas", _rows(forms, dry))


def forms_of(key: str) -> frozenset[str]:
    """Return the forms in which a key may be stored: unchanged, as a hash, as a name, an address as its network."""
    address = parse_address(key)
    forms = {key, plain(key), normalized(key) or key}
    return frozenset(forms if address is None else {*forms, request_settings().clients.name_of(address)})


def has(text: str, forms: frozenset[str]) -> bool:
    """Return whether a key of a limit, with or without its prefix, contains one of the forms as a part."""
    first, *others = text.split("|")
    return any(segment in forms for segment in others) or any(
        first == form or first.endswith(f":{form}") for form in forms
    )


def _states(dictionary: SharedDict, forms: frozenset[str], dry: bool) -> int:
    names = [name for name in dictionary.get_keys(0) if not name.startswith(OWN) and has(name, forms)]
    return len(names) if dry else sum(dictionary.delete(name) for name in names)


def _overrides(forms: frozenset[str], dry: bool) -> int:
    rows = LimitOverride.objects.using(router.db_for_write(LimitOverride))
    own = [row for row in rows.exclude(kind="network").iterator() if has(row.key, forms)]
    if not dry:
        for row in own:
            row.delete()
    return len(own)


def _exemptions(forms: frozenset[str], dry: bool) -> int:
    """Remove users and single addresses from the exemptions of policies."""
    empty = Q(exempt_users="") & Q(exempt_networks="")
    count = 0
    for row in LimitPolicy.objects.using(router.db_for_write(LimitPolicy)).exclude(empty):
        users, networks = lines_of(row.exempt_users), lines_of(row.exempt_networks)
        kept_users = [user for user in users if not has(user, forms)]
        kept_networks = [network for network in networks if "/" in network or network not in forms]
        removed = len(users) + len(networks) - len(kept_users) - len(kept_networks)
        count += removed
        if removed and not dry:
            row.exempt_users, row.exempt_networks = "\n".join(kept_users), "\n".join(kept_networks)
            row.save(update_fields=["exempt_users", "exempt_networks"])
    return count


def _rows(forms: frozenset[str], dry: bool) -> int:
    database = router.db_for_write(QuotaUsage)
    contained = reduce(or_, (Q(key__contains=form) for form in forms))
    rows = QuotaUsage.objects.using(database).filter(contained).values_list("pk", "key")
    own = [pk for pk, key in rows.iterator() if has(key, forms)]
    if not dry:
        for start in range(0, len(own), BATCH):
            QuotaUsage.objects.using(database).filter(pk__in=own[start : start + BATCH]).delete()
    return len(own)
