"""Jobs for the tests of the worker. Jobs that run in the process of the tests record in SEEN what they do.

Private name: `Job._loop`, the loop of the worker, which a job makes hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from queue import SimpleQueue
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from resty_django.limits import FixedWindow
from resty_django.qless import task
from resty_django.qless.worker import JobTimeout, LostLock, RequeueLater, RetryLater
from resty_django.qless.worker.middleware import Limit, MemoryBound, Reconnect, ReportErrors, Requeue, Retry, Timeout
from resty_django.qless.worker.processes.fork_server import INTERRUPT
from resty_django.redis import StoreDown
from resty_django.shdict import shdicts
from resty_django.txid import current, current_request_id
from tests.threads import lose_connection

SEEN: SimpleQueue[Any] = SimpleQueue()
GO = threading.Event()
"""Set by tests, to end jobs that hold."""
TRAIL: list[str] = []


def within(function: Any, *middleware: Any) -> Any:
    """A job class that runs the function within these middleware."""
    return type("Within", (), {"middleware": middleware, "perform": staticmethod(function)})


def note(job: Any) -> None:
    SEEN.put(job.data)


async def anote(job: Any) -> None:
    await asyncio.sleep(0)
    SEEN.put(job.data)


def boom(job: Any) -> None:
    raise ValueError(f"boom {job.data}")


async def aboom(job: Any) -> None:
    raise ValueError(f"boom {job.data}")


def hold(job: Any) -> None:
    """Until the test lets it go; notices a lost lock."""
    SEEN.put(("holds", job.jid))
    while not GO.wait(0.01):
        try:
            job.check()
        except LostLock:
            SEEN.put(("lost", job.jid))
            raise


def blind(job: Any) -> None:
    """Until the test lets it go; looks at nothing."""
    SEEN.put(("holds", job.jid))
    GO.wait(60)


def spin(job: Any) -> None:
    """Until it is interrupted."""
    SEEN.put(("holds", job.jid))
    try:
        while not GO.is_set():
            time.sleep(0.005)
    except (LostLock, JobTimeout) as error:
        SEEN.put((type(error).__name__, job.jid))
        raise


async def ahold(job: Any) -> None:
    SEEN.put(("holds", job.jid))
    try:
        while not GO.is_set():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        SEEN.put(("cancelled", job.jid))
        raise


def by_itself(job: Any) -> None:
    job.complete(next="next")


def change(job: Any) -> None:
    job.data["changed"] = True


def not_json(job: Any) -> None:
    job.data = object()


def exits(job: Any) -> None:
    raise SystemExit(3)


def later(job: Any) -> None:
    SEEN.put(job.retries_left)
    raise RetryLater(0, "mine", "not yet")


def again(job: Any) -> None:
    SEEN.put((job.data["n"], job.retries_left))
    job.data["n"] += 1
    if job.data["n"] < 3:
        raise RequeueLater(0, job.retries_left)


def txid(job: Any) -> None:
    SEEN.put((job.txid, current(), job.request_id, current_request_id()))


def hooked(job: Any) -> None:
    job.before_complete(lambda job: SEEN.put("before"))
    job.after_complete(lambda job: SEEN.put("after"))


def async_hooked(job: Any) -> None:
    async def before(job: Any) -> None:
        SEEN.put("before")

    job.before_complete(before)
    job.after_complete(lambda job: SEEN.put("after"))


async def ahooked(job: Any) -> None:
    async def before(job: Any) -> None:
        SEEN.put("before")

    job.before_complete(before)


def query(job: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    SEEN.put(connection.connection)


async def aquery(job: Any) -> None:
    await sync_to_async(query)(job)


def lose(job: Any) -> None:
    query(job)
    lose_connection()


async def alose(job: Any) -> None:
    """The same in a thread."""
    in_thread = {"to_thread": partial(asyncio.to_thread, lose), "sync_to_async": sync_to_async(lose)}
    await in_thread.get(job.data, sync_to_async(lose, thread_sensitive=False))(job)


class Named:
    """A function for the queue, one for all others."""

    @staticmethod
    def special(job: Any) -> None:
        SEEN.put("special")

    @classmethod
    def perform(cls, job: Any) -> None:
        SEEN.put("perform")


class Answer:
    keep_result = True

    @staticmethod
    def perform(job: Any) -> Any:
        return {"answer": job.data * 2}


class Nothing:
    pass


def no_route(job: Any) -> None:
    SEEN.put((job.attempt, copy.deepcopy(job.data)))
    raise OSError("no route")


Retried = within(no_route, Retry(OSError, backoff=0.01, factor=1))
Requeued = within(no_route, Requeue(OSError, max_delay=0, max_requeues=2))
Slow = within(spin, Timeout(0.2))
AsyncSlow = within(ahold, Timeout(0.2))
Deaf = within(blind, Timeout(0.1, kill_after=0.1))
"""Ignores its timeout."""


def trail(name: str) -> Any:
    def middleware(job: Any) -> Any:
        TRAIL.append(f"{name} before")
        try:
            yield
        except ValueError:
            TRAIL.append(f"{name} error")
            raise
        TRAIL.append(f"{name} after")

    return middleware


outer = trail("outer")


async def anywhere(job: Any) -> Any:
    TRAIL.append("async before")
    yield
    TRAIL.append("async after")


Trailed = within(note, trail("one"), trail("two"))
AsyncTrailed = within(anote, trail("one"), anywhere)
Misfit = within(note, anywhere)


def report(error: BaseException, facts: dict[str, Any]) -> None:
    SEEN.put((error, facts))
    raise RuntimeError("the collector is down")


Reported = within(boom, ReportErrors(report))
ByPolicy = within(note, Limit("jobs-by-policy", wait=0))
AsyncByPolicy = within(anote, Limit("jobs-by-policy", wait=0))


async def akey(job: Any) -> str:
    return "one"


def wrapped_key(job: Any) -> Any:
    return akey(job)


KeyedByCoroutine = within(note, Limit(FixedWindow(1, 600.0, prefix="keyed:"), wrapped_key, wait=0))
AsyncKeyedByCoroutine = within(anote, Limit(FixedWindow(1, 600.0, prefix="akeyed:"), akey, wait=0))


class Broken:
    def ping(self) -> None:
        SEEN.put("alive?")
        raise OSError("gone")

    def close(self) -> None:
        SEEN.put("renewed")


Reconnected = within(lambda job: None, Reconnect(Broken()))


# --- for separate processes: they report in lists of the server ---


def write(job: Any) -> None:
    job.client.source.sync().rpush("told", f"{job.worker_name} {job.data}")


def puts(job: Any) -> None:
    """Put a job when its queue has been empty for a while, and end after that."""
    time.sleep(0.5)
    job.client.queues["q"].put(f"{__name__}.write", job.data)
    time.sleep(0.5)


def stamp(job: Any) -> None:
    """How long after its put it started."""
    took = time.time() - job.data
    job.client.source.sync().rpush("took", took)


def long(job: Any) -> None:
    """Report the start, and sleep for this number of seconds."""
    write(job)
    time.sleep(job.data)
    job.client.source.sync().rpush("done", job.jid)


def keeps(job: Any) -> None:
    """Report the start, sleep until the lock is lost, and report that."""
    write(job)
    try:
        while True:
            job.check()
            time.sleep(0.01)
    except LostLock:
        job.client.source.sync().rpush("lost", job.jid)
        raise


async def along(job: Any) -> None:
    write(job)
    try:
        await asyncio.sleep(job.data)
    except asyncio.CancelledError:
        job.client.source.sync().rpush("cancelled", job.jid)
        raise


async def deep_wait(job: Any) -> None:
    """Waits in a coroutine that another one awaits."""
    password = "hunter2"
    write(job)
    await _first_level(job.data, password)


async def _first_level(seconds: float, password: str) -> None:
    await _second_level(seconds, password)


async def _second_level(seconds: float, password: str) -> None:
    await asyncio.sleep(seconds)


async def ablocks(job: Any) -> None:
    """Does not let its event loop run."""
    write(job)
    time.sleep(job.data)


def recurses(job: Any) -> None:
    _recurse(job, 200)


def _recurse(job: Any, depth: int) -> None:
    if depth:
        _recurse(job, depth - 1)
    else:
        long(job)


def hangs_the_loop(job: Any) -> None:
    """Makes the worker's loop wait, as a call to the server that hangs does."""
    job._loop.inbox.put(lambda: time.sleep(job.data))
    long(job)


