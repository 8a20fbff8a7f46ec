"""Workers of the job queue: `manage.py runqless`. docs/qless/worker.md tells of them.

Jobs and their modules need this of it:

    from resty_django.qless.worker import JobTimeout, LostLock, RequeueLater, RetryLater, job_failed
    from resty_django.qless.worker.middleware import Retry, Timeout
"""

from __future__ import annotations

from ..errors import LostLock
from .outcomes import JobTimeout, Outcome, RequeueLater, RetryLater, Stopping
from .signals import job_failed

__all__ = ["JobTimeout", "LostLock", "Outcome", "RequeueLater", "RetryLater", "Stopping", "job_failed"]
