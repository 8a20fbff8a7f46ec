"""The projects of docs/coming-from/ do after the port what they did before it.

The `check_` functions also hold for the projects before the port, with a Python that has the other package.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.ported_site import PortedSite, ported_site
from tests.servers import free_port

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
