"""Exemptions from one policy: networks, users, groups and paths, as operators enter them.

A user is a user name, or `user:7` with the primary key, as keys name it. A path is a pattern as in the policy's `path`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.http import HttpRequest

from resty_django.sansio import Step, Steps, arun, run
from resty_django.users import user_of

from ..callers.exemptions import Exemption
from ..specs.lines import USER_PREFIX, lines_of
from ..specs.policy import PolicySpec
from .matching import combined_pattern

_GROUPS: Final = "_resty_limits_groups"


class PolicyExemption(Exemption):
    """Exempts requests from `networks`, by `users` and members of `groups`, and for `paths`.

    Raises `ValueError` if a string is not a network.
    """

    __slots__ = ("_keys", "_names", "_path", "groups")

    def __init__(
        self,
        networks: Iterable[str] = (),
        users: Iterable[str] = (),
        groups: Iterable[str] = (),
        paths: Iterable[str] = (),
    ) -> None:
        super().__init__(networks)
        entries = frozenset(users)
        self._keys = frozenset(
            entry.removeprefix(USER_PREFIX).strip() for entry in entries if entry.startswith(USER_PREFIX)
        )
        self._names = frozenset(entry for entry in entries if not entry.startswith(USER_PREFIX))
        self.groups = frozenset(groups)
        self._path = combined_pattern(tuple(paths))

    def __bool__(self) -> bool:
        return bool(self.networks or self._path or self.needs_user)

    @property
    def needs_user(self) -> bool:
        return bool(self._keys or self._names or self.groups)

    def applies(self, request: HttpRequest) -> bool:
        """Return whether the request is exempt. Read the groups of a user from the database, once per request."""
        return self._exempts(request) or (bool(self.groups) and run(self._in_groups(request)))

    async def aapplies(self, request: HttpRequest) -> bool:
        """Run `applies` without blocking the event loop. The user must be loaded already."""
        return self._exempts(request) or (bool(self.groups) and await arun(self._in_groups(request)))

    def _exempts(self, request: HttpRequest) -> bool:
        if self._path is not None and self._path(request.path_info):
            return True
        if super()._exempts(request):
            return True
        user = _user(request) if self._keys or self._names else None
        return user is not None and (user.get_username() in self._names or str(user.pk) in self._keys)

    def _in_groups(self, request: HttpRequest) -> Steps[bool]:
        """Return whether the user is a member of one of the groups."""
        user = _user(request)
        if not hasattr(user, "groups"):
            return False
        pk, names = getattr(request, _GROUPS, (None, None))
        if names is None or pk != user.pk:
            query = user.groups.order_by("pk").values_list("name", flat=True)[:1000]
            names = frozenset((yield Step(list, sync_to_async(list), (query,))))
            setattr(request, _GROUPS, (user.pk, names))
        return not self.groups.isdisjoint(names)


def exemption_of(spec: PolicySpec) -> PolicyExemption | None:
    """Return the exemption of a valid policy, or None if it exempts nothing."""
    texts = (spec.exempt_networks, spec.exempt_users, spec.exempt_groups, spec.exempt_paths)
    return PolicyExemption(*map(lines_of, texts)) if any(texts) else None


def _user(request: HttpRequest) -> Any:
    """Return the user who is logged in, or None."""
    user = user_of(request)
    return user if user is not None and user.is_authenticated else None
