"""The limits and jobs of docs/coming-from/ do after the port what they did before it.

The `check_` functions also hold for the projects before the port: tests/wheel/test_coming_from.py installs the other
packages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.ported_site import PortedSite, ported_site

VISITS = """
import json
from django.test import Client

client = Client(SERVER_NAME="127.0.0.1")


def statuses(count, path, **headers):
    return [client.get(path, headers=headers).status_code for _ in range(count)]


"""


def answers(site: PortedSite, code: str) -> Any:
    output, _ = site.visit(VISITS + code)
    return json.loads(output.splitlines()[-1])


RATELIMIT = """
print(json.dumps({
    "search": statuses(4, "/search/"),
    "join": [client.post("/join/", {"email": "a@example.com"}).content.decode() for _ in range(3)],
    "other": client.post("/join/", {"email": "b@example.com"}).content.decode(),
    "form": client.get("/join/").content.decode(),
    "export": statuses(4, "/export/"),
    "partner": statuses(4, "/export/", x_partner="yes"),
}))
"""


def check_django_ratelimit(site: PortedSite) -> None:
    assert answers(site, RATELIMIT) == {
        "search": [200, 200, 429, 429],
        "join": ["welcome", "welcome", "captcha"],
        "other": "welcome",
        "form": "welcome",
        "export": [200, 200, 200, 429],
        "partner": [200, 200, 200, 200],
    }


def test_django_ratelimit(tmp_path: Path) -> None:
    with ported_site(tmp_path, "docs/coming-from/django-ratelimit.md", "after") as site:
        check_django_ratelimit(site)
