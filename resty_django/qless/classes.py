"""From the name of a job's class to the function that runs it.

Jobs may name anything, so only what is in allowed modules is found: the modules `jobs` and `tasks` of installed apps,
and what RESTY_DJANGO["QLESS"]["MODULES"] has; and tasks of Celery by their names in its registry. Nothing else is
imported, and nothing that such a module has imported itself can be reached through it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.apps import apps
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.schema import SETTING, key_text

from .errors import MethodMissing, MethodType, NotAllowed

if TYPE_CHECKING:
    from .job import Job

IN_APPS: Final = ("jobs", "tasks")
"""Modules of installed apps, and those below them, that have job classes."""

NAMES: Final = ("perform", "process")
"""Functions of a job class, after one with the name of the queue."""

SCHEMES: Final = {
    "celery": "resty_django.qless.celery.performer",
    "celery-send": "resty_django.qless.celery.sender",
}
"""What comes before a colon in the name of a class, and the function that finds what is named behind it."""

ADAPTERS: Final = {
    "django.tasks.base.Task": "resty_django.qless.tasks_backend.performer",
    "django_tasks.base.Task": "resty_django.qless.tasks_backend.performer",
}
"""Types of objects that are no functions, and the function that makes a `Performer` of one."""


class Performer:
    """What runs jobs and is neither a class nor a function, such as a task. `perform(job)` runs one; it may be a
    coroutine function. `__module__`: where it stands."""

    perform: Callable[[Job], Any]
    middleware: Iterable[Any] = ()
    """What the worker puts around each job."""
    keep_result: bool = False
    """Whether what `perform` returns is kept."""
    result_ttl: float | None = None
    """How long, in seconds; None: as long as the job."""
    names: Sequence[str] = ()
    """Those of the arguments that its jobs have by position."""


Found: TypeAlias = "type | FunctionType | Performer"


def allowed() -> tuple[str, ...]:
    """The modules and packages from which jobs may come."""
    own = (f"{config.name}.{name}" for config in apps.get_app_configs() for name in IN_APPS)
    return tuple(dict.fromkeys((*own, *conf.qless.modules)))


@functools.lru_cache(maxsize=1000)
def find(klass: str) -> Found:
    """The class, function or task of this name. Raises `NotAllowed`, and `ImportError` where there is none such."""
    scheme, colon, name = klass.partition(":")
    if colon and scheme in SCHEMES:
        return import_string(SCHEMES[scheme])(name)  # type: ignore[no-any-return]
    roots = [root for root in allowed() if klass.startswith(f"{root}.")]
    parts = klass.split(".")
    if not roots or not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise NotAllowed(_sentence(klass))
    root = max(roots, key=len)
    found: Any = importlib.import_module(root)
    for part in klass.removeprefix(f"{root}.").split("."):
        found = _part(found, part, klass)
    found = _adapted(found)
    if not isinstance(found, type | FunctionType | Performer):
        raise NotAllowed(f"{klass!r} is neither a class nor a function nor a task, but a {type(found).__qualname__}.")
    if not _below(getattr(found, "__module__", ""), roots):
        raise NotAllowed(f"{klass!r} is not of that module, but of {found.__module__}. {_sentence(klass)}")
    return found


def function_of(found: Found, queue: str) -> Callable[[Job], Any]:
    """The function that runs jobs of a queue: of a class the static or class method with the name of the queue, else
    `perform`, else `process`. Raises `MethodMissing`, `MethodType`."""
    if isinstance(found, FunctionType):
        return found
    if isinstance(found, Performer):
        return found.perform
    for name in (queue, *NAMES):
        kept = inspect.getattr_static(found, name, None) if not name.startswith("_") else None
        if isinstance(kept, staticmethod | classmethod):
            return getattr(found, name)  # type: ignore[no-any-return]
        if isinstance(kept, FunctionType):
            raise MethodType(
                f"{found.__module__}.{found.__qualname__}.{name} is not static. "
                "Put @staticmethod or @classmethod before it."
            )
    raise MethodMissing(
        f"{found.__module__}.{found.__qualname__} has no static method {' or '.join(dict.fromkeys((queue, *NAMES)))}."
    )


def perform(job: Job) -> Any:
    """Run a job; gives what its function gives. A coroutine function runs in a loop of its own."""
    function = function_of(find(job.klass), job.queue_name)
    return async_to_sync(function)(job) if iscoroutinefunction(function) else function(job)


async def aperform(job: Job) -> Any:
    """The same for asyncio; a function that is no coroutine function runs in Django's thread for sync code."""
    function = function_of(find(job.klass), job.queue_name)
    return await (function(job) if iscoroutinefunction(function) else sync_to_async(function)(job))


def _adapted(found: Any) -> Any:
    for kind in type(found).__mro__:
        adapter = ADAPTERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            return import_string(adapter)(found)
    return found


def _part(found: Any, part: str, klass: str) -> Any:
    if not isinstance(found, ModuleType | type):
        raise NotAllowed(
            f"{klass!r} leads through a {type(found).__qualname__}, which is neither a module nor a class."
        )
    if isinstance(found, type):
        inner = found.__dict__.get(part)
        inner = inner.__func__ if isinstance(inner, staticmethod) else inner
    else:
        inner = found.__dict__.get(part)
        if inner is None and hasattr(found, "__path__"):
            inner = importlib.import_module(f"{found.__name__}.{part}")
        if isinstance(inner, ModuleType) and inner.__name__ != f"{found.__name__}.{part}":
            raise NotAllowed(_sentence(klass))
    if inner is None:
        raise ImportError(f"{klass!r} cannot be found: {found.__name__} has no {part}.", name=klass)
    return inner


def _below(module: str, roots: list[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _sentence(klass: str) -> str:
    return (
        f"{klass!r} is in no module from which jobs may come. Put it into the module jobs or tasks of an installed "
        f"app, or add its module to {key_text(('QLESS', 'MODULES'))}."
    )


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {SETTING, "INSTALLED_APPS"}:
        find.cache_clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.qless.classes")

__all__ = ["Performer", "allowed", "aperform", "find", "function_of", "perform"]
