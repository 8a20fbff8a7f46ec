"""The projects of docs/coming-from/ do after the port what they did before it.

The `check_` functions also hold for the projects before the port, with a Python that has the other package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_reader import Page, page
from tests.ported_site import PortedSite, ported_site
from tests.servers import Server, free_port, one

PAGES = [page(f"docs/coming-from/{name}.md") for name in ("django-redis", "request-ids")]
DJANGO_REDIS = "docs/coming-from/django-redis.md"
REQUEST_IDS = "docs/coming-from/request-ids.md"
ORDERS = """
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from django.test import Client

received = []


class Stock(BaseHTTPRequestHandler):
    def do_GET(self):
        received.append(self.headers["X-Request-ID"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args): ...


from shop import views
stock = HTTPServer(("127.0.0.1", int(views.STOCK.rpartition(":")[2].strip("/"))), Stock)
threading.Thread(target=stock.serve_forever, daemon=True).start()
client = Client(SERVER_NAME="127.0.0.1")
answers = [client.get(f"/orders/{number}/") for number in (7, 8)]
print(json.dumps([received, [[answer.headers["X-Request-ID"], answer.json()["request"]] for answer in answers]]))
"""

PRODUCTS = """
import json
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from shop.models import Product

client = Client(SERVER_NAME="127.0.0.1")


def ask(path):
    with CaptureQueriesContext(connection) as queries:
        return [client.get(path).json(), len(queries)]


answers = [ask("/products/"), ask("/products/")]
assam = Product.objects.create(name="Assam")
answers += [ask("/products/"), ask("/products/")]
assam.name = "Ceylon"
assam.save()
answers += [ask("/products/"), ask("/reports/monday/"), ask("/reports/monday/"), ask("/forget/"), ask("/forget/")]
print(json.dumps(answers))
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with one() as server:
        yield server


def check_django_redis(site: PortedSite) -> None:
    output, _ = site.visit(PRODUCTS)
    report = {"report": "Report of monday", "seconds": 600}
    assert json.loads(output) == [
        *([{"products": []}, 1], [{"products": []}, 0]),
        *([{"products": ["Assam"]}, 1], [{"products": ["Assam"]}, 0]),
        *([{"products": ["Ceylon"]}, 1], [report, 0], [report, 0]),
        *([{"deleted": 1}, 0], [{"deleted": 0}, 0]),
    ]


def test_django_redis_and_cacheops(server: Server, tmp_path: Path) -> None:
    with ported_site(tmp_path, DJANGO_REDIS, "after", {"127.0.0.1:6379": f"127.0.0.1:{server.port}"}) as site:
        check_django_redis(site)


def check_request_ids(site: PortedSite) -> None:
    output, log = site.visit(ORDERS)
    received, shown = json.loads(output)
    first, second = received
    assert first != second
    assert shown == [[first, first], [second, second]]
    assert [line for line in log.splitlines() if " order " in line] == [f"{first} order 7", f"{second} order 8"]


def test_request_ids(tmp_path: Path) -> None:
    with ported_site(tmp_path, REQUEST_IDS, "after", {"8001": str(free_port())}) as site:
        check_request_ids(site)


@pytest.mark.parametrize("doc_page", PAGES, ids=lambda doc_page: doc_page.name)
def test_the_page_is_short_and_its_blocks_are_files(doc_page: Page) -> None:
    assert len(doc_page.text.split()) <= 650
    assert all(block.file for block in doc_page.blocks)
    assert {block.file.partition("/")[0].partition("-")[0] for block in doc_page.blocks} >= {"before", "after"}
