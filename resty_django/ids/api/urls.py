from __future__ import annotations

from django.urls import path, re_path, register_converter

from resty_django.api.converters import NameConverter
from resty_django.database import outside_transactions

from .views import CounterViewSet, IssueView, MonitorView, NoSuchAddress, PreviewView, RuleViewSet

app_name = "resty_ids_api"

register_converter(NameConverter, "resty_ids_name")

# A reservation is committed separately: a transaction around the request would only block it.
_issue = outside_transactions(IssueView.as_view())

urlpatterns = [
    path("rules/", RuleViewSet.as_view({"get": "list", "post": "create"}), name="rules"),
    path(
        "rules/<resty_ids_name:name>/",
        RuleViewSet.as_view({"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"}),
        name="rule",
    ),
    path("rules/<resty_ids_name:name>/ids/", _issue, name="issue"),
    path("rules/<resty_ids_name:name>/counters/", MonitorView.as_view(), name="monitor"),
    path("rules/<resty_ids_name:name>/preview/", PreviewView.as_view(), name="preview"),
    path("counters/", CounterViewSet.as_view({"get": "list"}), name="counters"),
    re_path(r"^.*$", NoSuchAddress.as_view()),
]