tight = MemoryBound(1)


Limited = within(write, Limit(FixedWindow(3, 1.0, prefix="jobs:"), lambda job: job.data["customer"], wait=0))


def flaky(job: Any) -> None:
    """Fails now and then by its own rule: what `data` says of this attempt."""
    try:
        states = [job.client.jobs.get(jid).state for jid in job.data["after"]]
    except StoreDown as error:  # the tests kill the server as well
        raise OSError("not while the server is down") from error
    assert set(states) <= {"complete"}
    if job.attempt <= job.data["fails"]:
        raise OSError("not this time")
    if job.data.get("seconds"):
        time.sleep(job.data["seconds"])


Flaky = within(flaky, Retry(OSError, backoff=0.05, factor=1))


def forks(job: Any) -> None:
    """Fork a process that returns from here, and one that sleeps; write the pids of both into a file."""
    returns = os.fork()
    if not returns:
        return
    sleeps = os.fork()
    if not sleeps:
        time.sleep(600)
        return
    with open(job.data, "w") as file:
        file.write(f"{returns} {sleeps} {os.getpid()}\n")


async def aforks(job: Any) -> None:
    forks(job)


def ends_forks_at_once(job: Any) -> None:
    """Report the exit codes of processes that got SIGTERM as soon as they existed; pools end in between."""
    fork = multiprocessing.get_context("fork")
    for _ in range(20):
        process = fork.Process(target=time.sleep, args=(60,))
        process.start()
        process.terminate()
        process.join(5)
        job.client.source.sync().rpush("codes", str(process.exitcode))
        process.kill()
        process.join()
        with fork.Pool(2):
            pass


