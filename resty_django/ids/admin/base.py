"""The base class of both admin classes: database selection, and issuing one ID."""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from resty_django.admin.base import Model, PageAdmin
from resty_django.admin.operations import OperationResult

from .. import service, store
from ..errors import IdError
from ..models import IdRule


class ServiceAdmin(PageAdmin[Model]):
    """A model admin that uses the database of the ID service (IDS["DATABASE"])."""

    refusals: ClassVar = (IdError,)

    class Media:
        css: ClassVar = {"all": ["resty_ids/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).using(store.database())


def issue_one(rule: IdRule, app: str, salt: str) -> OperationResult:
    """Issue an ID."""
    with transaction.atomic(using=store.database()) if rule.gapless else nullcontext():
        issued_id = service.next_id(rule.name, app=app, salt=salt)
    message = format_html('Issued <code class="resty-id">{}</code>', issued_id)
    return OperationResult(f"Issued {issued_id} for the application name “{app}”.", message)
