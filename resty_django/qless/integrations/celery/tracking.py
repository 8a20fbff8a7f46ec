"""Tasks that Celery runs and that have a job as their counterpart, on which other jobs can depend.

While the message is in the broker, the job is scheduled for a distant day. The Celery process that starts the task
takes the job, extends its lock, and ends the job together with the task. The worker's main process reports ends that
this process does not see, using Celery's signals (`on_failure`, `on_revoked`, `on_rejected`). Ends that no process
reports, such as the failure of a machine, are detected when the lock expires (by `Sweep`, and by each worker of this
package that serves the job's queue).
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from kombu.utils.uuid import uuid

from resty_django.redis import StoreDown
from resty_django.text import logger
from resty_django.txid.context import current_ids

from ...clients.client import Client
from ...clients.default import default_client
from ...clients.job import Job
from ...clients.put_options import checked_options
from ...clients.replies import JobRecord
from ...clients.serialization import LuaList, as_list, encode, read, texts
from ...clients.transport import RedisCommand, checked, skipping_refusals
from ...errors import LOCK_GONE, InvalidArgument, NoSuchJob, QlessError
from ...job_classes import Runnable
from ...middleware.job import WorkerJob
from ...outcomes import RetryLater
from ...outcomes.error_text import message_of
from ...tasks.message import PutOptions
from ...tasks.options import timestamp
from ...worker.running_job import RunningJob
from .lease_keeper import keeper
from .runner import begin, process_name
from .serialization import RegisteredTask, as_json, check, dumped, loaded

log = logger("resty_django.qless.integrations.celery")

HEADER: Final = "qless_job"
"""The header of messages whose task has a job as its counterpart."""
KLASS: Final = "celery-send:"
"""The prefix of the class of such a job; the name of the task follows."""
FAR_SECONDS: Final = 10 * 365 * 86_400.0
"""Delay of a job that waits until Celery reports the end of its task."""
MAX_CELERY_RETRIES: Final = 1_000_000
"""Retries of such a job: each Celery retry uses up one."""
REPORT_SECONDS: Final = 20.0
"""Time for which the report of a task's end is repeated while the job queue's server does not answer."""
BEGUN, SENT_TO_CELERY = "begun by Celery", "sent to Celery"
"""Entries of the job's history."""
WATCHED: Final = "celery-sent"
"""The key of a sorted set: jids of jobs of sent tasks, and when to check that they are still alive."""


class TakenTask(NamedTuple):
    """A task that this process is running. `lease`: extends the lock of its job until it is closed."""

    running: RunningJob
    lease: ExitStack


running_tasks: Final[dict[str, TakenTask]] = {}
"""The tasks that this process is running, by ID."""


def send(
    task: RegisteredTask,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    depends: Any = (),
    task_id: str | None = None,
    queue: str = "default",
    **options: Any,
) -> str:
    """Send a task to Celery once the jobs `depends` have succeeded, and return its ID, which is also a jid.

    Other jobs may depend on it: they wait until Celery's worker has reported its end (`connect`). `options`: options of
    Celery's `apply_async`, as JSON values. With `depends`, a worker of the job queue's `queue` sends it.
    """
    client = default_client()
    check(task, args, kwargs)
    jid, ids = task_id or uuid(), current_ids()
    data = {"args": [*args], "kwargs": {**(kwargs or {})}, "options": options}
    parents = checked_options(queue=queue, task_id=task_id, depends=depends)["depends"] or []
    job = (jid, f"{KLASS}{task.name}", dumped(data), 0 if parents else FAR_SECONDS)
    put_options = PutOptions(retries=MAX_CELERY_RETRIES, depends=parents).arguments
    client.call("put", client.worker_name, queue, *job, *put_options, *chain(*ids.items()))
    if not parents:
        try:
            _publish(client, task, jid, args, kwargs or {}, options, ids)
        except BaseException:
            client.call("cancel", jid)
            raise
    return jid


def ids_of(job: Job) -> dict[str, str]:
    """Return the IDs that a job carries, as headers of a message."""
    return {name: value for name in ("txid", "request_id") if (value := getattr(job, name))}


