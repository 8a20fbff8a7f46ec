"""The quotas of the site, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..statistics.catalog import LimitKind, register_finder

if TYPE_CHECKING:
    from .quota import Quota

_quotas: Final[dict[str, Quota]] = {}


def register(quota: Quota) -> None:
    """Add a quota. Raise `ValueError` if one with the same name counts differently."""
    former = _quotas.get(quota.name)
    if former is not None and not former.same_as(quota):
        raise ValueError(
            f"There are two quotas {quota.name!r} with different periods or keys, and they would count in the same "
            "rows. Rename one of them, or use the same Quota in both places."
        )
    _quotas[quota.name] = quota


def all_quotas() -> list[Quota]:
    """Return the quotas that were created in this process, ordered by name."""
    return [_quotas[name] for name in sorted(_quotas)]


def find_quota(name: str) -> Quota | None:
    """Return the quota with a name, or None."""
    return _quotas.get(name)


def forget_quotas() -> None:
    """Forget all quotas, for tests that create some. The rows remain."""
    _quotas.clear()


def _limiters(name: str) -> tuple[Quota, ...]:
    quota = find_quota(name)
    return () if quota is None else (quota,)


register_finder(LimitKind.QUOTA, _limiters)
