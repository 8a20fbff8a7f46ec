"""Every parameter and field of the HTTP API with extreme values: the answer is never a 5xx, and always JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

import pytest
from django.test import Client as Browser
from drf_spectacular.generators import SchemaGenerator

from resty_django.qless import Client
from tests.integration.api.site import AUTHORIZATION, PATHS, known_names

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.redis]

TEXTS: Final = [
    "9" * 5000,
    "-" + "9" * 5000,
    "9" * 20,
    "-1",
    "1e400",
    "NaN",
    "Infinity",
    "٣",
    "0x10",
    "",
    "\x00",
    "\r\n",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff\xfe",
    "%",
    "a" * 3000,
    "0001-01-01",
    "9999-12-31",
]
VALUES: Final = [
    "9" * 4299,
    "-1",
    "1e400",
    "NaN",
    "null",
    "[]",
    "{}",
    '"\\ud800"',
    '"\\u0000"',
    "true",
    "0.5",
    '"a"',
    "1" + "0" * 30,
]
"""JSON of a field."""


@pytest.fixture
def browser(api_site: Client) -> Browser:
    return Browser(headers={"Authorization": AUTHORIZATION})


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = SchemaGenerator().get_schema(request=None, public=True)
    for path, methods in document["paths"].items():
        if path.startswith(PATHS):
            for method, operation in methods.items():
                yield path, method, {**operation, "components": document["components"]["schemas"]}


def addresses(path: str) -> list[str]:
    """Return the path with names that exist and names that do not."""
    if "{" not in path:
        return [path]
    before, _, after_brace = path.partition("{")
    after = after_brace.partition("}")[2]
    return [
        f"{before}{quote(quote(name, safe=''))}{after}"
        for name in [*known_names(path), "absent", "a\x00b", "%ff", "9" * 1000]
    ]


def fields(operation: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = content.get("schema", {}).get("$ref", "")
    return list(operation["components"].get(reference.rpartition("/")[2], {}).get("properties", {}))


def test_extreme_parameters_and_fields_are_not_server_errors(browser: Browser) -> None:
    requests, failures = 0, []
    for path, method, operation in operations():
        queries = [
            urlencode({parameter["name"]: text, **extra})
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query"
            for text in TEXTS
            for extra in ([{}] if parameter["name"] != "cursor" else [{}, {"tag": "vip"}])
        ]
        bodies = [f'{{"{field}": {value}}}' for field in fields(operation) for value in VALUES]
        bodies += ["", "[" * 5000, "nonsense", b"\xff", "9" * 5000] if "requestBody" in operation else []
        for number, address in enumerate(addresses(path)):
            for query in [*(queries if number == 0 else []), ""]:
                for body in [*(bodies if number == 0 else []), "{}"] if not query else ["{}"]:
                    reply = browser.generic(method.upper(), f"{address}?{query}", body, content_type="application/json")
                    requests += 1
                    if reply.status_code >= 500 or (reply.content and not is_json(reply.content)):
                        failures.append(
                            (method, address, query[:60], body[:60], reply.status_code, reply.content[:200])
                        )
    assert not failures, failures
    assert requests > 500


def is_json(content: bytes) -> bool:
    try:
        json.loads(content.decode())
    except ValueError:
        return False
    return True
