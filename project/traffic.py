"""Simulated visitors, so that the demo's pages have something to show: they order, look at orders and ask for prices.

Each visitor has an address from a range that is reserved for documentation. The site believes it, because the demo
trusts this machine as a proxy while there is traffic. A switch in a shared dictionary turns the traffic off and on.

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
"""Seconds between two visits, on average."""
ADDRESSES: Final = "203.0.113."
"""What the visitors' addresses begin with."""
SWITCH: Final = "demo:no-traffic"
"""The key in the dictionary `default` that stops it."""
TOKEN: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
NUMBER: Final = re.compile(r'href="/orders/([^"/]+)/"')


def is_on() -> bool:
    """Whether the switch lets visitors come; they also come where the dictionary cannot be used."""
    try:
        return shdicts["default"].get(SWITCH) is None
    except SharedDictError:
        return True


def switch(on: bool) -> None:
    """Turn it on or off, for all processes. Raises `SharedDictError`."""
    if on:
        shdicts["default"].delete(SWITCH)
    else:
        shdicts["default"].set(SWITCH, True)


class PeopleFilter(logging.Filter):
    """Drop the log records of requests by simulated visitors, so that a log shows what people did."""

    def filter(self, record: logging.LogRecord) -> bool:
        headers = getattr(getattr(record, "request", None), "headers", {})
        return not headers.get("X-Forwarded-For", "").startswith(ADDRESSES)


class Visitor:
    """One visitor, who comes from an address and keeps a cookie."""

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
        )

    def visit(self) -> None:
        """Do one thing. A site that does not answer is left alone."""
        actions, weights = zip(*self.visits, strict=True)
        try:
            self.chance.choices(actions, weights)[0]()
        except (OSError, http.client.HTTPException):
            time.sleep(1)

    def order(self) -> None:
        """Most orders are small. A large one takes the shop longer."""
        match = TOKEN.search(self.request("GET", "/")[1])
        if match:
            quantity = self.chance.choice((1, 1, 1, 2, 2, 3, 5, 20))
            fields = {"csrfmiddlewaretoken": match[1], "item": self.chance.choice(ITEMS), "quantity": quantity}
            self.request("POST", "/", urlencode(fields))

    def look_at_an_order(self) -> None:
        numbers = NUMBER.findall(self.request("GET", "/")[1])
        if numbers:
            self.request("GET", f"/orders/{self.chance.choice(numbers)}/")

    def look_at_items(self) -> None:
        self.request("GET", "/items/")

    def ask_for_prices(self) -> None:
        """Now and then oftener than the API lets anybody."""
        for _ in range(self.chance.choice((1, 1, 1, 14))):
            self.request("GET", "/api/prices/")

    def ask_for_an_id(self) -> None:
        rule = self.chance.choice(("ticket", "customer", "o2o"))
        ports.ask_ids(self.host, self.udp_port, {"action": "get", "rule_name": rule, "app_name": "till", "seq": 1}, 2)

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """The status and the text of an answer."""
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
    """Let visitors come, without end."""
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
