"""Simulated visitors that keep the demo's pages lively: they order, look around, request prices and guess passwords.

Each visitor has an address from a range that is reserved for documentation. The site believes it, because the demo
trusts this machine as a proxy while there is traffic. A switch in a shared dictionary turns traffic off and on.

`python -m project.traffic` visits a site until Ctrl-C or SIGTERM. It is not a management command because it needs the
settings but none of the apps, whose import would take most of its start.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import logging
import os
import random
import re
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from project import ports
from resty_django.shdict import SharedDictError, shdicts

ITEMS: Final = ("Tea", "Coffee", "Cocoa")
VISITORS: Final = 12
PAUSE: Final = 0.5
"""Average seconds between visits."""
ADDRESSES: Final = "203.0.113."
"""Prefix of the visitors' addresses."""
SWITCH: Final = "demo:no-traffic"
"""The key in the dictionary `default` that turns traffic off."""
NAMES: Final = ("guest", "info", "root")
"""The names whose passwords visitors guess."""
TOKEN: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
NUMBER: Final = re.compile(r'href="/orders/([^"/]+)/"')


def is_on() -> bool:
    """Return whether traffic is on; also true if the dictionary cannot be used."""
    try:
        return shdicts["default"].get(SWITCH) is None
    except SharedDictError:
        return True


def switch(on: bool) -> None:
    """Turn traffic on or off for all processes. Raise `SharedDictError`."""
    if on:
        shdicts["default"].delete(SWITCH)
    else:
        shdicts["default"].set(SWITCH, True)


class PeopleFilter(logging.Filter):
    """A log filter that drops records of simulated visitors' requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        headers = getattr(getattr(record, "request", None), "headers", {})
        return not headers.get("X-Forwarded-For", "").startswith(ADDRESSES)


class Visitor:
    """A visitor with an address and a cookie."""

    def __init__(self, host: str, http_port: int, udp_port: int, address: str, chance: random.Random) -> None:
        self.host, self.http_port, self.udp_port = host, http_port, udp_port
        self.address = address
        self.chance = chance
        self.cookie = ""
        self.visits: tuple[tuple[Callable[[], None], int], ...] = (
            (self.order, 5),
            (self.look_at_an_order, 4),
            (self.look_at_items, 6),
            (self.ask_for_prices, 3),
            (self.ask_for_an_id, 2),
            (self.download_prices, 2),
            (self.guess_a_password, 1),
        )

    def visit(self) -> None:
        """Perform one action. Ignore a site that does not respond."""
        actions, weights = zip(*self.visits, strict=True)
        try:
            self.chance.choices(actions, weights)[0]()
        except (OSError, http.client.HTTPException):
            time.sleep(1)

    def order(self) -> None:
        """Place an order. Most are small; large ones take the shop longer."""
        match = TOKEN.search(self.request("GET", "/orders/")[1])
        if match:
            quantity = self.chance.choice((1, 1, 1, 2, 2, 3, 5, 20))
            fields = {"csrfmiddlewaretoken": match[1], "item": self.chance.choice(ITEMS), "quantity": quantity}
            self.request("POST", "/orders/", urlencode(fields))

    def look_at_an_order(self) -> None:
        numbers = NUMBER.findall(self.request("GET", "/orders/")[1])
        if numbers:
            self.request("GET", f"/orders/{self.chance.choice(numbers)}/")

    def look_at_items(self) -> None:
        self.request("GET", "/items/")

    def ask_for_prices(self) -> None:
        """Request prices, sometimes more often than the API allows."""
        for _ in range(self.chance.choice((1, 1, 1, 14))):
            self.request("GET", "/api/prices/")

    def ask_for_an_id(self) -> None:
        rule = self.chance.choice(("ticket", "customer", "o2o"))
        ports.ask_ids(self.host, self.udp_port, {"action": "get", "rule_name": rule, "app_name": "till", "seq": 1}, 2)

    def download_prices(self) -> None:
        """Download the price list, sometimes more often than the quota allows."""
        for _ in range(self.chance.choice((1, 1, 4))):
            self.request("GET", "/price-list/")

    def guess_a_password(self) -> None:
        """Try to log in, sometimes so often that it causes a ban."""
        match = TOKEN.search(self.request("GET", "/admin/login/")[1])
        if match:
            fields = {"csrfmiddlewaretoken": match[1], "username": self.chance.choice(NAMES), "password": "secret"}
            for _ in range(self.chance.choice((1, 1, 6))):
                self.request("POST", "/admin/login/", urlencode(fields))

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """Return the status and the text of a response."""
        headers = {"X-Forwarded-For": self.address, "Cookie": self.cookie}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=10)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        cookie = answer.headers["Set-Cookie"]
        if cookie:
            self.cookie = cookie.partition(";")[0]
        return answer.status, text


def run(host: str, http_port: int, udp_port: int) -> None:
    """Simulate visitors indefinitely."""
    chance = random.Random()  # noqa: S311
    guests = [Visitor(host, http_port, udp_port, f"{ADDRESSES}{10 + number}", chance) for number in range(VISITORS)]
    while True:
        time.sleep(chance.expovariate(1 / PAUSE))
        if is_on():
            chance.choice(guests).visit()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    parser = argparse.ArgumentParser(description="Visit the demo site as its customers would, about twice a second.")
    parser.add_argument("--host", default="127.0.0.1", help="Address of the site (default: %(default)s).")
    parser.add_argument("--http-port", type=int, default=8000, help="Port of the site (default: %(default)s).")
    parser.add_argument("--udp-port", type=int, default=1200, help="Port of the ID server (default: %(default)s).")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        run(options.host, options.http_port, options.udp_port)


if __name__ == "__main__":
    main()
