"""The HTTP API of the ID service, for Django REST framework: `path("api/ids/", include("resty_django.ids.api.urls"))`.

| endpoint | purpose | permission |
|---|---|---|
| `POST rules/<name>/ids/` | issue one or more IDs | `resty_ids.issue_id` |
| `GET rules/<name>/counters/?app=` | the position of one counter | `resty_ids.view_idcounter` |
| `GET counters/?rule=&app=` | all counters, paginated | `resty_ids.view_idcounter` |
| `GET rules/`, `GET rules/<name>/` | rules | `resty_ids.view_idrule` |
| `POST rules/` | create a rule | `resty_ids.add_idrule` |
| `PUT`, `PATCH rules/<name>/` | change a rule | `resty_ids.change_idrule` |
| `DELETE rules/<name>/` | delete a rule | `resty_ids.delete_idrule` |
| `POST rules/<name>/preview/` | show the next IDs without using any numbers | `resty_ids.view_idrule` |

To create or change a Lua or Python rule, or to preview one as a draft, a user also needs `change_lua_rule` or
`change_python_rule`. Every endpoint requires an authenticated user, whatever the site's default permissions are. The
site configures authentication and throttling (`DEFAULT_AUTHENTICATION_CLASSES`, `DEFAULT_THROTTLE_CLASSES`).

A rule name in a URL is escaped twice: `quote(quote(name, safe=""), safe="")` in Python. Names of letters, digits, `-`,
`_` and `~` stay unchanged. The double escape allows slashes, question marks and all other characters of a name. It is
unambiguous because a name cannot contain a percent sign. The field `url` of a rule has its escaped URL.
"""

from __future__ import annotations

from resty_django import extras

extras.require("The HTTP interfaces need", "rest_framework")
