"""Workers of the job queue: `manage.py runqless`. See docs/reference/jobs/runqless.md.

Jobs and their modules import:

    from resty_django.qless.worker import JobTimeout, LostLock, ProcessDied, RequeueLater, RetryLater, job_failed
    from resty_django.qless.worker.middleware import Retry, Timeout
"""

from __future__ import annotations

from ..errors import LostLock
from ..outcomes import JobTimeout, Outcome, ProcessDied, RequeueLater, RetryLater, Stopping
from ..signals import job_failed

__all__ = ["JobTimeout", "LostLock", "Outcome", "ProcessDied", "RequeueLater", "RetryLater", "Stopping", "job_failed"]
