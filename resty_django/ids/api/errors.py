"""ID service errors as responses in the common format, see `resty_django.api.errors`.

Adds these codes: those in `resty_django.ids.errors`, and risks_unconfirmed. Depending on the error, `details` contains
`fields` (messages by field), `position` (index of the first wrong character of a rule's source), `risks` (sentences to
confirm) or `until` (epoch seconds when an exhausted counter starts again).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from django.db import Error as DatabaseError
from django.db import IntegrityError, connections
from rest_framework.response import Response

from resty_django.api.errors import Conflict, error_response, first_message
from resty_django.api.errors import exception_handler as any_exception_handler

from .. import service
from ..errors import BadRule, Exhausted, IdError, TooFast, Unavailable, UnknownRule
from ..service.reasons import reason_of
from ..store import database


class RuleInvalid(Exception):
    """A rule cannot be saved. Has messages by field, and the position of the first mistake in the source."""

    def __init__(self, fields: Mapping[str, list[str]], position: int | None = None) -> None:
        super().__init__("The rule is not valid.")
        self.fields = dict(fields)
        self.position = position


class RisksUnconfirmed(Exception):
    """A change could cause earlier IDs to be issued again, and was not confirmed."""

    def __init__(self, risks: list[str]) -> None:
        super().__init__("The change is risky.")
        self.risks = risks


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response to an exception of a view, or None for an unexpected exception."""
    if isinstance(error, Unavailable):
        return _id_error(service.service().explained(error))
    if isinstance(error, IdError):
        return _id_error(error)
    if isinstance(error, RuleInvalid):
        details: dict[str, object] = {"fields": error.fields}
        if error.position is not None:
            details["position"] = error.position
        return error_response(400, "bad_rule", f"The rule is not valid: {first_message(error.fields)}", details)
    if isinstance(error, RisksUnconfirmed):
        message = (
            "Earlier IDs could be issued again. To make the change anyway, repeat the request with confirm_risks true."
        )
        return error_response(409, "risks_unconfirmed", message, {"risks": error.risks})
    if isinstance(error, IntegrityError):
        error = Conflict()
    elif isinstance(error, DatabaseError):
        reason = reason_of(error, connections[database()].vendor)
        return _id_error(
            Unavailable(reason or "The database did not answer. Try again shortly.", explained=bool(reason))
        )
    return any_exception_handler(error, context)


def _id_error(error: IdError) -> Response:
    details: dict[str, object] = {}
    headers = {"Retry-After": "1"} if isinstance(error, TooFast | Unavailable) else {}
    message = str(error)
    if isinstance(error, Exhausted) and error.until is not None:
        details["until"] = error.until
        headers["Retry-After"] = str(max(1, math.ceil(error.until - time.time())))
    elif isinstance(error, Unavailable) and not error.explained:
        # The message may quote the database driver, which names hosts and users.
        message = "No reserved numbers are left and the database did not answer in time. Try again shortly."
    elif isinstance(error, UnknownRule):
        message = error.message
    elif isinstance(error, BadRule) and error.position is not None:
        details["position"] = error.position
    return error_response(error.http_status, error.code, message, details, headers)
