"""API views. The package docstring lists the endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from django.db.models import QuerySet
from rest_framework import mixins, viewsets
from rest_framework.exceptions import NotFound
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.endpoints import Endpoint, checked
from resty_django.api.versions import etag
from resty_django.api.views import JsonView
from resty_django.conf import conf

from .. import service
from ..errors import BadRequest, NeedsTransaction
from ..models import IdCounter, IdRule
from ..preview import preview
from ..store import database
from . import rules
from .errors import exception_handler
from .permissions import require_kind
from .serializers import (
    AppQuerySerializer,
    ConfirmQuerySerializer,
    CounterQuerySerializer,
    IdCounterSerializer,
    IdPositionSerializer,
    IdPreviewedSerializer,
    IdPreviewSerializer,
    IdRequestSerializer,
    IdRuleSerializer,
    IdsSerializer,
)

IF_MATCH = {"If-Match": "The `ETag` of the rule version to change. If absent, the change applies to any version."}


class Pages(PageNumberPagination):
    """`?page=` and `?page_size=`, at most 1000."""

    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000


class IdsView(JsonView):
    """A view that turns ID service errors into responses."""

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return exception_handler


class IssueView(IdsView):
    """Issue one or more IDs.

    Returns as many IDs as requested, or an error. A request repeated after a lost reply receives new IDs: numbers may
    have gaps, but never repeat.
    """

    permissions: ClassVar = {"POST": "resty_ids.issue_id"}

    @Endpoint(IdsSerializer, body=IdRequestSerializer)
    def post(self, request: Request, name: str, body: dict[str, Any]) -> Response:
        running = service.service()
        if running.rule(name).ready().spec.gapless:
            raise NeedsTransaction(
                f"Rule {name} is gapless. Ask for its numbers from Python, inside transaction.atomic()."
            )
        ids = running.next_many(name, body["count"], body["app"], body["salt"])
        return Response({"ids": ids, "count": len(ids)})


class MonitorView(IdsView):
    """Show the position of one counter."""

    permissions: ClassVar = {"GET": "resty_ids.view_idcounter"}

    @Endpoint(IdPositionSerializer, query=AppQuerySerializer)
    def get(self, request: Request, name: str, query: dict[str, Any]) -> Response:
        position = service.monitor(name, query.get("app", ""))
        return Response({"counter": position.counter, "node_offset": position.node_offset})


class PreviewView(IdsView):
    """Preview the next IDs of a rule without using any numbers.

    Returns the IDs of the next reservation, for the rule as saved or with the changes in `draft`.
    """

    permissions: ClassVar = {"POST": "resty_ids.view_idrule"}

    @Endpoint(IdPreviewedSerializer, body=IdPreviewSerializer)
    def post(self, request: Request, name: str, body: dict[str, Any]) -> Response:
        rule = rules.find(name)
        draft = rules.edited(rule, body.get("draft", {}))
        if "draft" in body:
            require_kind(request, draft.kind)
            rules.check(draft)
        stored = draft.counters.using(database()).select_related("rule")
        counter = stored.filter(app_name=body["app"], node_offset=conf.ids.offset).first()
        panel = preview(draft, counter=counter, app=body["app"], salt=body["salt"], count=body["count"])
        if panel.at_sample:
            raise BadRequest(panel.error)
        return Response({"ids": panel.ids, "error": panel.error, "warnings": panel.warnings, "notes": panel.notes})


class CounterViewSet(IdsView, viewsets.GenericViewSet[IdCounter]):
    """Counters."""

    permissions: ClassVar = {"GET": "resty_ids.view_idcounter"}
    serializer_class = IdCounterSerializer
    pagination_class = Pages
    filter_backends = ()
    queryset = IdCounter.objects.none()

    @Endpoint(query=CounterQuerySerializer)
    def list(self, request: Request, query: dict[str, Any]) -> Response:
        """List all counters of the database in order of creation."""
        names = {"rule": "rule__name", "app": "app_name"}
        counters = IdCounter.objects.using(database()).select_related("rule").order_by("pk")
        page = self.paginate_queryset(counters.filter(**{names[key]: value for key, value in query.items()}))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class RuleViewSet(IdsView, mixins.ListModelMixin, viewsets.GenericViewSet[IdRule]):
    """Rules."""

    permissions: ClassVar = {
        "GET": "resty_ids.view_idrule",
        "POST": "resty_ids.add_idrule",
        "PUT": "resty_ids.change_idrule",
        "PATCH": "resty_ids.change_idrule",
        "DELETE": "resty_ids.delete_idrule",
    }
    serializer_class = IdRuleSerializer
    pagination_class = Pages
    filter_backends = ()
    queryset = IdRule.objects.none()
    lookup_field = "name"

    def get_queryset(self) -> QuerySet[IdRule]:
        return IdRule.objects.using(database()).order_by("name")

    def list(self, request: Request) -> Response:
        """List all rules."""
        return super().list(request)

    def retrieve(self, request: Request, name: str) -> Response:
        """Show a rule."""
        return self._shown(rules.find(name))

    def create(self, request: Request) -> Response:
        """Create a rule."""
        fields = checked(self.get_serializer(data=request.data))
        fields.pop("confirm_risks")
        require_kind(request, fields.get("kind", IdRule.Kind.TEMPLATE))
        response = self._shown(rules.create(fields), status=201)
        response["Location"] = response.data["url"]
        return response

    @Endpoint(headers=IF_MATCH)
    def update(self, request: Request, name: str, *, partial: bool = False) -> Response:
        """Replace a rule."""
        rule = rules.find(name)
        fields = checked(self.get_serializer(rule, data=request.data, partial=partial))
        confirmed = fields.pop("confirm_risks", False)
        require_kind(request, rule.kind, fields.get("kind", rule.kind))
        return self._shown(rules.update(rule, fields, confirmed=confirmed, request=request))

    @Endpoint(headers=IF_MATCH)
    def partial_update(self, request: Request, name: str) -> Response:
        """Change fields of a rule."""
        return self.update(request, name, partial=True)

    @Endpoint(query=ConfirmQuerySerializer, headers=IF_MATCH)
    def destroy(self, request: Request, name: str, query: dict[str, Any]) -> Response:
        """Delete a rule and its counters."""
        rules.delete(rules.find(name), confirmed=query["confirm_risks"] == "true", request=request)
        return Response(status=204)

    def _shown(self, rule: IdRule, status: int = 200) -> Response:
        return Response(self.get_serializer(rule).data, status=status, headers={"ETag": etag(rule.version)})


class NoSuchAddress(IdsView):
    """Answer requests to unknown URLs: a 404 in the common error format."""

    schema = None  # type: ignore[assignment]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound("This URL does not exist. URLs end with a slash, and names in them are escaped twice.")

    def get(self, request: Request) -> NoReturn:
        raise NotFound
