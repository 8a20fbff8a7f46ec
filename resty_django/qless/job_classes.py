"""Lookup of the function that runs a job, by the name of the job's class.

A job may name anything, so only allowed modules are searched: `jobs` and `tasks` of the apps of the site, and the
modules in RESTY_DJANGO["QLESS"]["MODULES"]. Tasks and job classes run from any of them, plain functions only from those
in MODULES: most functions of an app are not meant to run as jobs. Celery tasks are found by their names in Celery's
registry. Nothing else is imported, and names that an allowed module has imported from elsewhere cannot be reached
through it. A job may also carry the `name=` or an alias of a task in an allowed module; to find it, all of them are
imported.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from django.apps import AppConfig, apps
from django.utils.module_loading import module_has_submodule

from resty_django.callables import acall, call
from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING, key_text
from resty_django.text import logger

from .errors import DuplicateTask, MethodMissing, MethodType, NotAllowed

log = logger("resty_django.qless.tasks")

IN_APPS: Final = ("jobs", "tasks")
"""Modules of the site's apps, with their submodules, from which jobs may come."""

METHOD_NAMES: Final = ("perform", "process")
"""Methods of a job class that run its jobs, unless it has a method with the queue's name."""

SOURCES: Final = ("from", "from_group", "pass")
"""Fields in the data of a task's job for the source of its first argument, see tasks/message.py."""

_schemes: Final[dict[str, Callable[[str], JobTarget]]] = {}
"""Functions that look up a name, by the prefix that class names have before a colon, such as "celery"."""
_adapters: Final[dict[str, Callable[[Any], Runnable]]] = {}
"""Functions that wrap an object that is not a function, by the dotted path of its type."""


class Runnable:
    """An object that runs jobs and is neither a class nor a function, such as a task. `__module__`: its module."""

    perform: Callable[[Any], Any]
    """Runs a job; may be a coroutine function."""
    middleware: Iterable[Callable[[Any], object]] = ()
    """The middleware of the worker around each job."""
    keep_result: bool = False
    """Whether the return value of `perform` is kept."""
    result_ttl: float | None = None
    """Seconds for which it is kept; None: as long as the job."""
    parameter_names: Sequence[str] = ()
    """The names of positional arguments."""
    call_signature: inspect.Signature | None = None
    """The signature of calls, if its jobs contain `args` and `kwargs`."""


JobTarget: TypeAlias = "type | FunctionType | Runnable"


_paths: Final[dict[str, str]] = {}
"""The dotted path of the task that has a name, by name; a path itself is a name too."""
_targets: Final[WeakValueDictionary[str, Runnable]] = WeakValueDictionary()
"""The tasks by their paths."""


def register(target: Runnable, path: str, names: Iterable[str]) -> None:
    """Make a task known under its path and its names. A module that is imported again replaces its own tasks.

    Raises `DuplicateTask` if another task has one of the names.
    """
    for name in dict.fromkeys((path, *names)):
        other = _paths.get(name, path)
        if other != path and other in _targets:
            raise DuplicateTask(
                f"Two tasks have the name {name!r}: {other} and {path}. Change name= or aliases= of one of them."
            )
    for name in [name for name, owner in _paths.items() if owner == path]:
        del _paths[name]
    _paths.update(dict.fromkeys((path, *names), path))
    _targets[path] = target
    find.cache_clear()


def register_scheme(scheme: str, find_name: Callable[[str], JobTarget]) -> None:
    """Let `find_name` look up the names in classes of the form `scheme:name`."""
    _schemes[scheme] = find_name


def register_adapter(kind: str, wrap: Callable[[Any], Runnable]) -> None:
    """Let `wrap` make a `Runnable` of objects whose type has the dotted path `kind`."""
    _adapters[kind] = wrap


def has_source(data: Mapping[str, object]) -> bool:
    """Return whether the data of a job name the source of an argument, which comes before those in the data."""
    return any(data.get(name) is not None for name in SOURCES)


def discover() -> dict[str, Exception]:
    """Import the modules that may contain tasks, so that names and schedules are known.

    Logs the errors of these modules, and returns them by module: `DuplicateTask` if two tasks have the same name.
    """
    errors: dict[str, Exception] = {}
    of_apps = (
        f"{config.name}.{name}"
        for config in _apps_of_site()
        for name in IN_APPS
        if module_has_submodule(config.module, name)
    )
    for module in (*of_apps, *conf.qless.modules):
        try:
            importlib.import_module(module)
        except Exception as error:
            errors[module] = error
            log.exception("%s cannot be imported. Its periodic tasks and named tasks do not run.", module)
    return errors


discover_once: Final = functools.cache(discover)
"""Does the same in the first call of a process, and returns the same errors later."""


def _apps_of_site() -> list[AppConfig]:
    """Return the apps except this package's: with its functions, a job could change how a worker behaves."""
    package = __name__.partition(".")[0]
    return [config for config in apps.get_app_configs() if config.name.partition(".")[0] != package]


def allowed() -> tuple[str, ...]:
    """Return the modules and packages from which jobs may come."""
    of_apps = (f"{config.name}.{name}" for config in _apps_of_site() for name in IN_APPS)
    return tuple(dict.fromkeys((*of_apps, *conf.qless.modules)))


@functools.lru_cache(maxsize=1000)
def is_allowed(klass: str) -> bool:
    """Return whether jobs of this class may run, judging by its name: nothing is imported."""
    scheme, colon, _ = klass.partition(":")
    if colon and scheme in _schemes:
        return True
    return any(klass.startswith(f"{root}.") for root in allowed())


