"""The URLs of the page and the API with the usage of quotas: include them in the site's URLs.

The API is missing without Django REST framework.
"""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import URLPattern, path

from .usage import usage_page

app_name = "resty_quotas"

urlpatterns: list[URLPattern] = [path("", usage_page, name="usage")]

if find_spec("rest_framework") is not None:
    from .api import UsageView

    urlpatterns.append(path("api/", UsageView.as_view(), name="usage-api"))
