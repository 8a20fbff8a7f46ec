"""Jobs that operators enqueue: tasks to choose from, checks of arguments, and puts with the task's own callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _

from resty_django.txid.context import current_ids

from ..clients.client import Client
from ..clients.put_options import options_of
from ..clients.serialization import encode
from ..errors import InvalidArgument
from ..job_classes import SOURCES, Runnable, find, has_source, is_allowed, job_classes
from ..redaction import HIDDEN, MARKS
from .base import Task, all_tasks
from .canvas import consequences_of
from .eager import DEFAULT_RETRIES
from .options import NO_OPTIONS

DATA_FIELDS: Final = frozenset({"args", "kwargs", "expires", "allow_failure", "outcome", *SOURCES})
"""Fields in the data of a task's job, see message.py."""


class Choice(NamedTuple):
    """A task or job class to enqueue, with the defaults of its jobs. `queue`: empty if it has none."""

    klass: str
    queue: str = ""
    priority: float = 0
    retries: int = DEFAULT_RETRIES
    tags: Sequence[str] = ()


def choices() -> list[Choice]:
    """Return the tasks and job classes in the modules from which jobs may come, sorted. Imports these modules."""
    classes = job_classes()
    tasks = {
        task.name: Choice(
            task.name,
            task.queue,
            task.options.priority,
            DEFAULT_RETRIES if task.options.retries is None else task.options.retries,
            tuple(task.options.tags),
        )
        for task in list(all_tasks)
        if is_allowed(task.path) and _task(task.name) is task
    }
    return sorted([*tasks.values(), *(Choice(klass) for klass in classes if klass not in tasks)])


def signature_text(klass: str) -> str:
    """Return the parameters of a task, `(order, *, copy=False)`; empty if the class is unknown or not a task."""
    signature = _signature(klass)
    return "" if signature is None else str(signature)


def example_data(klass: str) -> dict[str, Any]:
    """Return data for a form: for a task, its required arguments by name with the value None, else an empty object."""
    signature = _signature(klass)
    if signature is None:
        return {}
    required = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    positional_only = [
        name for name in required if signature.parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    kwargs = {name: None for name in required if name not in positional_only}
    return {"args": [None] * len(positional_only), "kwargs": kwargs}


def check_data(klass: str, data: Any, now: float, original: Any = None) -> None:
    """Raise `InvalidArgument` if jobs of a class cannot run with these data.

    The data of a task must fit its signature. Other data must be an object, or of the same type as `original`, the
    data that were edited. If this process does not know the class, nothing else is checked.
    """
    signature = _signature(klass)
    if signature is None:
        if not isinstance(data, dict) and (original is None or type(data) is not type(original)):
            raise InvalidArgument('The arguments of a job must be a JSON object, such as {"order": 7}.')
        return
    if not isinstance(data, dict) or not isinstance(data.get("args"), list) or not isinstance(data.get("kwargs"), dict):
        raise InvalidArgument('The arguments of a task must have the form {"args": [...], "kwargs": {...}}.')
    known = DATA_FIELDS | (original.keys() if isinstance(original, dict) else set())
    unknown = sorted(data.keys() - known)
    if unknown:
        raise InvalidArgument(f'Unknown field "{unknown[0]}". Move it into "kwargs", or remove it.')
    expires = data.get("expires")
    if isinstance(expires, int | float) and expires <= now:
        raise InvalidArgument('"expires" is in the past, so the task would not run. Remove it, or set a later time.')
    try:
        signature.bind(*((None,) if has_source(data) else ()), *data["args"], **data["kwargs"])
    except TypeError as error:
        raise InvalidArgument(f"{klass}{signature}: invalid arguments: {error}.") from None


def check_new_data(klass: str, data: Any, now: float) -> None:
    """Check the data of a new job as `check_data` does, and that they contain no redaction mark, which stands for no
    value here."""
    try:
        has_hidden_value = has_mark(data)
    except RecursionError:
        raise InvalidArgument(_("The arguments are nested too deeply.")) from None
    if has_hidden_value:
        text = _("%(mark)s stands for a hidden value, but a new job has none. Replace it by a value.")
        raise InvalidArgument(text % {"mark": HIDDEN})
    check_data(klass, data, now)


def has_mark(value: Any) -> bool:
    """Return whether a value is or contains a redaction mark."""
    if isinstance(value, dict):
        return any(has_mark(member) for member in value.values())
    if isinstance(value, list):
        return any(has_mark(member) for member in value)
    return value in MARKS


def put(
    client: Client,
    klass: str,
    data: Any,
    queue: str,
    *,
    priority: float = 0,
    retries: int = DEFAULT_RETRIES,
    delay: float = 0,
    tags: Sequence[str] = (),
) -> str:
    """Enqueue a job and return its jid. If the class is a task, its own callbacks follow its end.

    It is a new job even if the task is unique. Raises `InvalidArgument`, `StoreError`.
    """
    jid = client.generate_jid()
    options = options_of(priority, tags, retries, ())
    task = _task(klass)
    consequences = None if task is None else consequences_of(task, NO_OPTIONS, client)
    if consequences is not None:
        options = (*options, "outcome", encode(consequences.texts()))
    ids = chain(*current_ids().items())
    client.call("put", client.worker_name, queue, jid, klass, encode(data), delay, *options, *ids)
    return jid


def _target(klass: str) -> Any:
    try:
        return find(klass)
    except Exception:  # importing its module may raise anything
        return None


def _task(klass: str) -> Task[..., Any] | None:
    target = _target(klass)
    return target if isinstance(target, Task) else None


def _signature(klass: str) -> inspect.Signature | None:
    target = _target(klass)
    return target.call_signature if isinstance(target, Runnable) else None
