"""The price API, with a throttle."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from resty_django.limits.throttling import FixedWindowThrottle

PRICES = {"Tea": "3.20", "Coffee": "4.10", "Cocoa": "3.90"}


class PricesView(APIView):
    """Return the price of each item. DEFAULT_THROTTLE_RATES limits each client."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = (FixedWindowThrottle,)
    throttle_scope = "prices"

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        return Response(PRICES)
