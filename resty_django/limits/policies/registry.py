"""The policies of this process: rows in the database, which take precedence, and declared policies.

    declare_policy("checkout", "leaky_bucket", rate="20/s", burst=40, key="user|ip", path="/checkout/*")
    get_policy("checkout").limiter.hit("192.0.2.1")

The overrides (`resty_django.limits.overrides`) are read together with them.

They are an immutable set in memory, replaced as a whole: decisions read it without a lock or a query. A change takes
effect in this process with its commit, and in all others after an event (`invalidation`). Every REFRESH seconds, each
process also checks for changes without an event; while the database does not answer, the last set stays.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import connections, router
from django.db.models import Q
from django.http import HttpRequest
from django.urls import ResolverMatch
from django.utils import timezone

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.database import LimitedConnection, limit_connection
from resty_django.processes.background import background
from resty_django.processes.forks import after_fork
from resty_django.text import logger

from ..overrides.current import COLUMNS, current
from ..specs.policy import POLICY_FIELDS, PolicySpec
from ..specs.policy_validation import from_values
from ..statistics.catalog import LimitKind, register_finder
from .policy_set import Policy, PolicySet, build_policy_set

log = logger("resty_django.limits")

DATABASE_TIMEOUT: Final = 3.0
"""Seconds after which the background threads abandon a database operation."""


declarations: dict[str, PolicySpec] = {}
_policies: PolicySet | None = None
refresh_lock = threading.RLock()
_failing = False
_checking = False
"""Whether this process has scheduled its checks for changes; a forked child has not."""
_of_thread = threading.local()
"""`connection`: the `LimitedConnection` of the background thread."""


# --- lookup ----------------------------------------------------------------------------------------------------------


def get_policy(name: str) -> Policy | None:
    """Return the policy with that name, even if it is off, or None if it does not exist."""
    return _in_force().policies.get(name)


def matching_policies(request: HttpRequest, match: ResolverMatch | None) -> list[Policy]:
    """Return the policies that match a request and are not off, in their order."""
    return list(policies_for(request, match))


def policies_for(request: HttpRequest, match: ResolverMatch | None) -> tuple[Policy, ...]:
    """Return the same as `matching_policies`: for the middleware, in less time."""
    policy_set = _in_force()
    matched = request.path_info, request.method, match.view_name if match else None
    policies = policy_set.remembered.get(matched)
    return policy_set.find(request, match, matched) if policies is None else policies


def all_policies() -> dict[str, Policy]:
    """Return all policies by name."""
    return dict(_in_force().policies)


def policy_faults() -> dict[str, str]:
    """Return the problems of invalid policies in the database, by name; their previous versions stay in force."""
    return dict(_in_force().faults)


def is_loaded() -> bool:
    """Return whether the policies have been read, so that a lookup does not have to wait."""
    return _policies is not None


async def aload_policies() -> None:
    """Read the policies if they have not been read, without blocking the event loop."""
    if _policies is None:
        await sync_to_async(_load_in_thread, thread_sensitive=False)()


# --- declaring -------------------------------------------------------------------------------------------------------


def declare_policy(name: str, algorithm: str, **values: Any) -> None:
    """Declare a policy in code, for example in `AppConfig.ready`; a row with the same name replaces it.

    `values` are the other fields of a policy: its numbers, `key`, `path`, `methods`, `mode` and so on. Declaring a
    name again replaces the policy. Raise `BadPolicy` if the policy is not valid.
    """
    declarations[name] = from_values({"name": name, "algorithm": algorithm, **values})
    if _policies is not None:
        refresh_policies()


def declared_policies() -> dict[str, PolicySpec]:
    """Return the policies from the setting RULES and from code, by name. Raise `BadPolicy` for an invalid rule."""
    specs = [from_values(rule) for rule in conf.limits.rules]
    return {spec.name: spec for spec in specs} | declarations


def withdraw_policy(name: str) -> None:
    """Undo `declare_policy`; unknown names are ignored."""
    if declarations.pop(name, None) is not None and _policies is not None:
        refresh_policies()


# --- reading -------------------------------------------------------------------------------------------------------


def refresh_policies() -> bool:
    """Read changes now, on the caller's connection. Return False if the database does not answer."""
    global _policies, _failing
    if not refresh_lock.acquire(timeout=2.0):
        refresh_soon()
        return False
    try:
        old = _policies or PolicySet()
        try:
            rows, overrides = _rows(), _override_rows()
        except Exception as error:  # a database or a router may raise anything
            if not _failing:
                log.error(
                    "Limit policies stay unchanged until the database answers: %s: %s", type(error).__name__, error
                )
            _failing = True
            _policies = build_policy_set(old, old.rows, declared_policies())
            return False
        if _failing:
            log.warning("The database answers again; limit policies are up to date")
        _failing = False
        current.take(overrides)
        _policies = build_policy_set(old, rows, declared_policies())
        return True
    finally:
        refresh_lock.release()


