"""A process that asks for IDs, for tests that need more than one or that kill it. See `main` for what it can do."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import json
import os
import sys
import threading
import time
import warnings


def say(*lines: object) -> None:
    """Print at once, so that what was printed was given out, and nothing that was given out long before is not."""
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


def flood(rule: str, app: str, seconds: float, batch: int) -> None:
    """IDs as fast as they come, for a time or until the end of the standard input."""
    from resty_django.ids import next_ids
    from resty_django.ids.errors import Unavailable

    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ended.is_set():
        try:
            ids = next_ids(rule, batch, app)
        except Unavailable:
            continue
        say(*ids)


def talk() -> None:
    """Each line of the standard input is a JSON list of rule, name, salt and count; a line of JSON answers it."""
    from resty_django.ids import next_id, next_ids
    from resty_django.ids.errors import IdError

    for line in sys.stdin:
        rule, app, salt, count = json.loads(line)
        try:
            say(json.dumps(next_id(rule, app, salt) if count == 1 else next_ids(rule, count, app, salt)))
        except IdError as error:
            say(json.dumps({"error": error.code, "message": str(error)}))


def fork(children: int, count: int, how: str) -> None:
    """IDs before and after a fork, as under gunicorn with --preload; lines of process, ID.

    `how`: "hooks", or "none" for a fork that Python does not know of, as uWSGI's.
    """
    from resty_django.ids import anext_ids, next_id, next_ids
    from resty_django.ids.service import service, stop

    say(*(f"parent {issued_id}" for issued_id in next_ids("order", count)))
    assert service().reservations.running
    pids = []
    for child in range(children):
        with warnings.catch_warnings():
            # Python 3.12+ warns of any fork with threads about: that it is safe here is what the test is for.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork() if how == "hooks" else ctypes.PyDLL(None).fork()
        if not pid:
            try:
                say(*(f"child{child} {next_id('order')}" for _ in range(count)))
                say(*(f"child{child} {issued_id}" for issued_id in asyncio.run(anext_ids("order", count))))
                stop()
            except BaseException as error:
                say(f"error {type(error).__name__}: {error}")
            finally:
                os._exit(0)
        pids.append(pid)
    say(*(f"parent {next_id('order')}" for _ in range(count)))
    for pid in pids:
        os.waitpid(pid, 0)
    say(*(f"parent {issued_id}" for issued_id in next_ids("order", count)))


def main(what: str, *args: str) -> None:
    import django
    from django.conf import settings
    from django.db import connections

    ids = ast.literal_eval(os.environ["RESTY_WORKER_IDS"])
    settings.RESTY_DJANGO = {"IDS": {**settings.RESTY_DJANGO.get("IDS", {}), **ids}}
    django.setup()
    if what == "flood":
        rule, app, seconds, batch = args
        flood(rule, app, float(seconds), int(batch))
    elif what == "talk":
        talk()
    elif what == "fork":
        fork(int(args[0]), int(args[1]), args[2])
    connections.close_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
