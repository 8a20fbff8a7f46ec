"""How jobs come into a queue."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from resty_django.txid import current

from .call import Steps, twins
from .errors import InvalidArgument
from .options import class_name, list_text, options_of, text_list
from .texts import encode
from .values import JobSpec

if TYPE_CHECKING:
    from .clients import Client

CHUNK: Final = 500
"""Jobs that one call puts."""

PUT: Final = frozenset(JobSpec.__slots__)
_PLAIN: Final = frozenset(("klass", "data", "delay"))


class Puts:
    """What `Queue` has of it."""

    __slots__ = ("client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def _put(
        self,
        klass: Any,
        data: Any = None,
        *,
        jid: str | None = None,
        delay: float = 0,
        priority: float | None = None,
        tags: Iterable[str] | None = None,
        retries: int | None = None,
        depends: Iterable[str] | None = None,
    ) -> Steps[str]:
        """Put a job; gives its jid.

        `klass`: its dotted path, or a class or function with one; `data`: JSON (see `encode`). `delay`: seconds until
        it waits; `priority`: higher ones come first; `retries`: how often it may be run again; `depends`: jids of jobs
        that must be complete first. A `jid` that exists already is moved here, with these data and options.
        Raises `InvalidArgument`, `DependencyError`.
        """
        name = class_name(klass)
        options: tuple[Any, ...] = ()
        if jid is not None or priority is not None or tags or retries is not None or depends:
            options = options_of(priority, tags, retries, depends)
        txid = current()
        if txid is not None:
            options += ("txid", txid)
        if jid is None:
            jid = self.client.generate_jid()
        yield "put", self.client.worker_name, self.name, jid, name, encode(data), delay, *options
        return jid

    put, aput = twins(_put)

    def _put_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Steps[list[str]]:
        """Put many jobs, each a `JobSpec` or a dict of the arguments of `put`; gives their jids.

        They are sent by 500: where one of these is refused, none of its 500 is put, and those after it are not.
        """
        specs = iter(jobs)
        jids: list[str] = []
        txid = current()
        more = {} if txid is None else {"txid": txid}
        usual = msgspec.json.encode(more) if more else b""
        while chunk := list(itertools.islice(specs, CHUNK)):
            flat: list[Any] = []
            digits = os.urandom(16 * len(chunk)).hex()
            for number, given in enumerate(chunk):
                spec = given if isinstance(given, dict) else _as_dict(given)
                if spec.keys() <= _PLAIN and "klass" in spec:
                    jid, options = digits[32 * number : 32 * number + 32], usual
                else:
                    jid, options = spec.get("jid") or digits[32 * number : 32 * number + 32], _options_text(spec, more)
                jids.append(jid)
                flat += (jid, class_name(spec["klass"]), encode(spec.get("data")), spec.get("delay", 0), options)
            yield "put.many", self.client.worker_name, self.name, *flat
        return jids

    put_many, aput_many = twins(_put_many)

    def _recur(
        self,
        klass: Any,
        data: Any,
        interval: float,
        *,
        jid: str | None = None,
        offset: float = 0,
        priority: float = 0,
        tags: Iterable[str] = (),
        retries: int = 5,
        backlog: int = 0,
    ) -> Steps[str]:
        """Put a job every `interval` seconds, the first after `offset` seconds; gives the jid of the recurring job.

        With a `jid` it may be declared again and again, as by each start of a site. `backlog`: how many that are late
        are made besides the latest; 0: all. Raises `InvalidArgument`.
        """
        jid = self.client.generate_jid() if jid is None else jid
        options = ("priority", priority, "tags", list_text("tags", tags), "retries", retries, "backlog", backlog)
        yield "recur", self.name, jid, class_name(klass), encode(data), "interval", interval, offset, *options
        return jid

    recur, arecur = twins(_recur)


def _as_dict(given: Any) -> Mapping[str, Any]:
    if isinstance(given, JobSpec):
        values = {field: getattr(given, field) for field in PUT}
        return {name: value for name, value in values.items() if value is not None}
    if isinstance(given, Mapping):
        return given
    raise InvalidArgument(f"put_many() takes JobSpecs and dicts, not a {type(given).__qualname__}.")


def _options_text(spec: Mapping[str, Any], more: dict[str, str]) -> bytes:
    unknown = sorted(spec.keys() - PUT)
    if unknown or "klass" not in spec:
        what = f"knows no {unknown[0]}" if unknown else "needs a klass for each job"
        raise InvalidArgument(f"put_many() {what}. A job has {', '.join(sorted(PUT))}.")
    priority, retries = spec.get("priority"), spec.get("retries")
    values = {
        "priority": 0 if priority is None else priority,
        "tags": text_list("tags", spec.get("tags") or ()),
        "retries": 5 if retries is None else retries,
        "depends": text_list("depends", spec.get("depends") or ()),
        **more,
    }
    return msgspec.json.encode(values)


__all__ = ["CHUNK", "Puts"]