def txids_of_forks(job: Any) -> None:
    """Writes the txid of two forks, and its own."""
    fork = multiprocessing.get_context("fork")
    txids = fork.SimpleQueue()
    forks = [fork.Process(target=lambda: txids.put(current())) for _ in range(2)]
    for process in forks:
        process.start()
    for process in forks:
        process.join()
    job.client.source.sync().rpush("txids", *(str(txids.get()) for _ in forks), str(current()))


# --- ends that the server refuses, and exceptions that cannot be shown ---


class Nasty(Exception):
    """Its text is `text`, which may not be one, or an exception to raise."""

    def __init__(self, text: Any) -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        if isinstance(self.text, BaseException):
            raise self.text
        return self.text  # type: ignore[no-any-return]

    __repr__ = __str__


class Ending:
    """Ends as `ENDINGS` says."""

    keep_result = True

    @staticmethod
    def perform(job: Any) -> Any:
        return ENDINGS[job.data](job)


class OddTtl(Answer):
    result_ttl = "abc"


def _raises(make: Any) -> Any:
    def end(job: Any) -> None:
        raise make()

    return end


def _sets(data: Any) -> Any:
    def end(job: Any) -> None:
        job.data = data

    return end


ENDINGS: dict[str, Any] = {
    "retry nan": _raises(lambda: RetryLater(float("nan"))),
    "retry infinity": _raises(lambda: RetryLater(float("inf"))),
    "requeue nan": _raises(lambda: RequeueLater(float("nan"))),
    "requeue retries": _raises(lambda: RequeueLater(0, "many")),  # type: ignore[arg-type]
    "retry decimal": _raises(lambda: RetryLater(Decimal(1))),  # type: ignore[arg-type]
    "retry group": _raises(lambda: RetryLater(0, object())),  # type: ignore[arg-type]
    "retry message": _raises(lambda: RetryLater(0, "group", object())),  # type: ignore[arg-type]
    "long result": lambda job: "x" * 5000,
    "long data": _sets("x" * 5000),
    "data false": _sets(False),
    "data object": _sets(object()),
    "deep data": _sets(json.loads("[" * 100 + "]" * 100)),
    "key of another type": lambda job: job.client.source.sync().set(f"ql:x:{job.jid}", "somebody's"),
    "surrogate": _raises(lambda: ValueError("\ud800 \udcff")),
    "surrogate in group": _raises(lambda: RetryLater(0, "\ud800", "\udfff")),
    "surrogate in log": lambda job: job.log("\ud800"),
    "surrogate in progress": lambda job: job.progress(0.5, "\ud800"),
    "surrogate in result": lambda job: "\ud800",
    "surrogate in data": _sets({"a": "\ud800"}),
    "bad str": _raises(lambda: Nasty(RuntimeError("no text"))),
    "str exits": _raises(lambda: Nasty(SystemExit(3))),
    "str of no text": _raises(lambda: Nasty(7)),
    "long text": _raises(lambda: ValueError("\ud800" * 100_000)),
    "long name": _raises(lambda: type("N" * 100_000, (Exception,), {})("x")),
    "data whose items raise": _sets(Nasty(RuntimeError("no data"))),
}
"""Functions of jobs that end badly, each in another way."""


