"""Error responses of the job queue, in the format of `resty_django.api.errors`.

Additional codes: no_such_job, dependency, not_possible, unreadable, refused and unavailable.
"""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response

from resty_django.api.errors import error_response
from resty_django.api.errors import exception_handler as any_exception_handler
from resty_django.extras import MissingExtra
from resty_django.redis.errors import StoreDown, StoreError

from ..errors import DependencyError, InvalidArgument, NoSuchJob, QlessError, UnreadableReply


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response to an exception from a view; None for a programming error."""
    if isinstance(error, StoreDown):
        # Its message may name hosts.
        headers = {"Retry-After": "1"}
        return error_response(503, "unavailable", "The job queue did not answer. Try again shortly.", headers=headers)
    if isinstance(error, StoreError):
        return error_response(502, "refused", "The server of the job queue refused the call.")
    if isinstance(error, MissingExtra):
        return error_response(503, "unavailable", str(error))
    for kind, status, code in (
        (NoSuchJob, 404, "no_such_job"),
        (DependencyError, 409, "dependency"),
        (InvalidArgument, 400, "bad_request"),
        (UnreadableReply, 502, "unreadable"),
        (QlessError, 409, "not_possible"),
    ):
        if isinstance(error, kind):
            return error_response(status, code, str(error))
    return any_exception_handler(error, context)
