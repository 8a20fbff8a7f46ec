"""The description of the overview for OpenAPI."""

from __future__ import annotations

from .describing import REQUEST_ERRORS, describe, responses
from .serializers import ErrorSerializer, OverviewSerializer

overview = describe(
    operation_id="overview",
    summary="The figures of all parts",
    description="As the overview in the admin has them. A part that cannot tell its figures has an `error`.",
    responses=responses({200: OverviewSerializer}, REQUEST_ERRORS, ErrorSerializer),
    tags=["overview"],
)
