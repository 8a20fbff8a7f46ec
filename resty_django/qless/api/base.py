"""What the views share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import JsonView

from ..clients import Client
from ..default import default_client
from .errors import exception_handler

log = logging.getLogger("resty_django.qless")

VIEW = "resty_qless.view_job"
PAUSE = "resty_qless.pause_queue"
CANCEL = "resty_qless.cancel_job"
RETRY = "resty_qless.retry_job"


class QlessView(JsonView):
    """A view whose errors may be those of the job queue."""

    @property
    def jobs_client(self) -> Client:
        """The client of the settings."""
        return default_client()

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return exception_handler

    @staticmethod
    def done(request: Request, what: str, *about: str) -> None:
        """Note in the log who did what."""
        log.info("%s over HTTP by %s: %s", what, request.user.get_username(), ", ".join(map(repr, about)))
