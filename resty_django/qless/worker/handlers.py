"""Resolution of a job's class into its function and its middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.module_loading import import_string

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from ..job_classes import find, function_of
from ..middleware.always import adatabase, database, transaction
from ..middleware.chain import Middleware


@dataclass(frozen=True, slots=True)
class JobHandler:
    """The code that runs the jobs of a class.

    `keep_result`: whether the function's return value is stored as the job's result, for `result_ttl` seconds (None:
    as long as the job). `refusal`: why its jobs cannot be run; they fail with it.
    """

    function: Callable[[Any], object]
    is_async: bool = False
    middleware: tuple[Middleware, ...] = ()
    keep_result: bool = False
    result_ttl: float | None = None
    refusal: BaseException | None = None


def handler_of(klass: str, queue: str) -> JobHandler:
    """Return the handler of the jobs of a class in a queue. If they cannot be run, it has a `refusal`."""
    try:
        return resolve_handler(klass, queue)
    except BaseException as error:  # importing a module may even raise SystemExit
        return JobHandler(lambda job: None, refusal=error)


@lru_cache(maxsize=1000)
def resolve_handler(klass: str, queue: str) -> JobHandler:
    """Return the handler of the jobs of a class in a queue.

    Order of the middleware: txid, Django's database connections, the settings' middleware, and the attribute
    `middleware` of the class or function. The attributes `keep_result` and `result_ttl` are used, too.

    Raises the errors of `job_classes.find`, and `ImportError` for middleware.
    """
    target = find(klass)
    function = function_of(target, queue)
    is_async = iscoroutinefunction(function)
    class_middleware: Iterable[Middleware] = getattr(target, "middleware", ())
    return JobHandler(
        function,
        is_async,
        middleware=(transaction, adatabase if is_async else database, *settings_middleware(), *class_middleware),
        keep_result=bool(getattr(target, "keep_result", False)),
        result_ttl=getattr(target, "result_ttl", None),
    )


def settings_middleware() -> tuple[Middleware, ...]:
    """Return the middleware from the settings. Raises `ImportError`."""
    return tuple(import_string(path) for path in conf.qless.worker.middleware)


on_change(resolve_handler.cache_clear, SETTING, "INSTALLED_APPS")
