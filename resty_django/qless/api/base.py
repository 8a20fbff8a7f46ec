"""What the views share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import Error as DatabaseError
from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import JsonView
from resty_django.health import described

from ..clients import Client
from ..default import default_client
from ..history import note
from ..models import Named
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
    def done(request: Request, row: Named, what: str, *jids: str) -> None:
        """Note who did what to `row`, and so to the jobs `jids`: in the log, and in the history of the admin.

        What was done to jobs stays done, so a database that does not answer now makes no error of the request.
        """
        about = ", ".join(map(repr, (row.name, *jids)))
        log.info("%s, over HTTP by %s: %s %s", what, _name(request.user), row._meta.model_name, about)
        try:
            note(request.user, [row], f"{what}, over HTTP.")
        except DatabaseError as error:
            log.error("%s, over HTTP: the history has no entry of it: %s", what, described(error))


def _name(user: Any) -> str:
    """Of any user that the site's authentication gives, or of none."""
    named = getattr(user, "get_username", None)
    return str((named() if callable(named) else user) or "somebody unknown")
