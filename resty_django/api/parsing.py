"""Request bodies: strict JSON in UTF-8, of a bounded size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

MAX_BODY_BYTES = 256 * 1024
"""Maximum size of a request body; the longest rule is a quarter of that."""


class BodyTooLarge(APIException):
    status_code = 413
    default_detail = f"The body has more than {MAX_BODY_BYTES} bytes."
    default_code = "body_too_large"


class StrictJSONParser(JSONParser):
    """JSONParser that rejects deep nesting, other encodings and bodies above `MAX_BODY_BYTES` as request errors."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        body = stream.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge
        try:
            document = json.loads(body.decode(), parse_constant=_no_constant)
        except UnicodeDecodeError as error:
            raise ParseError(f"The body is not UTF-8 (byte {error.start}).") from error
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from error
        if not isinstance(document, dict):
            kinds = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
            raise ParseError(f"The body is a JSON {kinds.get(type(document), 'null')}; it must be an object.")
        return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
