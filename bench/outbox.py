"""`delay` through the outbox against its limit: an INSERT of an equal row, committed, and a `put`.

    python bench/outbox.py [--quick] [--rounds N] [--json FILE]
    RESTY_TEST_DB=mysql python bench/outbox.py          # or postgres; without, SQLite on the disk

Each call commits. Every fiftieth call of the outbox also marks fifty rows as delivered.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from _table import Options, Row, compare, main, measure, timed


def prepare(options: Options) -> None:
    """A database on the disk, and a job queue on the embedded Valkey."""
    kind = os.environ.get("RESTY_TEST_DB", "sqlite")
    options.disk = tempfile.TemporaryDirectory(dir=os.environ.get("RESTY_BENCH_DISK"))
    name = f"{options.disk.name}/bench.sqlite3" if kind == "sqlite" else "resty_bench"
    os.environ |= {
        "RESTY_VAR": str(options.folder),
        "RESTY_DB_NAME": name,
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    queue = {"URL": options.url, "MODULES": ["_outboxtask"]}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {**queue, "OUTBOX": True}}
    django.setup()
    if kind != "sqlite":
        create, drop = "CREATE DATABASE resty_bench", "DROP DATABASE IF EXISTS resty_bench"
        with connection._nodb_cursor() as cursor:
            cursor.execute(drop)
            cursor.execute(create)
    call_command("migrate", verbosity=0)


def calls(options: Options) -> Iterator[Row]:
    from _outboxtask import send_invoice
    from django.db import connection

    from resty_django.qless.clients.default import default_client
    from resty_django.qless.models import OutboxEntry
    from resty_django.qless.tasks.message import TaskDispatcher

    client = default_client()
    send_invoice.delay(7)
    entry = OutboxEntry.objects.get()
    direct = TaskDispatcher(client, False)

    def insert() -> None:
        entry.pk = None
        entry.save(force_insert=True)

    def limit() -> None:
        insert()
        direct.send([send_invoice._planned((7,), None, {})[0]])

    subjects = {
        "delay through the outbox": timed("delay(7)", delay=send_invoice.delay),
        "INSERT and put": timed("limit()", limit=limit),
        "INSERT": timed("insert()", insert=insert),
        "put": timed("send([plan((7,), None, {})[0]])", send=direct.send, plan=send_invoice._planned),
    }
    samples = measure(subjects, options)
    pairs = (("delay through the outbox", "INSERT and put", "<= 1.5"), ("INSERT and put", "INSERT"), ("put", "INSERT"))
    yield from compare(samples, pairs, prefix=f"{connection.display_name}: ")


if __name__ == "__main__":
    main({"calls": calls}, prepare)