class CelerySend(Runnable):
    """Sends a task whose dependencies have ended. Its job then waits until Celery reports the end of the task."""

    def __init__(self, task: RegisteredTask) -> None:
        self.task = task
        self.__module__ = task.__module__
        self.call_signature = inspect.signature(task.run)
        self.parameter_names = [*self.call_signature.parameters]

    def perform(self, job: Job) -> None:
        """Send the task. If it was sent before, the lock of the job has expired: its process is gone."""
        events = _since_put(job.raw_queue_history)
        if BEGUN in events and not self.task.acks_late:
            raise CeleryLost(LOST_MESSAGE)
        if BEGUN not in events and SENT_TO_CELERY not in events:
            data = loaded(job)
            _publish(job.client, self.task, job.jid, data["args"], data["kwargs"], data["options"], ids_of(job))
            job.log(SENT_TO_CELERY)
        raise RetryLater(FAR_SECONDS)


class CeleryLost(QlessError):
    """The Celery process that ran the task is gone and has not reported the task's end."""


LOST_MESSAGE: Final = (
    "The Celery process that ran the task is gone without a report: it exceeded its time limit, was killed, or its "
    "machine failed. If the task is delivered again, its job restarts as well."
)


def _publish(
    client: Client,
    task: RegisteredTask,
    jid: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    ids: Mapping[str, str],
) -> None:
    headers = {**options.get("headers", {}), HEADER: jid, **ids}
    task.apply_async(args, kwargs, **{**options, "task_id": jid, "headers": headers})
    expires = options.get("expires", task.expires)
    if expires is not None:
        if isinstance(expires, str):
            expires = datetime.fromisoformat(expires)
        until = client.clock() + expires if isinstance(expires, int | float) else timestamp(expires)
        watch(client, jid, until + GRACE_SECONDS)


# --- in the process that runs the task ---


def on_prerun(task: RegisteredTask, task_id: str, **kwargs: object) -> None:
    """Take the job of a task that is about to run, and extend its lock until the task ends."""
    if not is_job(task.request, task_id):
        return
    client = own_client()
    thread = threading.get_ident()
    for unended in [jid for jid, taken in running_tasks.items() if taken.running.thread == thread]:
        running_tasks.pop(unended).lease.close()  # Celery has not reported its end
    record = _take(client, task_id, revive=True)
    if record is None:
        return
    watch(client, task_id, record.expires + GRACE_SECONDS)
    client.call("log", task_id, BEGUN, encode({"late": bool(task.acks_late)}))
    running = begin(client, record)
    lease = ExitStack()
    lease.enter_context(keeper.keeps(client, running))
    running_tasks[task_id] = TakenTask(running, lease)


def on_postrun(task: RegisteredTask, task_id: str, state: str | None, retval: Any, **kwargs: object) -> None:
    """Report the end of a task to its job. While the server is down, repeat this for a while."""
    if not is_job(task.request, task_id):
        return
    taken = running_tasks.pop(task_id, None)
    if taken is not None:
        taken.lease.close()
    if state is None:  # the process is being stopped: the main process reports the reason, else the lock expires
        return
    deadline = time.monotonic() + REPORT_SECONDS
    while True:
        try:
            _report_end(own_client(), task_id, state, retval, taken and taken.running.job)
            return
        except StoreDown:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.25)


def _report_end(client: Client, jid: str, state: str, retval: Any, run: WorkerJob | None) -> None:
    if state == "RETRY" or (state == "REJECTED" and getattr(retval, "requeue", False)):
        if run is not None:
            error = getattr(retval, "exc", None)
            group = None if error is None else f"celery-{type(error).__name__}"[:500]
            message = None if error is None else message_of(error)[:10_000]
            with suppress(*LOCK_GONE):  # the message of the next run is already sent: that run may have the job
                run.retry(FAR_SECONDS, group, message)
        return
    record = _take(client, jid, revive=state == "SUCCESS")
    if record is None:
        return
    job = Job(client, record)
    if state in ("FAILURE", "REJECTED"):
        message = message_of(retval) if isinstance(retval, BaseException) else str(retval)
        _fail(job, f"celery-{type(retval).__name__}", message)
    else:
        try:
            job.complete(result=as_json(job, retval if state == "SUCCESS" else None))
        except InvalidArgument as error:  # the result is not valid for a job
            _fail(job, f"celery-{type(error).__name__}", message_of(error))
    _unwatch(client, jid)


