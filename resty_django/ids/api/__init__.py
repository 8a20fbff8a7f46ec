"""The HTTP API of the ID service, for Django REST framework: `path("api/ids/", include("resty_django.ids.api.urls"))`.

| address | does | permission |
|---|---|---|
| `POST rules/<name>/ids/` | gives out one or many IDs | `resty_ids.issue_id` |
| `GET rules/<name>/counters/?app=` | where one counter stands | `resty_ids.view_idcounter` |
| `GET counters/?rule=&app=` | all counters, page by page | `resty_ids.view_idcounter` |
| `GET rules/`, `GET rules/<name>/` | rules | `resty_ids.view_idrule` |
| `POST rules/` | makes a rule | `resty_ids.add_idrule` |
| `PUT`, `PATCH rules/<name>/` | changes a rule | `resty_ids.change_idrule` |
| `DELETE rules/<name>/` | deletes a rule | `resty_ids.delete_idrule` |
| `POST rules/<name>/preview/` | shows the next IDs, consumes nothing | `resty_ids.view_idrule` |

Lua and Python rules need `change_lua_rule` or `change_python_rule` as well to be made or changed, or tried out as a
draft. Every address needs an authenticated user, whatever the site's default permissions are; how users authenticate
and how often they may ask is the site's (`DEFAULT_AUTHENTICATION_CLASSES`, `DEFAULT_THROTTLE_CLASSES`).

A name in an address is escaped twice: `quote(quote(name, safe=""), safe="")` in Python. For names of letters,
digits, `-`, `_` and `~` that changes nothing; it lets a name hold slashes, question marks and whatever else names may
hold, and the per cent sign, which they may not, tells the two apart. The `url` of a rule is ready made.
"""

from __future__ import annotations

from resty_django import extras

extras.require("The HTTP interfaces need", "rest_framework")
