"""The archive of finished jobs: rows written per second, and how long searches of a full archive take.

    python bench/job_archive.py --rows 1000000

Jobs are completed on an embedded server and archived by a writer without pauses; then SQLite is filled. Pages are
requested with Django's test client, after one request that warms up. Times are the medians of five requests: by the
clock, and the time that this process had a processor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

SENT = 5_000
"""Jobs that the writer copies from the server."""
SEARCHES = (
    ("", ""),
    ("state:complete", "queue and state are columns with indexes"),
    ("state:failed", ""),
    ("class:shop.tasks.render_9", ""),
    ("class:render", "ten classes"),
    ("queue:mail age:>90d", ""),
    ("queue:mail state:failed", ""),
    ("txid:t0000500000", ""),
    ("tag:customer-4711", "words, from here on"),
    ("args.customer.id:471100", ""),
    ("args.customer.name:meyer", "many results"),
    ("error:zip_code", ""),
    ("no-such-word", "no result"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="Rows of the archive.")
    options = parser.parse_args()
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests import servers

    with tempfile.TemporaryDirectory() as folder, servers.one() as server:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
            "RESTY_TEST_DB": os.environ.get("RESTY_TEST_DB", "sqlite"),
            "RESTY_DB_NAME": os.environ.get("RESTY_DB_NAME", str(Path(folder) / "archive.sqlite3")),
            "TEST_QLESS": json.dumps({"URL": server.url, "ARCHIVE": {"RETENTION": "3650d"}}),
        }
        import django

        django.setup()
        from django.conf import settings
        from django.core.management import call_command
        from django.test.utils import setup_test_environment

        setup_test_environment()
        settings.LOGGING_CONFIG = None
        call_command("migrate", verbosity=0)
        written()
        fill(options.rows)
        pages()


def written() -> None:
    from resty_django.qless.archive.writer import Writer
    from resty_django.qless.clients.default import default_client

    client = default_client()
    queue = client.queues["mail"]
    names = random.Random(1)
    for start in range(0, SENT, 100):
        for number in range(start, start + 100):
            customer = {"id": number, "name": names.choice(("Ann Meyer", "Bob Smith", "Cleo")), "password": "x"}
            queue.put("shop.tasks.send_invoice", {"args": [], "kwargs": {"customer": customer}}, tags=[f"c-{number}"])
        for job in queue.pop(100):
            job.complete()
    for _run in range(2):
        begin, cpu = time.perf_counter(), time.process_time()
        outcome = Writer(client).run()
        seconds, processor = time.perf_counter() - begin, time.process_time() - cpu
        speed = f"{outcome.written / seconds:,.0f} rows/s, {outcome.written / processor:,.0f} per second of processor"
        print(f"writer: {outcome.written:,} rows in {seconds:.2f} s, cpu {processor:.2f} s: {speed}", flush=True)


def fill(count: int) -> None:
    """Insert rows of the last year by SQL."""
    from django.db import connection

    first = "datetime('now', '-365 days')"
    table = "resty_qless_archivedjob"
    put = f"strftime('%Y-%m-%d %H:%M:%f', {first}, (n * 357.0 * 86400 / {count}) || ' seconds')"
    name = "CASE n % 3 WHEN 0 THEN 'Ann Meyer' WHEN 1 THEN 'Bob Smith' ELSE 'Cleo' END"
    failed = "n % 50 = 0"
    klass = "'shop.tasks.' || CASE WHEN n % 3 THEN 'render_' ELSE 'send_' END || (n % 10)"
    values = {
        "key": "lower(hex(randomblob(16)))",
        "klass": klass,
        "queue": "CASE WHEN n % 4 THEN 'pdf' ELSE 'mail' END",
        "state": f"CASE WHEN {failed} THEN 'failed' ELSE 'complete' END",
        "priority": "0",
        "tags": "'[\"customer-' || (n % 100000) || '\"]'",
        "txid": "printf('t%010d', n)",
        "arguments": (
            f"""'{{"args": [], "kwargs": {{"customer": {{"id": ' || n || ', "name": "' || {name} || '"}}}}}}'"""
        ),
        "arguments_are": "'redacted'",
        "error_group": f"CASE WHEN {failed} THEN 'pdf-KeyError' ELSE '' END",
        "error_message": f"CASE WHEN {failed} THEN 'KeyError: zip_code' ELSE '' END",
        "worker": "'web1-4711'",
        "retries": "5",
        "retries_left": "5",
        "put_at": put,
        "started_at": put,
        "finished_at": put,
        "waited": "0",
        "ran": "0",
        "history": """'[{"what": "put", "when": 1, "q": "mail"}, {"what": "done", "when": ' || n || '}]'""",
        "text": f"lower(n || ' ' || {klass} || ' t' || n || ' customer-' || (n % 100000) || ' ' || {name} || "
        f"CASE WHEN {failed} THEN ' pdf-keyerror: keyerror: zip_code' ELSE '' END)",
    }
    begin = time.process_time()
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
            f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM numbers"
        )
        cursor.execute("SELECT count(*) FROM resty_qless_archivedjob")
        print(f"filled: {cursor.fetchone()[0]:,} rows, {time.process_time() - begin:,.0f} s", flush=True)


def pages() -> None:
    from django.contrib.auth.models import User
    from django.test import Client as Browser

    browser = Browser()
    browser.force_login(User.objects.create_superuser("bench"))
    for text, note in SEARCHES:
        for address in ("/admin/resty_qless/archivedjob/", "/admin/resty_qless/job/"):
            times: list[tuple[float, float]] = []
            reply: Any = None
            for _request in range(6):
                begin, cpu = time.perf_counter(), time.process_time()
                reply = browser.get(address, {"q": text})
                times.append((time.perf_counter() - begin, time.process_time() - cpu))
            clock, processor = (statistics.median(column) * 1000 for column in zip(*times[1:], strict=True))
            page = reply.content.decode()
            results = len(re.findall(r'archivedjob/[^"]*/change/" title=', page))
            more = "more" if 'rel="next"' in page else "all"
            progress = re.search(r"Examined [^<]*", page)
            line = f"{address:34} {text or '(all)':28} {clock:7,.0f} ms, cpu {processor:6,.0f} ms"
            print(f"{line}  {results:3} rows, {more} {progress[0] if progress else ''} {note}", flush=True)


if __name__ == "__main__":
    main()
