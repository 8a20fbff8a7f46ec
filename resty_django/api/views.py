"""Base class of all JSON views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from .errors import exception_handler
from .openapi import view_schema
from .parsing import StrictJSONParser
from .permissions import HasViewPermission


class JsonView(APIView):
    """View with JSON requests and responses, one error format, and a permission for each method."""

    parser_classes = (StrictJSONParser,)
    renderer_classes = (JSONRenderer,)
    permission_classes = (HasViewPermission,)
    metadata_class = None
    schema = view_schema()
    permissions: ClassVar[dict[str, str]] = {}

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return exception_handler
