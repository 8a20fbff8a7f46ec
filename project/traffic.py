"""Visitors of the demo, so that its pages have something to show: they order, look at orders and ask for prices.

Each visitor has an address of its own from a range that is kept for documentation. The site believes that, since the
demo trusts this machine as a proxy while there is traffic. A switch in a shared dictionary turns it off and on.
"""

from __future__ import annotations

import http.client
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
        found = TOKEN.search(self.request("GET", "/")[1])
        if found:
            quantity = self.chance.choice((1, 1, 1, 2, 2, 3, 5, 20))
            fields = {"csrfmiddlewaretoken": found[1], "item": self.chance.choice(ITEMS), "quantity": quantity}
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


def run(host: str, http_port: int, udp_port: int, visits: int | None = None) -> None:
    """Let visitors come, `visits` of them or without end."""
    chance = random.Random()  # noqa: S311
    guests = [Visitor(host, http_port, udp_port, f"203.0.113.{10 + number}", chance) for number in range(VISITORS)]
    done = 0
    while visits is None or done < visits:
        if visits is None:
            time.sleep(chance.expovariate(1 / PAUSE))
        if is_on():
            chance.choice(guests).visit()
            done += 1
