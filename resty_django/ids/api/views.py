"""API views. openapi.py describes them; the package docstring lists the endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from django.db.models import QuerySet
from rest_framework import mixins, viewsets
from rest_framework.exceptions import NotFound
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.openapi import describe_all
from resty_django.api.versions import etag
from resty_django.api.views import JsonView, checked
from resty_django.conf import conf

from .. import service
from ..errors import BadRequest, NeedsTransaction
from ..models import IdCounter, IdRule
from ..preview import preview
from ..store import database
from . import openapi, rules
from .errors import exception_handler
from .permissions import require_kind
from .serializers import (
    AppQuerySerializer,
    CounterQuerySerializer,
    IdCounterSerializer,
    IdPreviewSerializer,
    IdRequestSerializer,
    IdRuleSerializer,
)


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
    """Issue IDs."""

    permissions: ClassVar = {"POST": "resty_ids.issue_id"}

    @openapi.issue
    def post(self, request: Request, name: str) -> Response:
        options = checked(IdRequestSerializer(data=request.data))
        running = service.service()
        if running.rule(name).ready().spec.gapless:
            raise NeedsTransaction(
                f"Rule {name} is gapless. Ask for its numbers from Python, inside transaction.atomic()."
            )
        ids = running.next_many(name, options["count"], options["app"], options["salt"])
        return Response({"ids": ids, "count": len(ids)})


class MonitorView(IdsView):
    """Show the position of one counter."""

    permissions: ClassVar = {"GET": "resty_ids.view_idcounter"}

    @openapi.monitor
    def get(self, request: Request, name: str) -> Response:
        query = checked(AppQuerySerializer(data=request.query_params))
        position = service.monitor(name, query.get("app", ""))
        return Response({"counter": position.counter, "node_offset": position.node_offset})


class PreviewView(IdsView):
    """Show the next IDs of a rule without issuing them."""

    permissions: ClassVar = {"POST": "resty_ids.view_idrule"}

    @openapi.preview
    def post(self, request: Request, name: str) -> Response:
        options = checked(IdPreviewSerializer(data=request.data))
        rule = rules.find(name)
        draft = rules.edited(rule, options.get("draft", {}))
        if "draft" in options:
            require_kind(request, draft.kind)
            rules.check(draft)
        stored = draft.counters.using(database()).select_related("rule")
        counter = stored.filter(app_name=options["app"], node_offset=conf.ids.offset).first()
        panel = preview(draft, counter=counter, app=options["app"], salt=options["salt"], count=options["count"])
        if panel.at_sample:
            raise BadRequest(panel.error)
        return Response({"ids": panel.ids, "error": panel.error, "warnings": panel.warnings, "notes": panel.notes})


@describe_all(list=openapi.counters)
class CounterViewSet(IdsView, mixins.ListModelMixin, viewsets.GenericViewSet[IdCounter]):
    """List all counters of the database in order of creation."""

    permissions: ClassVar = {"GET": "resty_ids.view_idcounter"}
    serializer_class = IdCounterSerializer
    pagination_class = Pages
    filter_backends = ()
    queryset = IdCounter.objects.none()

    def get_queryset(self) -> QuerySet[IdCounter]:
        query = checked(CounterQuerySerializer(data=self.request.query_params))
        counters = IdCounter.objects.using(database()).select_related("rule").order_by("pk")
        if "rule" in query:
            counters = counters.filter(rule__name=query["rule"])
        return counters.filter(app_name=query["app"]) if "app" in query else counters


@describe_all(**openapi.rules)
class RuleViewSet(IdsView, mixins.ListModelMixin, viewsets.GenericViewSet[IdRule]):
    """List, show, create, change and delete rules."""

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

    def retrieve(self, request: Request, name: str) -> Response:
        return self._shown(rules.find(name))

    def create(self, request: Request) -> Response:
        fields = checked(self.get_serializer(data=request.data))
        fields.pop("confirm_risks")
        require_kind(request, fields.get("kind", IdRule.Kind.TEMPLATE))
        response = self._shown(rules.create(fields), status=201)
        response["Location"] = response.data["url"]
        return response

    def update(self, request: Request, name: str, *, partial: bool = False) -> Response:
        rule = rules.find(name)
        fields = checked(self.get_serializer(rule, data=request.data, partial=partial))
        confirmed = fields.pop("confirm_risks", False)
        require_kind(request, rule.kind, fields.get("kind", rule.kind))
        return self._shown(rules.update(rule, fields, confirmed=confirmed, request=request))

    def partial_update(self, request: Request, name: str) -> Response:
        return self.update(request, name, partial=True)

    def destroy(self, request: Request, name: str) -> Response:
        confirmed = request.query_params.get("confirm_risks") == "true"
        rules.delete(rules.find(name), confirmed=confirmed, request=request)
        return Response(status=204)

    def _shown(self, rule: IdRule, status: int = 200) -> Response:
        return Response(self.get_serializer(rule).data, status=status, headers={"ETag": etag(rule.version)})


@openapi.hidden
class NoSuchAddress(IdsView):
    """Answer requests to unknown URLs: a 404 in the common error format."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound("This URL does not exist. URLs end with a slash, and names in them are escaped twice.")

    def get(self, request: Request) -> NoReturn:
        raise NotFound
