"""Base class of the views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import JsonView
from resty_django.database import outside_transactions
from resty_django.database.history import add_entries, username
from resty_django.text import logger

from ..clients.client import Client
from ..clients.default import default_client
from ..models import Named
from .errors import exception_handler

log = logger("resty_django.qless")


class QlessView(JsonView):
    """A view that turns errors of the job queue into responses."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Return the view outside the request's transaction: an error must not roll back the history of operations."""
        return outside_transactions(super().as_view(**initkwargs))

    @property
    def jobs_client(self) -> Client:
        """Return the qless client of the settings."""
        return default_client()

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return exception_handler

    @staticmethod
    def log_operation(request: Request, row: Named, operation: str, *jids: str) -> None:
        """Record an operation on `row`, and on the jobs `jids`, in the log and in the admin's history.

        The request succeeds also if the database rejects the entry.
        """
        subjects = ", ".join(map(repr, (row.name, *jids)))
        log.info("%s, over HTTP by %s: %s %s", operation, username(request.user), row._meta.model_name, subjects)
        add_entries(request.user, [row], f"{operation}, over HTTP.")
