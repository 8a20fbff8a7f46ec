"""Access to the index of jobs in the core (core/index.lua), and the thread of a worker that keeps it up to date."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from resty_django.conf import conf
from resty_django.health import described
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.client import Client
from ..clients.serialization import LuaList, decode, read, read_list, readable, texts
from ..errors import QlessError
from .terms import Document, Pattern, document, error_text, index_terms

log = logger("resty_django.qless.search")

JOBS_PER_TAKE: Final = 100
"""Maximum number of jobs that one call takes to index them."""


class IndexCounts(msgspec.Struct):
    """The state of the index, and counts of entries.

    - `counts`: the number of entries of each pattern, ignoring its path.
    - `entries`, `limit`: of the index; a limit of 0 turns it off.
    - `unindexed`: the number of new jobs that are not in the index yet.
    - `complete`: whether all jobs have been examined once.
    - `classes`: the option `index-classes`: the classes whose jobs are indexed in all states; `*`: all classes.
    """

    counts: LuaList[int]
    entries: int
    limit: int
    unindexed: int
    complete: bool
    classes: str = ""

    def contains(self, klass: str, state: str) -> bool:
        """Return whether all jobs of a class ("": any class) and a state ("": any state) are in the index."""
        names = re.split(r"[\s,]+", self.classes)
        return state == "failed" or "*" in names or (klass != "" and klass in names)

    @property
    def enabled(self) -> bool:
        return self.limit > 0

    @property
    def full(self) -> bool:
        return self.entries >= self.limit


class IndexPage(msgspec.Struct):
    jobs: LuaList[str]
    cursor: str
    examined: int


class UnindexedJob(msgspec.Struct, array_like=True):
    """The searchable fields of a job. `data`, `failure` and `tags` are JSON; missing fields are False."""

    jid: str
    mark: str
    klass: str
    data: str | bool
    txid: str | bool
    failure: str | bool
    tags: str | bool


def count(client: Client, patterns: Sequence[Pattern]) -> IndexCounts:
    """Return the number of entries of each pattern, and the state of the index."""
    return read(client.call("index.count", json.dumps(patterns)), IndexCounts)


def find(
    client: Client,
    pattern_lists: Sequence[Sequence[Pattern]],
    *,
    state: str = "",
    queue: str = "",
    cursor: str = "",
    count: int = 25,
    scan: int = 1000,
) -> IndexPage:
    """Return jids of jobs that have a term for one pattern of each list; the first list is read from the index."""
    options = {"state": state, "queue": queue, "cursor": cursor}
    pairs = [argument for name, value in options.items() if value for argument in (name, value)]
    reply = client.call("index.find", json.dumps(pattern_lists), *pairs, "count", count, "scan", scan)
    return read(reply, IndexPage)


def classes(client: Client) -> list[str]:
    """Return the names of classes in the index, the most recently indexed first; at most 1000."""
    return texts(client.call("index.classes"))


def index_jobs(client: Client, count: int = JOBS_PER_TAKE) -> int:
    """Write the terms of at most `count` jobs that are not in the index yet; return how many were taken."""
    jobs = read_list(client.call("index.take", count), UnindexedJob)
    arguments: list[str] = []
    for job in jobs:
        try:
            terms = _terms(job)
        except Exception as error:  # a class whose module cannot be imported, or data of a shape that nobody expects
            log.warning("only the class of job %s is indexed: %s", readable(job.jid, 100), described(error))
            terms = index_terms(Document(job.jid, job.klass, failed=job.failure is not False))
        arguments += (job.jid, job.mark, json.dumps(terms))
    if arguments:
        client.call("index.put", *arguments)
    return len(jobs)


def _terms(job: UnindexedJob) -> list[str]:
    arguments = _decoded(job.data) if conf.qless.search_arguments else None
    tags = _decoded(job.tags)
    return index_terms(
        document(
            job.jid,
            job.klass,
            arguments,
            txid=job.txid or "",
            tags=[str(tag) for tag in tags] if isinstance(tags, list) else [],
            error=error_text(_decoded(job.failure)),
            failed=job.failure is not False,
        )
    )


def _decoded(text: str | bool) -> object:
    """Return the value of a JSON text; None if it is missing or cannot be read."""
    try:
        return decode(text) if isinstance(text, str) else None
    except QlessError:
        return None


class Indexer:
    """A thread that indexes new jobs, and looks for jobs that other clients have put, until stopped."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qless-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)

    def _index_new_jobs(self) -> None:
        taken = JOBS_PER_TAKE
        while taken == JOBS_PER_TAKE and not self._stopped.is_set():
            start = time.monotonic()
            taken = index_jobs(self._client)
            # pauses four times as long as it works, so that it slows down jobs little
            self._stopped.wait(4 * (time.monotonic() - start))

    def _run(self) -> None:
        failing = False
        while not self._stopped.is_set():
            try:
                self._index_new_jobs()
                for _step in range(10):  # then new jobs come first again
                    if self._stopped.is_set() or not self._client.call("index.sweep"):
                        break
                failing = False
            except (QlessError, StoreError) as error:
                if not failing:
                    log.warning("jobs could not be indexed for the search: %s", error)
                failing = True
            self._stopped.wait(2)