def job_classes() -> list[str]:
    """Return the classes in allowed modules that run jobs: those with a static method `perform` or `process`.

    Imports these modules. Their functions are not listed, since most of them are not meant to run as jobs.
    """
    discover_once()
    names, roots = [], allowed()
    for path, module in list(sys.modules.items()):
        if any(path == root or path.startswith(f"{root}.") for root in roots):
            names += [
                f"{path}.{name}"
                for name, member in list(vars(module).items())
                if isinstance(member, type) and member.__module__ == path and _runs_jobs(member)
            ]
    return sorted(names)


def _runs_jobs(member: type) -> bool:
    return any(
        isinstance(inspect.getattr_static(member, name, None), staticmethod | classmethod) for name in METHOD_NAMES
    )


def refusal_of(klass: str) -> str:
    """Return why jobs of this class do not run, and what to do."""
    return (
        f"{klass!r} is outside the modules from which jobs may come. Move it to the module jobs or tasks of an "
        f"installed app, or add its module to {key_text(('QLESS', 'MODULES'))}."
    )


@functools.lru_cache(maxsize=1000)
def find(klass: str) -> JobTarget:
    """Return the class, function or task of this name. Raises `NotAllowed`, or `ImportError` if it does not exist."""
    scheme, colon, name = klass.partition(":")
    if colon and scheme in _schemes:
        return _schemes[scheme](name)
    named = _named(klass)
    if named is not None:
        return named
    try:
        return _at_path(klass)
    except (NotAllowed, ImportError):
        discover_once()
        named = _named(klass)
        if named is None:
            raise
        return named


def _named(klass: str) -> Runnable | None:
    """Return the task whose `name=` or alias this is, if its module has been imported. Raises `NotAllowed`."""
    path = _paths.get(klass, klass)
    if path == klass or path not in _targets:
        return None
    if not is_allowed(path):
        raise NotAllowed(refusal_of(path))
    return _targets[path]


def _at_path(klass: str) -> JobTarget:
    roots = [root for root in allowed() if klass.startswith(f"{root}.")]
    names = klass.split(".")
    if not roots or not all(name.isidentifier() and not name.startswith("_") for name in names):
        raise NotAllowed(refusal_of(klass))
    root = max(roots, key=len)
    target: object = importlib.import_module(root)
    for name in klass.removeprefix(f"{root}.").split("."):
        target = _member(target, name, klass)
    target = _adapted(target)
    if not isinstance(target, type | FunctionType | Runnable):
        raise NotAllowed(f"{klass!r} is a {type(target).__qualname__}. Name a class, a function or a task.")
    if not _is_within(getattr(target, "__module__", ""), roots):
        raise NotAllowed(f"{klass!r} is imported there from {target.__module__}. {refusal_of(klass)}")
    if isinstance(target, FunctionType) and not _is_within(target.__module__, conf.qless.modules):
        raise NotAllowed(
            f"{klass!r} is a plain function. Add @task to it, or make it the static method perform of a class, or add "
            f"its module to {key_text(('QLESS', 'MODULES'))}."
        )
    return target


def function_of(target: JobTarget, queue: str) -> Callable[[Any], Any]:
    """Return the function that runs jobs of a queue.

    For a class, this is the static or class method with the queue's name, else `perform`, else `process`. Raises
    `MethodMissing`, `MethodType`.
    """
    if isinstance(target, FunctionType):
        return target
    if isinstance(target, Runnable):
        return target.perform
    for name in (queue, *METHOD_NAMES):
        method = inspect.getattr_static(target, name, None) if not name.startswith("_") else None
        if isinstance(method, staticmethod | classmethod):
            function: Callable[[Any], Any] = getattr(target, name)
            return function
        if isinstance(method, FunctionType):
            raise MethodType(
                f"{target.__module__}.{target.__qualname__}.{name} is not static. "
                "Add @staticmethod or @classmethod to it."
            )
    names = " or ".join(dict.fromkeys((queue, *METHOD_NAMES)))
    raise MethodMissing(f"{target.__module__}.{target.__qualname__} has no static method {names}.")


def perform(job: Any) -> object:
    """Run a job and return its function's return value. A coroutine function runs in a new event loop."""
    return call(function_of(find(job.klass), job.queue_name), job)


async def aperform(job: Any) -> object:
    """Do the same for asyncio; a sync function runs in Django's thread for sync code."""
    return await acall(function_of(find(job.klass), job.queue_name), job)


def _adapted(target: object) -> object:
    for kind in type(target).__mro__:
        wrap = _adapters.get(f"{kind.__module__}.{kind.__qualname__}")
        if wrap is not None:
            return wrap(target)
    return target


def _member(parent: object, name: str, klass: str) -> object:
    if not isinstance(parent, ModuleType | type):
        raise NotAllowed(
            f"{klass!r} leads through a {type(parent).__qualname__}, which is neither a module nor a class."
        )
    if isinstance(parent, type):
        member = parent.__dict__.get(name)
        member = member.__func__ if isinstance(member, staticmethod) else member
    else:
        member = parent.__dict__.get(name)
        if member is None and hasattr(parent, "__path__"):
            member = importlib.import_module(f"{parent.__name__}.{name}")
        if isinstance(member, ModuleType) and member.__name__ != f"{parent.__name__}.{name}":
            raise NotAllowed(refusal_of(klass))
    if member is None:
        raise ImportError(f"{klass!r} cannot be found: {parent.__name__} has no {name}.", name=klass)
    return member


def _is_within(module: str, roots: Sequence[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _forget() -> None:
    find.cache_clear()
    is_allowed.cache_clear()
    discover_once.cache_clear()


on_change(_forget, SETTING, "INSTALLED_APPS")
