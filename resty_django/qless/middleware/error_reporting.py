"""Reports of job exceptions to error trackers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from resty_django.text import logger

from ..outcomes import Outcome

log = logger("resty_django.qless.worker")


class Report:
    """Calls `tell(error, facts)` for each exception that a job raises, and lets the exception pass.

    `facts`: a dict of the job's `jid`, `klass`, `queue`, `worker`, `tags`, `retries_left` and `txid`. Errors of `tell`
    are logged. List it outside `Retry` to report only failures, inside it to report each exception.
    """

    def __init__(self, tell: Callable[[BaseException, dict[str, Any]], object]) -> None:
        self.tell = tell

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        except Outcome:
            raise
        except Exception as error:
            facts = {
                **{"jid": job.jid, "klass": job.klass, "queue": job.queue_name, "worker": job.worker_name},
                **{"tags": job.tags, "retries_left": job.retries_left, "txid": job.txid},
            }
            try:
                self.tell(error, facts)
            except Exception:
                log.exception("the exception of job %s could not be reported", job.jid)
            raise