def _fail(job: Job, group: str, message: str) -> None:
    job.fail(group[:500], message[:10_000])


def own_client() -> Client:
    client = default_client()
    client.worker_name = process_name()
    return client


def is_job(request: Any, task_id: str) -> bool:
    """Return whether a task has a job as its counterpart, according to the header of its message."""
    headers = getattr(request, "headers", None)
    return isinstance(headers, dict) and headers.get(HEADER) == task_id


def _take(client: Client, jid: str, *, revive: bool = False) -> JobRecord | None:
    """Take the job of a task and return it; None if it does not exist or has ended.

    A worker of this package that has just sent the message gets 2 seconds to release the job. With `revive`, a job that
    counted as lost restarts.
    """
    deadline = time.monotonic() + 2
    while True:
        reply = client.call("get", jid)
        record = None if reply is None else read(reply, JobRecord)
        if record is None or record.state in ("complete", "depends") or (record.state == "failed" and not revive):
            return None
        if record.state == "running" and record.worker == client.worker_name:
            return record
        holder: tuple[str, ...] = ()
        try:
            if record.state == "failed":
                request = ("requeue", client.worker_name, record.queue, jid, record.klass, record.data, FAR_SECONDS)
                client.call(*request, "retries", MAX_CELERY_RETRIES)
            elif record.state == "running":
                if time.monotonic() < deadline and BEGUN not in _since_put(record.history):
                    time.sleep(0.02)
                    continue
                holder = (record.worker,)
            return read(client.call("take", jid, client.worker_name, *holder), JobRecord)
        except NoSuchJob:
            return None
        except QlessError:  # its state has changed since
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)


# --- in the main process of a Celery worker, and for processes that are gone ---

GRACE_SECONDS: Final = 5.0
"""Time after the expiry of a lock or a task for another process to report it."""
SWEEP_SECONDS: Final = 15.0
"""Interval of the searches for jobs whose process is gone."""


def fail_job(client: Client, jid: str, group: str, message: str) -> None:
    """Fail the job of a task whose process did not report its end. Raises `StoreError`."""
    reply = client.call("get", jid)
    record = None if reply is None else read(reply, JobRecord)
    if record is None or not record.klass.startswith(KLASS) or record.state in ("complete", "failed"):
        return
    record = _take(client, jid)
    if record is not None:
        job = Job(client, record)
        last_error = job.failure.get("message")
        _fail(job, group, f"{message}\n\nIts last error was:\n\n{last_error}" if last_error else message)
        _unwatch(client, jid)


class _Failure(NamedTuple):
    group: str
    message: str


class Sweep:
    """The thread of the main process that reports ended tasks, so that Celery's loop does not wait for the job queue's
    server."""

    def __init__(self) -> None:
        self.failures: dict[str, _Failure] = {}
        """Failures to report, by the ID of the task."""
        self._changed = threading.Condition()
        self._stopped = False
        self._pid = 0
        self._thread: threading.Thread | None = None

    def start(self, **kwargs: object) -> None:
        """Start the thread in the main process of a worker."""
        if self._thread is None or self._pid != os.getpid():
            self._stopped, self._pid = False, os.getpid()
            self._thread = threading.Thread(target=self._run, name="qless-sent", daemon=True)
            self._thread.start()

    def stop(self, **kwargs: object) -> None:
        thread, self._thread = self._thread, None
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if thread is not None:
            thread.join(REPORT_SECONDS)

    def report(self, jid: str, group: str, message: str) -> None:
        """Report the failure of a task; without a thread, do so at once."""
        if self._thread is None or self._pid != os.getpid():
            fail_job(own_client(), jid, group, message)
            return
        with self._changed:
            if len(self.failures) < 10_000:  # so that memory is bounded while the server is down
                self.failures[jid] = _Failure(group, message)
            self._changed.notify()

    def _run(self) -> None:
        next_search = time.monotonic() + SWEEP_SECONDS / 3
        while True:
            with self._changed:
                if not self.failures and not self._stopped:
                    self._changed.wait(max(0.0, next_search - time.monotonic()))
                if self._stopped and not self.failures:
                    return
                failures = dict(self.failures)
            try:
                client = own_client()
                for jid, failure in failures.items():
                    with skipping_refusals(log, "the end of task %s cannot be reported", jid):
                        fail_job(client, jid, failure.group, failure.message)
                    with self._changed:
                        self.failures.pop(jid, None)
                if time.monotonic() >= next_search:
                    next_search = time.monotonic() + SWEEP_SECONDS
                    fail_abandoned(client)
            except Exception as error:
                log.warning("the ends of tasks could not be reported; next attempt in 1 s: %s", error)
                if self._stopped:
                    return
                time.sleep(1.0)
                next_search = max(next_search, time.monotonic() + 1.0)


