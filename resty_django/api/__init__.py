"""Shared parts of all JSON APIs, and the overview API: `path("api/", include("resty_django.api.urls"))`.

| URL | description | permission |
|---|---|---|
| `GET overview/` | figures of all components that the user may see | `resty_django.view_overview` |

Needs Django REST framework, from the extra `api`.
"""

from __future__ import annotations

from resty_django import extras

extras.require("The HTTP interfaces need", "rest_framework")
