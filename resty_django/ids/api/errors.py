"""One shape for all errors: `{"code": "a_stable_word", "message": "A sentence.", "details": {...}}`.

`code` is what programs may rely on: the words of `resty_django.ids.errors`, and for the request itself parse_error,
bad_request, not_authenticated, authentication_failed, permission_denied, not_found, method_not_allowed,
not_acceptable, unsupported_media_type, body_too_large, rate_limited, conflict and risks_unconfirmed. `details` holds,
where there is something to hold, `fields` (messages by field), `position` (index of the first wrong character of a
rule's source), `risks` (sentences to confirm) or `until` (epoch seconds when an exhausted counter starts again).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from django.db import Error as DatabaseError
from django.db import IntegrityError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler as rest_exception_handler
from rest_framework.views import set_rollback

from ..errors import BadRule, Exhausted, IdError, TooFast, Unavailable

RETRY_SECONDS = 1
"""What Retry-After says where nothing better is known."""

CODES = {"throttled": "rate_limited", "invalid": "bad_request"}


class RuleInvalid(Exception):
    """A rule that may not be saved: messages by field, and where in the source the first mistake is."""

    def __init__(self, fields: Mapping[str, list[str]], position: int | None = None) -> None:
        super().__init__("the rule is not valid")
        self.fields = dict(fields)
        self.position = position


class RisksUnconfirmed(Exception):
    """A change that could make IDs of the past come again, and was not confirmed."""

    def __init__(self, risks: list[str]) -> None:
        super().__init__("the change is risky")
        self.risks = risks


class Conflict(exceptions.APIException):
    status_code = 409
    default_detail = "Something else changed at the same time; look again, and repeat."
    default_code = "conflict"


def error_body(code: str, message: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The body of an error response."""
    body: dict[str, Any] = {"code": code, "message": _clean(message)}
    if details:
        body["details"] = _clean(dict(details))
    return body


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """The response to an exception of a view; None for one that is a fault of the program."""
    if isinstance(error, IdError):
        return _id_error(error)
    if isinstance(error, RuleInvalid):
        details: dict[str, Any] = {"fields": error.fields}
        if error.position is not None:
            details["position"] = error.position
        return _response(400, "bad_rule", f"The rule is not valid: {_first(error.fields)}", details)
    if isinstance(error, RisksUnconfirmed):
        message = "IDs of the past could come again; send it once more with confirm_risks true if that is wanted."
        return _response(409, "risks_unconfirmed", message, {"risks": error.risks})
    if isinstance(error, IntegrityError):
        error = Conflict()
    elif isinstance(error, DatabaseError):
        return _id_error(Unavailable("the database did not answer"))
    response = rest_exception_handler(error, context)
    if response is None or not isinstance(error, exceptions.APIException):
        return _renamed(response)
    detail = error.detail
    if isinstance(error, exceptions.ValidationError):
        fields = detail if isinstance(detail, dict) else {"non_field_errors": detail}
        response.data = error_body("bad_request", f"The request is not valid: {_first(fields)}", {"fields": fields})
    else:
        code = error.get_codes()
        word = code if isinstance(code, str) else error.default_code
        response.data = error_body(CODES.get(word, word), str(detail))
    return response


def _renamed(response: Response | None) -> Response | None:
    """Django's own 404 and 403 in our shape."""
    if response is not None:
        code = "not_found" if response.status_code == 404 else "permission_denied"
        response.data = error_body(code, str((response.data or {}).get("detail", "")))
    return response


def _id_error(error: IdError) -> Response:
    details: dict[str, Any] = {}
    headers = {}
    message = str(error)
    if isinstance(error, Exhausted) and error.until is not None:
        details["until"] = error.until
        headers["Retry-After"] = str(max(RETRY_SECONDS, math.ceil(error.until - time.time())))
    elif isinstance(error, TooFast):
        headers["Retry-After"] = str(RETRY_SECONDS)
    elif isinstance(error, Unavailable):
        # The sentence may quote the database's driver, which names hosts and users.
        message = "No number is reserved and the database did not answer in time; try again shortly."
        headers["Retry-After"] = str(RETRY_SECONDS)
    elif isinstance(error, BadRule) and error.position is not None:
        details["position"] = error.position
    return _response(error.http_status, error.code, message, details, headers)


def _response(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    set_rollback()
    return Response(error_body(code, message, details), status=status, headers=headers)


def _first(fields: Any) -> str:
    """The first message of a tree of them, with the way to it."""
    if isinstance(fields, Mapping):
        for name, inner in fields.items():
            text = _first(inner)
            return text if name in ("non_field_errors", "__all__") else f"{name}: {text}"
    if isinstance(fields, list | tuple):
        return _first(fields[0]) if fields else ""
    return str(fields)


def _clean(value: Any) -> Any:
    """The value with its texts made sendable: a lone surrogate, as a client may quote to us, has no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value