sweep: Final = Sweep()


def on_failure(sender: object, task_id: str, exception: BaseException, **kwargs: object) -> None:
    """Report a task whose process is gone. The process itself reports other failures."""
    if (
        type(exception).__name__ in ("WorkerLostError", "TimeLimitExceeded", "Terminated")
        and task_id not in running_tasks
    ):
        sweep.report(task_id, f"celery-{type(exception).__name__}", f"{type(exception).__name__}: {exception}")


def on_revoked(request: Any, terminated: bool, signum: object, expired: bool, **kwargs: object) -> None:
    """Report a task that was revoked before it started, was terminated, or arrived after it had expired."""
    if is_job(request, request.id):
        how = "expired before a worker was free" if expired else "was terminated" if terminated else "was revoked"
        sweep.report(request.id, "celery-TaskRevokedError", f"The task {how}{f' ({signum})' if signum else ''}.")


def on_rejected(message: Any, exc: object = None, name: str = "", **kwargs: object) -> None:
    """Report a task that a Celery worker does not know, or whose message it cannot read."""
    jid = (message.headers or {}).get(HEADER)
    if isinstance(jid, str):
        text = (
            f"Celery's worker does not know the task {name!r}."
            if name
            else "Celery's worker could not read the message."
        )
        sweep.report(jid, "celery-NotRegistered" if name else "celery-InvalidTaskError", f"{text} {exc or ''}".strip())


def fail_abandoned(client: Client) -> int:
    """Fail the jobs of tasks whose process is gone or that expired in the broker. Return the number of checked jobs.

    Raises `StoreError`.
    """
    now = client.clock()
    due = RedisCommand(("ZRANGEBYSCORE", client.prefix + WATCHED, 0, repr(now), "LIMIT", 0, 100))
    jids = texts(client.perform(due))
    replies = client.call_many([("get", jid) for jid in jids]) if jids else []
    for jid, reply in zip(jids, replies, strict=True):
        with skipping_refusals(log, "task %s cannot be examined", jid):
            record = None if checked(reply) is None else read(reply, JobRecord)
            if record is None or not record.klass.startswith(KLASS) or record.state in ("complete", "failed"):
                _unwatch(client, jid)
            elif record.state == "running":
                is_redelivered = _since_put(record.history).get(BEGUN, {}).get("late")  # after two hours at the latest
                until = record.expires + (7200 if is_redelivered else GRACE_SECONDS)
                if until <= now:
                    fail_job(client, jid, f"celery-{CeleryLost.__name__}", LOST_MESSAGE)
                else:
                    watch(client, jid, until)
            elif record.state == "scheduled" and BEGUN not in _since_put(record.history):
                fail_job(client, jid, "celery-TaskRevokedError", "The task expired before a Celery worker was free.")
            else:
                watch(client, jid, now + 20 * SWEEP_SECONDS)
    return len(jids)


def _since_put(history: LuaList[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the history entries since the job was last put, by name."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in as_list(history):
        if entry.get("what") == "put":
            entries.clear()
        entries[str(entry.get("what"))] = entry
    return entries


def watch(client: Client, jid: str, at: float) -> None:
    client.perform(RedisCommand(("ZADD", client.prefix + WATCHED, repr(at), jid)))


def _unwatch(client: Client, jid: str) -> None:
    client.perform(RedisCommand(("ZREM", client.prefix + WATCHED, jid)))
