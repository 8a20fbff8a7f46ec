"""Exceptions of jobs are told to whoever collects them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

from ..outcomes import Outcome

log = logging.getLogger("resty_django.qless.worker")


class Report:
    """Calls `tell(error, facts)` for each exception that a job raises, and lets it pass.

    `facts`: `jid`, `klass`, `queue`, `worker`, `tags`, `retries_left` and `txid` of the job. What `tell` raises is
    logged. It stands outside of `Retry` to hear only of what fails, inside of it to hear of each exception.
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


__all__ = ["Report"]
