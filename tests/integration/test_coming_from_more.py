"""The projects of docs/coming-from/ do after the port what they did before it.

The `check_` functions also hold for the projects before the port, with a Python that has the other package.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from lupa.lua51 import LuaRuntime

from tests.docs_reader import Page, page
from tests.docs_site import free_port
from tests.ported_site import PortedSite, ported_site
from tests.servers import Server, one

PAGES = [
    page(f"docs/coming-from/{name}.md") for name in ("django-redis", "request-ids", "openresty", "id-server", "qless")
]
DJANGO_REDIS = "docs/coming-from/django-redis.md"
ID_SERVER = "docs/coming-from/id-server.md"
OPENRESTY = "docs/coming-from/openresty.md"
QLESS = "docs/coming-from/qless.md"
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


SEARCHES = """
import json
from django.test import Client

client = Client(SERVER_NAME="127.0.0.1")
paths = ["/search/"] * 4 + ["/products/7/", "/products/7/", "/products/8/"]
answers = [client.get(path, headers={"accept": "text/plain"}) for path in paths]
print(json.dumps([[answer.status_code, answer.content.decode()] for answer in answers]))
"""


def test_openresty(tmp_path: Path) -> None:
    with ported_site(tmp_path, OPENRESTY, "after") as site:
        answers = json.loads(site.visit(SEARCHES)[0])
    assert [status for status, _ in answers] == [200, 200, 429, 429, 200, 200, 200]
    assert [text for status, text in answers if status == 200] == [
        *("1", "2", "Tea 7, load 1", "Tea 7, load 1", "Tea 8, load 2"),
    ]


INVOICES = """
import json
import subprocess
import time
from django.test import Client
from redis import Redis
from resty_django.qless.core import source
from tests.servers import until

redis = Redis.from_url("URL")


def call(command, *arguments):
    \"\"\"As the client for OpenResty calls its core.\"\"\"
    return redis.eval(source(), 0, command, repr(time.time()), *arguments)


put = ["openresty-nginx-7-0", "mail", "invoice-8", "shop.jobs.SendInvoice", '{"order":8}', "0"]
call("put", *put, "priority", "0", "tags", '["invoices"]', "retries", "3", "depends", "[]")
client = Client(SERVER_NAME="127.0.0.1")
placed = client.get("/orders/7/").json()
waiting = client.get("/invoices/7/").json()
worker = subprocess.Popen([sys.executable, "manage.py", "runqless", "--queues", "mail"])
try:
    until(lambda: all(json.loads(call("get", f"invoice-{number}"))["state"] == "complete" for number in (7, 8)))
finally:
    worker.terminate()
    worker.wait(30)
seen = json.loads(call("get", "invoice-7"))
tagged = json.loads(call("tag", "get", "invoices"))["jobs"]
answers = [client.get(f"/invoices/{number}/").json() for number in (7, 8)]
print(json.dumps([placed, waiting, answers, json.loads(seen["data"]), seen["retries"], tagged]))
"""


def test_qless(server: Server, tmp_path: Path) -> None:
    address = f"127.0.0.1:{server.port}"
    with ported_site(tmp_path, QLESS, "after", {"127.0.0.1:6379": address}) as site:
        output, _ = site.visit(INVOICES.replace("URL", f"redis://{address}/1"))
    assert json.loads(output.splitlines()[-1]) == [
        {"job": "invoice-7"},
        {"state": "waiting", "text": None},
        [{"state": "complete", "text": f"Invoice for order {number}"} for number in (7, 8)],
        {"order": 7, "text": "Invoice for order 7"},
        3,
        ["invoice-8", "invoice-7"],
    ]


NUMBERS = """
import subprocess
from resty_django.ids import next_id
from resty_django.ids.models import IdCounter
from resty_django.ids.operations import raise_counter
from resty_django.ids.service import service
from tests.servers import until

first = next_id("order_id", app="shop")
service().stop()
raise_counter(IdCounter.objects.get(rule__name="order_id", app_name="shop"), to=41_000 + 1)
server = subprocess.Popen([sys.executable, "manage.py", "runidserver"], stdout=sys.stderr)


def ask():
    return subprocess.run([sys.executable, "client.py"], capture_output=True, text=True).stdout.strip()


try:
    print(first, until(ask), ask())
finally:
    server.terminate()
    server.wait(30)
"""


def test_id_server(tmp_path: Path) -> None:
    with ported_site(tmp_path, ID_SERVER, "after", {"1200": str(free_port(socket.SOCK_DGRAM))}) as site:
        assert re.fullmatch(r"(?P<day>O\d{6})000000 (?P=day)041001 (?P=day)041002\n", site.visit(NUMBERS)[0])


def test_lua_before_the_port_compiles() -> None:
    scripts = [block for doc_page in PAGES for block in doc_page.blocks if block.language == "lua"]
    assert scripts
    for script in scripts:
        LuaRuntime().compile(script.text)


@pytest.mark.parametrize("doc_page", PAGES, ids=lambda doc_page: doc_page.name)
def test_the_page_is_short_and_its_blocks_are_files(doc_page: Page) -> None:
    assert len(doc_page.text.split()) <= 650
    assert all(block.file or block.language == "sql" for block in doc_page.blocks)
    assert {block.file.partition("/")[0].partition("-")[0] for block in doc_page.blocks} >= {"before", "after"}
