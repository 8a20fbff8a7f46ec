"""Base class of all JSON views, and the overview as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from resty_django import overview
from resty_django.overview import Answer, Figure

from . import openapi
from .errors import exception_handler, sendable
from .parsing import StrictJSONParser
from .permissions import HasViewPermission


class JsonView(APIView):
    """View with JSON requests and responses, one error format, and a permission for each method."""

    parser_classes = (StrictJSONParser,)
    renderer_classes = (JSONRenderer,)
    permission_classes = (HasViewPermission,)
    metadata_class = None
    permissions: ClassVar[dict[str, str]] = {}

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return exception_handler


def checked(serializer: BaseSerializer[Any]) -> dict[str, Any]:
    """Return the validated data of a serializer. Raise `ValidationError`."""
    serializer.is_valid(raise_exception=True)
    validated: dict[str, Any] = serializer.validated_data
    return validated


class OverviewView(JsonView):
    """Show the figures of all panels that the user may see, as in the admin's overview."""

    permissions: ClassVar = {"GET": "resty_django.view_overview"}

    @openapi.overview
    def get(self, request: Request) -> Response:
        answers = overview.answers(overview.panels(request.user))
        return Response({"panels": [sendable(_panel(answer)) for answer in answers]})


def _panel(answer: Answer) -> dict[str, Any]:
    tile = answer.tile or overview.Tile()
    return {
        "name": answer.panel.name,
        "title": str(answer.panel.title),
        "error": answer.error,
        "figures": [_figure(figure) for figure in tile.figures],
        "rows": [
            {"subject": row.subject, "error": row.error, "figures": [_figure(figure) for figure in row.figures]}
            for row in tile.rows
        ],
        "more": tile.more,
        "bars": list(tile.bars),
        "notes": [str(note) for note in tile.notes],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "label": str(figure.label),
        "value": figure.value,
        "unit": figure.unit,
        "level": figure.level,
        "note": str(figure.note),
    }
