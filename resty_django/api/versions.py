"""Object versions over HTTP: responses have an `ETag`, changes may name the expected version with `If-Match`.

A change without `If-Match` applies to any version.
"""

from __future__ import annotations

import re

from rest_framework.exceptions import APIException
from rest_framework.request import Request


class PreconditionFailed(APIException):
    """The object's version is not the one in `If-Match`."""

    status_code = 412
    default_detail = "The object has changed since you read it. Read it again, and repeat the change."
    default_code = "precondition_failed"


def etag(version: int) -> str:
    """Return the value of the header `ETag`."""
    return f'"{version}"'


def check_version(request: Request, version: int) -> None:
    """Raise `PreconditionFailed` unless `If-Match` names this version, is `*`, or is missing."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return
    tags = [re.fullmatch(r'\s*(W/)?"([^"]*)"\s*', entity_tag) for entity_tag in header.split(",")]
    if not any(tag is not None and not tag[1] and tag[2] == str(version) for tag in tags):
        raise PreconditionFailed(
            f"The object now has version {version}, which does not match If-Match. Read it again, and repeat."
        )
