"""A process that receives messages: `_eventlistener.py KIND`, with settings as JSON in BENCH_SITE.

It prints `ready`, reads the number of messages and waits for them. Then it prints a line of JSON: the seconds that each
message took to its handler, and the processor time while ready. A message contains the time at which it was sent.

KIND is `events`, a handler of this package; `pubsub`, a loop of redis-py over a subscription; or `sleep SECONDS`, a
loop that only sleeps for this time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from _table import cpu_seconds

CHANNEL = "bench"


def configure() -> None:
    import django
    from django.conf import settings

    settings.configure(INSTALLED_APPS=["resty_django"], **json.loads(os.environ["BENCH_SITE"]))
    django.setup()


def hear_events(took: list[float]) -> None:
    from resty_django import events

    configure()
    events.register(lambda data, *event_args: took.append(time.monotonic() - data), CHANNEL)
    events.start()


def hear_pubsub(took: list[float]) -> None:
    import redis

    url = json.loads(os.environ["BENCH_SITE"])["CACHES"]["default"]["LOCATION"]
    subscription = redis.Redis.from_url(url, socket_timeout=None).pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(CHANNEL)
    subscription.get_message(timeout=5)

    def listen() -> None:
        for message in subscription.listen():
            took.append(time.monotonic() - float(message["data"]))

    threading.Thread(target=listen, daemon=True).start()


def sleep(seconds: float) -> None:
    def loop() -> None:
        while True:
            time.sleep(seconds)

    threading.Thread(target=loop, daemon=True).start()


def main(kind: str, *arguments: Any) -> None:
    took: list[float] = []
    if kind == "events":
        hear_events(took)
    elif kind == "pubsub":
        hear_pubsub(took)
    else:
        sleep(float(arguments[0]))
    time.sleep(0.2)
    before = cpu_seconds("self")
    began = time.monotonic()
    print("ready", flush=True)
    expected = int(sys.stdin.read())
    share = (cpu_seconds("self") - before) / (time.monotonic() - began)
    end = time.monotonic() + 10
    while len(took) < expected and time.monotonic() < end:
        time.sleep(0.01)
    print(json.dumps({"took": took, "cpu": share}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