def refresh_soon() -> None:
    """Read changes in the background, if the policies are in use."""
    if _policies is not None:
        background.run_soon(_task)


def forget_policies() -> None:
    """Discard the policies, so that the next use reads them again. For tests."""
    global _policies, _failing
    with refresh_lock:
        _policies = None
        _failing = False
        current.forget()


def _rows() -> tuple[Any, ...]:
    from ..models import LimitPolicy

    return tuple(LimitPolicy.objects.newest().order_by("order", "name").values_list(*POLICY_FIELDS))


def _override_rows() -> tuple[Any, ...]:
    """Return the rows of overrides that have not ended."""
    from ..models import LimitOverride

    rows = LimitOverride.objects.newest()
    return tuple(rows.filter(Q(ends_at=None) | Q(ends_at__gt=timezone.now())).order_by("pk").values_list(*COLUMNS))


def _in_force() -> PolicySet:
    """Return the policies, and make sure that this process checks for changes."""
    policy_set = _policies
    return policy_set if policy_set is not None and _checking and background.running else _start()


def _start() -> PolicySet:
    """Read the policies on first use in this process; a forked child keeps its parent's set and reads again."""
    global _checking
    if _policies is not None:
        background.run_soon(_task)
    elif _in_loop():
        reading = threading.Thread(target=_load_in_thread, name="resty-limits-first", daemon=True)
        reading.start()
        reading.join(1.0)  # seconds for which the first use blocks the event loop
    else:
        refresh_policies()
    background.run_soon(_task, conf.limits.refresh)
    _checking = True
    return _policies or build_policy_set(PolicySet(), None, declared_policies())


def _load_in_thread() -> None:
    """Read the policies in a separate thread, without leaving a connection open."""
    try:
        limit_connection(_alias(), DATABASE_TIMEOUT)
        _start()
    finally:
        connections.close_all()


def _work() -> float:
    """Refresh the policies: the task of the background thread, every REFRESH seconds."""
    if _policies is not None:
        try:
            with _limited_connection().watched():
                refresh_policies()
        finally:
            connections.close_all()
    return conf.limits.refresh


def _limited_connection() -> LimitedConnection:
    """Return the connection of the background thread. A silent database does not block it indefinitely."""
    limited: LimitedConnection | None = getattr(_of_thread, "connection", None)
    alias = _alias()
    if limited is None or not limited.fits(alias):
        limited = _of_thread.connection = LimitedConnection(alias, DATABASE_TIMEOUT)
    return limited


def _alias() -> str:
    from ..models import LimitPolicy

    return router.db_for_write(LimitPolicy)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _limiters(name: str) -> Iterable[Any]:
    """Return the limiters of a policy; none if it does not exist."""
    policy = all_policies().get(name)
    return () if policy is None else policy.limiters


def _after_fork() -> None:
    global refresh_lock, _checking
    refresh_lock = threading.RLock()
    _checking = False


_task = background.add(_work)
after_fork(_after_fork)
on_change(forget_policies, SETTING)
register_finder(LimitKind.POLICY, _limiters)