def hold_interpreter(job: Any) -> None:
    """As C code does that does not release the interpreter lock: no other thread of the process runs meanwhile."""
    write(job)
    ctypes.PyDLL(None).usleep(int(job.data * 1e6))


def block_interpreter(job: Any) -> None:
    """Waits in C code for a mutex that is never free, with the interpreter lock. No signal ends that but SIGKILL."""
    write(job)
    wait_for_a_mutex()


def wait_for_a_mutex() -> None:
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


# A timeout counts from the start of the run, which with much other load is long before the first line of the job. So
# these set theirs, as `Timeout` does, once nothing but the wait is left.


def blocks_timed(job: Any) -> None:
    """Holds the interpreter lock beyond its timeout."""
    write(job)
    signal.signal(INTERRUPT, signal.SIG_IGN)  # the timeout does not come before the wait, in no thread
    job.limit(0.3)
    wait_for_a_mutex()


BlocksRetried = within(blocks_timed, Retry(JobTimeout, backoff=0.05, factor=1))


@contextlib.contextmanager
def end_is_told(job: Any) -> Iterator[None]:
    """Let the job have the timeout in its data, if any, and write which exception ended it, and when."""
    write(job)
    try:
        if job.data:
            job.limit(job.data)
        yield
    except BaseException as error:
        job.client.source.sync().rpush("ended", f"{type(error).__name__} {time.time()}")
        raise


def sleeps(job: Any) -> None:
    """Waits in Python's own `sleep`."""
    with end_is_told(job):
        time.sleep(600)


def turns(job: Any) -> None:
    """Runs Python code until it is interrupted."""
    with end_is_told(job):
        while True:
            time.sleep(0.001)


async def waits(job: Any) -> None:
    with end_is_told(job):
        await asyncio.sleep(600)


def looks(job: Any) -> None:
    """Asks until the job is lost, and writes when."""
    write(job)
    while not job.lost:
        time.sleep(0.001)
    job.client.source.sync().rpush("ended", f"lost {time.time()}")
    job.check()


def dies(job: Any) -> None:
    """Ends its process: by this signal, or with this exit code."""
    write(job)
    kind, number = job.data
    if kind == "signal":
        os.kill(os.getpid(), number)
        time.sleep(600)
    os._exit(number)


def dies_once(job: Any) -> None:
    """Dies by a real segmentation fault in its first run."""
    if job.attempt == 1:
        ctypes.string_at(0)
    write(job)


def whoami(job: Any) -> None:
    """Writes its process, and what it shares with others."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    shdicts["limits"].incr("whoami", 1, 0)
    server = job.client.source.sync()
    server.rpush("whoami", f"{os.getpid()} {shdicts['limits'].get('whoami')} {current()} {job.txid}")


def starts_program(job: Any) -> None:
    """Starts a program and waits for it."""
    with subprocess.Popen(["sleep", "600"]) as program:
        job.client.source.sync().rpush("program", program.pid)
        write(job)


def ends_itself(job: Any) -> None:
    """Completes itself, then goes on for a while."""
    job.complete()
    write(job)
    time.sleep(job.data)
    job.client.source.sync().rpush("done", job.jid)


def cleans(job: Any) -> None:
    try:
        turns(job)
    finally:
        time.sleep(1.5)
        job.client.source.sync().rpush("done", job.jid)


Cleans = within(cleans, Timeout(1.0, kill_after=30))
"""Its cleanup takes longer than its timeout."""


@task(bind=True)
def looks_bound(self: Any) -> None:
    """A task that ends once it is revoked."""
    SEEN.put(("holds", self.id))
    while not self.lost:
        time.sleep(0.001)
    SEEN.put(("lost", self.id))


async def aquick(job: Any) -> None:
    await asyncio.sleep(0.01)
    await sync_to_async(write)(job)


def idle(job: Any) -> None:
    """Nothing."""


def hooked_quietly(job: Any) -> None:
    server = job.client.source.sync()
    job.before_complete(lambda job: server.rpush("hooks", "before"))
    job.after_complete(lambda job: server.rpush("hooks", "after"))
