"""The errors of the job queue in the shape of all errors, which `resty_django.api.errors` tells.

Besides the codes there: no_such_job, dependency, not_possible, unreadable, refused and unavailable.
"""

from __future__ import annotations

from typing import Any, Final

from rest_framework.response import Response

from resty_django.api.errors import error_response
from resty_django.api.errors import exception_handler as any_exception_handler
from resty_django.redis import StoreDown, StoreError

from ..errors import DependencyError, InvalidArgument, NoSuchJob, QlessError, UnreadableReply

RETRY_SECONDS: Final = 1
ANSWERS: Final = (
    (NoSuchJob, 404, "no_such_job"),
    (DependencyError, 409, "dependency"),
    (InvalidArgument, 400, "bad_request"),
    (UnreadableReply, 502, "unreadable"),
    (QlessError, 409, "not_possible"),
)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """The response to an exception of a view; None for one that is a fault of the program."""
    if isinstance(error, StoreDown):
        # Its sentence may name hosts.
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return error_response(503, "unavailable", "The job queue did not answer; try again shortly.", headers=headers)
    if isinstance(error, StoreError):
        return error_response(502, "refused", "The server of the job queue refused the call.")
    for kind, status, code in ANSWERS:
        if isinstance(error, kind):
            return error_response(status, code, str(error))
    return any_exception_handler(error, context)
