"""The base class of both admin classes: database selection, and issuing one ID."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from resty_django.admin.base import Model, PageAdmin

from .. import service, store
from ..errors import IdError


class ServiceAdmin(PageAdmin[Model]):
    """A model admin that uses the database of the ID service (IDS["DATABASE"])."""

    refusals: ClassVar = (IdError,)

    class Media:
        css: ClassVar = {"all": ["resty_ids/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).using(store.database())

    def issue_one(self, request: HttpRequest, obj: Any, rule: Any, app: str, salt: str) -> str:
        """Issue an ID and add a log entry for `obj`. If logging fails, the number of a gapless rule is rolled back."""

        def issue() -> str:
            issued_id = service.next_id(rule.name, app=app, salt=salt)
            self.log_change(request, obj, f"Issued {issued_id} for the application name “{app}”.")
            return issued_id

        if rule.gapless:
            with transaction.atomic(using=store.database()):
                issued_id = issue()
        else:
            issued_id = issue()
        return format_html('Issued <code class="resty-id">{}</code>', issued_id)
