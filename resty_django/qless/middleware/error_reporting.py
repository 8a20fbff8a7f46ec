"""Reports of exceptions of jobs to error trackers."""

from __future__ import annotations

from collections.abc import Callable, Generator

from resty_django.text import logger

from ..outcomes import Outcome
from .job import WorkerJob

log = logger("resty_django.qless.worker")


class ReportErrors:
    """Calls `report(error, facts)` for each exception that a job raises, and lets the exception pass.

    `facts`: a dict of the job's `jid`, `klass`, `queue`, `worker`, `tags`, `retries_left` and `txid`. If `report`
    raises an exception, it is logged. List this outside `Retry` to report only failures, inside it to report each
    exception.
    """

    def __init__(self, report: Callable[[BaseException, dict[str, object]], object]) -> None:
        self.report = report

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        try:
            yield
        except Outcome:
            raise
        except Exception as error:
            facts: dict[str, object] = {"queue": job.queue_name, "worker": job.worker_name}
            facts |= {name: getattr(job, name) for name in ("jid", "klass", "tags", "retries_left", "txid")}
            try:
                self.report(error, facts)
            except Exception:
                log.exception("the exception of job %s could not be reported", job.jid)
            raise
