"""What the JSON interfaces of all apps share, and the overview: `path("api/", include("resty_django.api.urls"))`.

| address | does | permission |
|---|---|---|
| `GET overview/` | the figures of all parts that the user may see | `resty_django.view_overview` |

Needs Django REST framework, from the extra `api`.
"""
