"""One format for all errors: `{"code": "a_stable_word", "message": "A sentence.", "details": {...}}`.

Programs can rely on `code`. For the request itself it is parse_error, bad_request, not_authenticated,
authentication_failed, permission_denied, not_found, method_not_allowed, not_acceptable, unsupported_media_type,
body_too_large, rate_limited or conflict. `details` holds, for bad_request, `fields`: messages by field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler as rest_exception_handler
from rest_framework.views import set_rollback


class Conflict(exceptions.APIException):
    status_code = 409
    default_detail = "The data was changed at the same time. Read it again, and repeat the request."
    default_code = "conflict"


def error_body(code: str, message: str, details: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the body of an error response."""
    body: dict[str, object] = {"code": code, "message": sendable(message)}
    if details:
        body["details"] = sendable(dict(details))
    return body


def error_response(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, object] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an error response; roll back the request's transaction."""
    set_rollback()
    return Response(error_body(code, message, details), status=status, headers=headers)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response for an exception of the request; None for a programming error."""
    response = rest_exception_handler(error, context)
    if response is None or not isinstance(error, exceptions.APIException):
        return _renamed(response)
    detail = error.detail
    if isinstance(error, exceptions.ValidationError):
        fields = detail if isinstance(detail, dict) else {"non_field_errors": detail}
        message = f"The request is invalid: {first_message(fields)}"
        response.data = error_body("bad_request", message, {"fields": fields})
    else:
        code = error.get_codes()
        word = code if isinstance(code, str) else error.default_code
        word = {"throttled": "rate_limited", "invalid": "bad_request"}.get(word, word)
        response.data = error_body(word, str(detail))
    return response


def _renamed(response: Response | None) -> Response | None:
    """Convert Django's own 404 and 403 to the common format."""
    if response is not None:
        code = "not_found" if response.status_code == 404 else "permission_denied"
        response.data = error_body(code, str((response.data or {}).get("detail", "")))
    return response


def first_message(fields: object) -> str:
    """Return the first message of a tree of messages, with its path."""
    if isinstance(fields, Mapping):
        for name, inner in fields.items():
            text = first_message(inner)
            return text if name in ("non_field_errors", "__all__") else f"{name}: {text}"
    if isinstance(fields, list | tuple):
        return first_message(fields[0]) if fields else ""
    return str(fields)


def sendable(value: object) -> object:
    """Return the value prepared for JSON: lone surrogates become question marks, NaN and infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {sendable(key): sendable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(inner) for inner in value]
    return value
